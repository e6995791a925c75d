//! What is recorded of captures and graphs, over the simulated driver and runtime.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use streamcheck_model::trace::{Reader, Record};
use streamcheck_model::{Action, Handle, Mode, NodeWork, Region, StreamRef};

use crate::common::{folder, preloaded, run, simulated, simulated_program};

/// Handles and addresses in the order in which they are met.
#[derive(Default)]
struct Names {
    graphs: Vec<Handle>,
    nodes: Vec<Handle>,
    executables: Vec<Handle>,
    streams: Vec<Handle>,
    memory: Vec<u64>,
}

/// The place of a value among those met, put at the end if it is new.
fn number<T: PartialEq>(known: &mut Vec<T>, value: T) -> usize {
    known
        .iter()
        .position(|other| *other == value)
        .unwrap_or_else(|| {
            known.push(value);
            known.len() - 1
        })
}

impl Names {
    /// 0 stands for none.
    fn graph(&mut self, graph: Handle) -> String {
        match graph {
            Handle(0) => "nothing".to_owned(),
            graph => format!("g{}", number(&mut self.graphs, graph)),
        }
    }

    fn node(&mut self, node: Handle) -> String {
        format!("n{}", number(&mut self.nodes, node))
    }

    fn nodes(&mut self, nodes: &[Handle]) -> String {
        let names: Vec<_> = nodes.iter().map(|node| self.node(*node)).collect();
        format!("[{}]", names.join(" "))
    }

    fn executable(&mut self, exec: Handle) -> String {
        match exec {
            Handle(0) => "its graph".to_owned(),
            exec => format!("x{}", number(&mut self.executables, exec)),
        }
    }

    fn stream(&mut self, stream: StreamRef) -> String {
        match stream {
            StreamRef::Created(handle) => format!("s{}", number(&mut self.streams, handle)),
            other => format!("{other:?}"),
        }
    }

    fn memory(&mut self, address: u64) -> String {
        format!("m{}", number(&mut self.memory, address))
    }

    fn region(&mut self, region: &Region) -> String {
        let Region {
            address,
            width,
            rows,
            pitch,
        } = *region;
        let memory = self.memory(address);
        match rows {
            1 => format!("{memory} {width}"),
            _ => format!("{memory} {width}x{rows}/{pitch}"),
        }
    }

    fn work(&mut self, work: &NodeWork) -> String {
        match work {
            NodeWork::Kernel {
                pointers,
                layout_known,
                ..
            } => {
                assert!(layout_known);
                let pointers = pointers.iter();
                let named: Vec<_> = pointers
                    .map(|pointer| {
                        assert_eq!(pointer.mode, Mode::Write);
                        self.memory(pointer.address)
                    })
                    .collect();
                format!("kernel {}", named.join(" "))
            }
            NodeWork::Copy { layers, .. } => {
                let layers = layers.iter();
                let named: Vec<_> = layers
                    .map(|(to, from)| format!("{} from {}", self.region(to), self.region(from)))
                    .collect();
                format!("copy {}", named.join(", "))
            }
            NodeWork::Fill { to } => format!("fill {}", self.region(to)),
            NodeWork::Host => "host".to_owned(),
            NodeWork::Empty => "empty".to_owned(),
            NodeWork::EventRecord { .. } => "record".to_owned(),
            NodeWork::EventWait { .. } => "wait".to_owned(),
            NodeWork::Allocate { address, size } => {
                format!("allocate {} {size}", self.memory(*address))
            }
            NodeWork::Free { address } => format!("free {}", self.memory(*address)),
            NodeWork::Child { graph } => format!("child {}", self.graph(*graph)),
            NodeWork::Conditional { bodies } => {
                let bodies = bodies.iter().map(|body| self.graph(*body));
                format!("conditional {}", bodies.collect::<Vec<_>>().join(" "))
            }
            NodeWork::Unknown => "unknown".to_owned(),
        }
    }

    /// `None` for what has nothing to do with graphs.
    fn line(&mut self, action: &Action) -> Option<String> {
        Some(match action {
            Action::CaptureBegun {
                stream,
                graph,
                dependencies,
            } => format!(
                "{} captures to {} after {}",
                self.stream(*stream),
                self.graph(*graph),
                self.nodes(dependencies)
            ),
            Action::CaptureEnded { stream, graph } => {
                format!("{} ends {}", self.stream(*stream), self.graph(*graph))
            }
            Action::NodeCaptured { stream, work } => {
                format!("{} takes {}", self.stream(*stream), self.work(work))
            }
            Action::CaptureDependencies {
                stream,
                nodes,
                replace,
            } => format!(
                "{} goes on after {} {replace}",
                self.stream(*stream),
                self.nodes(nodes)
            ),
            Action::GraphCreated { graph } => format!("{} created", self.graph(*graph)),
            Action::GraphDestroyed { graph } => format!("{} destroyed", self.graph(*graph)),
            Action::GraphCloned { graph, from } => {
                format!("{} is a copy of {}", self.graph(*graph), self.graph(*from))
            }
            Action::NodeFoundInClone {
                graph, original, ..
            } => format!("{} found in {}", self.node(*original), self.graph(*graph)),
            Action::NodeAdded {
                graph,
                node,
                dependencies,
                work,
            } => format!(
                "{} {} after {}: {}",
                self.graph(*graph),
                self.node(*node),
                self.nodes(dependencies),
                self.work(work)
            ),
            Action::NodeRemoved { node } => format!("{} removed", self.node(*node)),
            Action::NodeChanged { exec, node, work } => format!(
                "{} in {}: {}",
                self.node(*node),
                self.executable(*exec),
                self.work(work)
            ),
            Action::EdgesChanged {
                graph,
                pairs,
                added,
            } => {
                let pairs = pairs.iter();
                let named: Vec<_> = pairs
                    .map(|(from, to)| format!("{}-{}", self.node(*from), self.node(*to)))
                    .collect();
                format!("{} edges {} {added}", self.graph(*graph), named.join(" "))
            }
            Action::GraphInstantiated {
                exec,
                graph,
                auto_free,
            } => format!(
                "{} of {} {auto_free}",
                self.executable(*exec),
                self.graph(*graph)
            ),
            Action::ExecUpdated { exec, graph } => {
                format!("{} as {}", self.executable(*exec), self.graph(*graph))
            }
            Action::ExecDestroyed { exec } => format!("{} destroyed", self.executable(*exec)),
            Action::NodeEnabled {
                exec,
                node,
                enabled,
            } => format!("{} {} {enabled}", self.executable(*exec), self.node(*node)),
            Action::GraphLaunched { stream, exec } => {
                format!("{} on {}", self.executable(*exec), self.stream(*stream))
            }
            Action::Launched { stream, .. } => format!("{} launches", self.stream(*stream)),
            Action::HostFunctionEnqueued { stream, token } => {
                format!("{} calls {token}", self.stream(*stream))
            }
            Action::HostFunctionStarted { token } => format!("{token} begins"),
            Action::EventRecorded { stream, .. } => format!("{} records", self.stream(*stream)),
            Action::StreamWaited { stream, .. } => format!("{} waits", self.stream(*stream)),
            Action::Allocated {
                stream: Some(stream),
                ..
            } => format!("{} allocates", self.stream(*stream)),
            Action::FreeBegun {
                stream: Some(stream),
                ..
            } => format!("{} frees", self.stream(*stream)),
            // Both buffers get their names.
            Action::Allocated { address, .. } => {
                self.memory(*address);
                return None;
            }
            _ => return None,
        })
    }
}

/// What is recorded of graphs in one of the programs of `graphs.c`.
fn lines(name: &str) -> Vec<String> {
    seen(name).0
}

/// The same, and what could not be seen into, as often as it was counted.
fn seen(name: &str) -> (Vec<String>, Vec<(String, u64)>) {
    // Tests run side by side.
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let number = RUNS.fetch_add(1, Relaxed);
    let trace = format!("graphs-{number}.trace");
    let json = format!("graphs-{number}.json");
    let mut command = preloaded(simulated_program("graphs"));
    command
        .arg(name)
        .env("LD_LIBRARY_PATH", simulated())
        .env("STREAMCHECK_JSON", &json)
        .env("STREAMCHECK_TRACE", &trace);
    let run = run(&mut command);
    assert_eq!(
        run.stdout,
        format!("{name}\n"),
        "the program ran to its end: {:?} {}",
        run.code,
        run.stderr
    );
    let file = std::fs::File::open(folder().join(&trace)).expect("a trace");
    let mut names = Names::default();
    let text = std::fs::read_to_string(folder().join(json)).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let spots = report["summary"]["blind_spots"].as_array().expect("a list");
    let counted = |spot: &serde_json::Value| {
        let kind = spot["kind"].as_str().expect("a text").to_owned();
        (kind, spot["count"].as_u64().expect("a number"))
    };
    let spots = spots.iter().map(counted).collect();
    let lines = Reader::new(std::io::BufReader::new(file), trace)
        .expect("its header is whole")
        .filter_map(|record| match record.expect("every record is whole") {
            Record::Operation(operation) => names.line(&operation.action),
            _ => None,
        })
        .collect();
    (lines, spots)
}

#[test]
fn what_a_stream_captures_is_recorded_as_usual() {
    let expected = [
        "s0 captures to nothing after []",
        "s0 launches",
        "s0 records",
        "s1 waits",
        "s1 allocates",
        "s1 calls 1",
        "s1 frees",
        "s1 takes record",
        "s1 records",
        "s0 waits",
        "s0 ends g0",
        "x0 of g0 true",
        "x0 on s0",
        "1 begins",
        "n0 in its graph: host",
        "s0 captures to nothing after []",
        "g0 destroyed",
        "s0 ends nothing",
        "x0 destroyed",
    ];
    assert_eq!(lines("captured"), expected);
}

#[test]
fn every_type_of_node_is_read() {
    let nodes = [
        "g0 n0 after []: kernel m0",
        "g0 n1 after [n0]: copy m1 128x8/256 from m0 128x8/256",
        "g0 n2 after [n0 n1]: copy m0 64 from m1 64",
        "g0 n3 after [n2]: fill m0 64x3/256",
        "g0 n4 after [n3]: host",
        "g1 created",
        "g1 n5 after []: empty",
        "g0 n6 after [n4]: child g1",
        "g0 n7 after [n6]: record",
        "g0 n8 after [n7]: wait",
        "g0 n9 after [n8]: allocate m2 4096",
        "g0 n10 after [n9]: free m2",
    ];
    fn around<'a>(nodes: &[&'a str], after: &[&'a str]) -> Vec<&'a str> {
        let launched = ["x0 of g0 true", "x0 on s0", "x0 destroyed"];
        [&["g0 created"], nodes, &launched, after].concat()
    }
    assert_eq!(lines("built"), around(&nodes, &["g0 destroyed"]));
    let typed = [
        "g1 created",
        "g0 n0 after []: kernel m0",
        "g0 n1 after [n0]: copy m1 128x8/256 from m0 128x8/256",
        "g0 n2 after [n1]: fill m0 64x3/256",
        "g0 n3 after [n2]: host",
        "g0 n4 after [n3]: child g1",
        "g0 n5 after [n4]: empty",
        "g0 n6 after [n5]: record",
        "g0 n7 after [n6]: wait",
        "g0 n8 after [n7]: conditional g2",
        "g2 n9 after []: fill m0 64x3/256",
    ];
    assert_eq!(lines("typed"), around(&typed, &[]));
}

#[test]
fn changes_of_graphs_are_seen() {
    let expected = [
        "n0 in its graph: kernel m1",
        "n1 in its graph: fill m1 64x3/256",
        "n2 in its graph: copy m1 32 from m0 32",
        "n3 in its graph: record",
        "n4 in its graph: wait",
        "x0 of g1 false",
        "n0 in x0: kernel m0",
        "n1 in x0: fill m0 64x3/256",
        "n2 in x0: copy m0 16 from m1 16",
        "n3 in x0: record",
        "n4 in x0: wait",
        "n5 in x0: child g0",
        "n1 in x0: fill m0 64x3/256",
        "x0 n0 false",
        "x0 as g2",
        "n5 in its graph: unknown",
    ];
    let edges = [
        "g1 edges n0-n1 n1-n2 n2-n3 n3-n4 n4-n5 true",
        "g1 edges n1-n2 false",
        "n6 removed",
        "g2 is a copy of g1",
        "n0 found in g2",
    ];
    let all = lines("changed");
    // Two graphs and seven nodes come first.
    assert_eq!(all[9..], [&edges[..], &expected[..]].concat());
}

#[test]
fn the_drivers_graphs_are_seen() {
    let expected = [
        "g0 created",
        "g0 n0 after []: kernel m0",
        "g0 n1 after [n0]: fill m0 64x3/256",
        "g0 n2 after [n0 n1]: copy m1 48 from m0 48",
        "x0 of g0 true",
        "n0 in its graph: kernel m1",
        "x0 as g0",
        "x0 on s0",
        "s0 captures to nothing after []",
        "x0 on s0",
        "s0 goes on after [] true",
        "s0 ends g1",
        "x0 destroyed",
        "g1 n3 after []: kernel m1",
    ];
    assert_eq!(lines("driven"), expected);
}

#[test]
fn edges_that_start_a_kernel_early_are_counted() {
    let (lines, spots) = seen("early");
    assert_eq!(spots, [("programmatic-dependent-launch".to_owned(), 2)]);
    assert!(
        lines.contains(&"g0 edges n0-n1 true".to_owned()),
        "{lines:?}"
    );
    assert!(lines.contains(&"g0 n2 after [n1]: kernel m0".to_owned()));
}

#[test]
fn what_cannot_be_seen_of_a_graph_is_counted() {
    let counted = |name: &str| seen(name).1;
    let spot = |kind: &str, count| (kind.to_owned(), count);
    // A node that the runtime told of gets another function.
    let told = [
        spot("graph-host-function", 1),
        spot("graph-node-of-unknown-origin", 1),
    ];
    assert_eq!(counted("captured"), told);
    assert_eq!(counted("built"), [spot("graph-host-function", 1)]);
    assert_eq!(
        counted("changed"),
        [spot("graph-node-of-unknown-kind", 1)],
        "a child that was handed out"
    );
}
