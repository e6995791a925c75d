//! Captures and graphs.

use smallvec::SmallVec;

use super::line::Line;
use super::{HostMemory, Memory, Object, ParseError, State, extent};
use crate::{Action, Handle, NodeWork, Region, StreamRef};

const GRAPH: &str = "a graph declared above";
const EXEC: &str = "an executable graph declared above";
const NODE: &str = "a node declared above";

/// The verbs of these lines.
pub(super) const VERBS: &[&str] = &[
    "capture",
    "end_capture",
    "captured",
    "dependencies",
    "graph",
    "clone",
    "find",
    "node",
    "remove",
    "set",
    "edges",
    "no_edges",
    "instantiate",
    "update",
    "enable",
    "disable",
    "graph_launch",
];

impl State {
    pub(super) fn of_graphs(
        &mut self,
        verb: &str,
        line: &mut Line<'_>,
    ) -> Result<(&'static str, Action), ParseError> {
        Ok(match verb {
            "capture" => {
                let stream = self.stream(line)?;
                if line.peek().is_none() {
                    let action = Action::CaptureBegun {
                        stream,
                        graph: Handle(0),
                        dependencies: Vec::new(),
                    };
                    return Ok(("cudaStreamBeginCapture", action));
                }
                let graph = self.graph(line)?;
                let dependencies = self.nodes(line)?;
                let action = Action::CaptureBegun {
                    stream,
                    graph,
                    dependencies,
                };
                ("cudaStreamBeginCaptureToGraph", action)
            }
            "end_capture" => {
                let stream = self.stream(line)?;
                let graph = self.captured_graph(line)?;
                (
                    "cudaStreamEndCapture",
                    Action::CaptureEnded { stream, graph },
                )
            }
            "captured" => {
                let stream = self.stream(line)?;
                let work = self.node_work(line)?;
                let api = match work {
                    NodeWork::EventRecord { .. } => "cudaEventRecordWithFlags",
                    NodeWork::EventWait { .. } => "cudaStreamWaitEvent",
                    _ => "cudaGraphAddNode",
                };
                (api, Action::NodeCaptured { stream, work })
            }
            "dependencies" => {
                let stream = self.stream(line)?;
                let replace = line.eat("replace");
                let nodes = self.nodes(line)?;
                let action = Action::CaptureDependencies {
                    stream,
                    nodes,
                    replace,
                };
                ("cudaStreamUpdateCaptureDependencies", action)
            }
            "graph" => {
                let graph = self.declare(line, Object::Graph)?;
                ("cudaGraphCreate", Action::GraphCreated { graph })
            }
            "clone" => {
                let from = self.graph(line)?;
                let graph = self.declare(line, Object::Graph)?;
                ("cudaGraphClone", Action::GraphCloned { graph, from })
            }
            "find" => {
                let graph = self.graph(line)?;
                let original = self.node(line)?;
                let node = self.declare(line, Object::Node)?;
                let action = Action::NodeFoundInClone {
                    graph,
                    node,
                    original,
                };
                ("cudaGraphNodeFindInClone", action)
            }
            "node" => self.node_added(line)?,
            "remove" => {
                let node = self.node(line)?;
                ("cudaGraphDestroyNode", Action::NodeRemoved { node })
            }
            "set" => {
                let name = line.peek().unwrap_or_default();
                let exec = match self.objects.get(name) {
                    Some(&Object::Exec(exec)) => {
                        line.next += 1;
                        exec
                    }
                    _ => Handle(0),
                };
                let node = self.node(line)?;
                let work = self.node_work(line)?;
                let api = if exec.0 == 0 {
                    "cudaGraphNodeSetParams"
                } else {
                    "cudaGraphExecNodeSetParams"
                };
                (api, Action::NodeChanged { exec, node, work })
            }
            "edges" | "no_edges" => {
                let graph = self.graph(line)?;
                let mut pairs = Vec::new();
                while line.peek().is_some() {
                    pairs.push((self.node(line)?, self.node(line)?));
                }
                let added = verb == "edges";
                let api = if added {
                    "cudaGraphAddDependencies"
                } else {
                    "cudaGraphRemoveDependencies"
                };
                let action = Action::EdgesChanged {
                    graph,
                    pairs,
                    added,
                };
                (api, action)
            }
            _ => self.of_execs(verb, line)?,
        })
    }

    fn of_execs(
        &mut self,
        verb: &str,
        line: &mut Line<'_>,
    ) -> Result<(&'static str, Action), ParseError> {
        Ok(match verb {
            "instantiate" => {
                let graph = self.graph(line)?;
                let exec = self.declare(line, Object::Exec)?;
                let auto_free = line.eat("auto_free");
                let action = Action::GraphInstantiated {
                    exec,
                    graph,
                    auto_free,
                };
                ("cudaGraphInstantiate", action)
            }
            "update" => {
                let exec = self.exec(line)?;
                let graph = self.graph(line)?;
                ("cudaGraphExecUpdate", Action::ExecUpdated { exec, graph })
            }
            "enable" | "disable" => {
                let exec = self.exec(line)?;
                let node = self.node(line)?;
                let action = Action::NodeEnabled {
                    exec,
                    node,
                    enabled: verb == "enable",
                };
                ("cudaGraphNodeSetEnabled", action)
            }
            _ => {
                let stream = self.stream(line)?;
                let exec = self.exec(line)?;
                ("cudaGraphLaunch", Action::GraphLaunched { stream, exec })
            }
        })
    }

    /// The graph that `end_capture` names: a new name, that of the graph captured to, or
    /// `invalid`.
    fn captured_graph(&mut self, line: &mut Line<'_>) -> Result<Handle, ParseError> {
        let expected = "the graph's name, or `invalid`";
        match line.peek() {
            Some("invalid") => {
                line.next += 1;
                Ok(Handle(0))
            }
            Some(name) if matches!(self.objects.get(name), Some(Object::Graph(_))) => {
                // A name bound again stands for a new graph, unless it was captured to.
                line.next += 1;
                if line.eat("again") {
                    let graph = self.handle(line)?;
                    self.objects.insert(name.to_owned(), Object::Graph(graph));
                    return Ok(graph);
                }
                match self.objects.get(name) {
                    Some(&Object::Graph(graph)) => Ok(graph),
                    _ => Err(line.wrong(expected)),
                }
            }
            Some(_) => self.declare(line, Object::Graph),
            None => {
                line.word(expected)?;
                Err(line.wrong(expected))
            }
        }
    }

    fn declare(
        &mut self,
        line: &mut Line<'_>,
        object: fn(Handle) -> Object,
    ) -> Result<Handle, ParseError> {
        let name = line.word("a new name")?;
        let handle = self.handle(line)?;
        self.objects.insert(name.to_owned(), object(handle));
        Ok(handle)
    }

    fn graph(&self, line: &mut Line<'_>) -> Result<Handle, ParseError> {
        match self.objects.get(line.word(GRAPH)?) {
            Some(&Object::Graph(graph)) => Ok(graph),
            _ => Err(line.wrong(GRAPH)),
        }
    }

    fn exec(&self, line: &mut Line<'_>) -> Result<Handle, ParseError> {
        match self.objects.get(line.word(EXEC)?) {
            Some(&Object::Exec(exec)) => Ok(exec),
            _ => Err(line.wrong(EXEC)),
        }
    }

    fn node(&self, line: &mut Line<'_>) -> Result<Handle, ParseError> {
        match self.objects.get(line.word(NODE)?) {
            Some(&Object::Node(node)) => Ok(node),
            _ => Err(line.wrong(NODE)),
        }
    }

    fn nodes(&self, line: &mut Line<'_>) -> Result<Vec<Handle>, ParseError> {
        let mut nodes = Vec::new();
        while line.peek().is_some() {
            nodes.push(self.node(line)?);
        }
        Ok(nodes)
    }

    /// `node G n after=a,b kernel k p`, from `G` on.
    fn node_added(&mut self, line: &mut Line<'_>) -> Result<(&'static str, Action), ParseError> {
        let graph = self.graph(line)?;
        let name = line.word("the node's name")?;
        let node = self.handle(line)?;
        let mut dependencies = Vec::new();
        if let Some(names) = line.peek().and_then(|word| word.strip_prefix("after=")) {
            line.next += 1;
            for name in names.split(',') {
                match self.objects.get(name) {
                    Some(&Object::Node(node)) => dependencies.push(node),
                    _ => return Err(line.wrong("`after=` with nodes declared above")),
                }
            }
        }
        let work = self.node_work(line)?;
        self.objects.insert(name.to_owned(), Object::Node(node));
        let api = match work {
            NodeWork::Kernel { .. } => "cudaGraphAddKernelNode",
            NodeWork::Copy { .. } => "cudaGraphAddMemcpyNode",
            NodeWork::Fill { .. } => "cudaGraphAddMemsetNode",
            NodeWork::Host => "cudaGraphAddHostNode",
            NodeWork::Empty => "cudaGraphAddEmptyNode",
            NodeWork::EventRecord { .. } => "cudaGraphAddEventRecordNode",
            NodeWork::EventWait { .. } => "cudaGraphAddEventWaitNode",
            NodeWork::Allocate { .. } => "cudaGraphAddMemAllocNode",
            NodeWork::Free { .. } => "cudaGraphAddMemFreeNode",
            NodeWork::Child { .. } => "cudaGraphAddChildGraphNode",
            NodeWork::Conditional { .. } | NodeWork::Unknown => "cudaGraphAddNode",
        };
        let action = Action::NodeAdded {
            graph,
            node,
            dependencies,
            work,
        };
        Ok((api, action))
    }

    /// What a node does, to the line's end.
    fn node_work(&mut self, line: &mut Line<'_>) -> Result<NodeWork, ParseError> {
        let expected = "what the node does (kernel, copy, fill, host, empty, record, wait, alloc, \
             free, child, conditional or unknown)";
        Ok(match line.word(expected)? {
            "kernel" => {
                let kernel = self.names.intern(line.word("the kernel's name")?);
                let (pointers, layout_known) = self.parameters(line)?;
                NodeWork::Kernel {
                    kernel,
                    pointers,
                    layout_known,
                }
            }
            "copy" => match self.copied(StreamRef::Legacy, false, line)? {
                Action::Copied {
                    to,
                    from,
                    direction,
                    host,
                    ..
                } => NodeWork::Copy {
                    layers: vec![(to, from)],
                    direction,
                    host,
                },
                _ => return Err(line.wrong("a copy")),
            },
            "fill" => {
                let (target, _, pitch) = self.pointer(line)?;
                let (width, rows) = extent(line)?;
                NodeWork::Fill {
                    to: Region::pitched(target, width, rows, pitch.unwrap_or(width)),
                }
            }
            "host" => NodeWork::Host,
            "empty" => NodeWork::Empty,
            "record" => NodeWork::EventRecord {
                event: self.event(line)?,
            },
            "wait" => NodeWork::EventWait {
                event: self.event(line)?,
            },
            "alloc" => {
                let name = line.word("a pointer's name")?;
                let size: u64 = line.number("a size in bytes")?;
                if size > 1 << 40 {
                    return Err(line.wrong("a size of at most 1 TiB"));
                }
                let address = if line.eat("at") {
                    self.pointer(line)?.0
                } else {
                    let address = self.next_device;
                    self.next_device += size.next_multiple_of(0x1000) + 0x1000;
                    address
                };
                let memory = Memory {
                    address,
                    size,
                    host: false,
                    asked: HostMemory::Unasked,
                };
                self.memory.insert(name.to_owned(), memory);
                NodeWork::Allocate { address, size }
            }
            "free" => NodeWork::Free {
                address: self.pointer(line)?.0,
            },
            "child" => NodeWork::Child {
                graph: self.graph(line)?,
            },
            "conditional" => {
                let mut bodies = Vec::new();
                while line.peek().is_some() {
                    bodies.push(self.graph(line)?);
                }
                NodeWork::Conditional { bodies }
            }
            "unknown" => NodeWork::Unknown,
            _ => return Err(line.wrong(expected)),
        })
    }
}

/// A kernel's parameters.
pub(super) type Parameters = (SmallVec<[crate::Pointer; 6]>, bool);

#[cfg(test)]
mod tests {
    use crate::text::Program;
    use crate::{Action, NodeWork};

    fn actions(text: &str) -> Vec<Action> {
        let program = Program::parse(text).unwrap_or_else(|error| panic!("{error}"));
        let operations = program.operations();
        operations
            .map(|operation| operation.action.clone())
            .collect()
    }

    #[test]
    fn a_capture_has_its_lines() {
        let actions = actions(
            "stream S nonblocking\ncapture S\nlaunch k S\nend_capture S G\ninstantiate G X\n\
             graph_launch S X\ndestroy G\ndestroy X",
        );
        let Action::CaptureEnded { graph, .. } = actions[3] else {
            panic!("{:?}", actions[3])
        };
        assert!(graph.0 != 0);
        let Action::GraphInstantiated {
            exec, graph: of, ..
        } = actions[4]
        else {
            panic!("{:?}", actions[4])
        };
        assert_eq!(of, graph);
        assert!(
            matches!(actions[5], Action::GraphLaunched { exec: launched, .. } if launched == exec)
        );
        assert_eq!(actions[6], Action::GraphDestroyed { graph });
        assert_eq!(actions[7], Action::ExecDestroyed { exec });
    }

    #[test]
    fn a_graph_is_built_node_by_node() {
        let actions = actions(
            "event E\ngraph G\nnode G a alloc p 64\nnode G b after=a kernel k p read:p+8\n\
             node G c after=a,b copy p -> p+32 16\nnode G d fill p 16x2\nnode G e record E\n\
             node G f child G\nnode G g conditional G\nedges G d e e f\nno_edges G d e\nset b kernel k ?\n\
             remove c\nclone G H\nfind H b hb\ninstantiate H X auto_free\nset X hb empty\n\
             disable X hb\nupdate X G\nnode G z free p",
        );
        let Action::NodeAdded {
            ref dependencies,
            work: NodeWork::Copy { ref layers, .. },
            ..
        } = actions[4]
        else {
            panic!("{:?}", actions[4])
        };
        assert_eq!((dependencies.len(), layers.len()), (2, 1));
        assert!(
            matches!(&actions[9], Action::EdgesChanged { pairs, added: true, .. } if pairs.len() == 2)
        );
        assert!(matches!(actions[11], Action::NodeChanged { exec, .. } if exec.0 == 0));
        assert!(matches!(
            actions[15],
            Action::GraphInstantiated {
                auto_free: true,
                ..
            }
        ));
        assert!(
            matches!(actions[16], Action::NodeChanged { exec, work: NodeWork::Empty, .. } if exec.0 != 0)
        );
        assert!(matches!(
            actions[17],
            Action::NodeEnabled { enabled: false, .. }
        ));
    }

    #[test]
    fn faults_say_what_was_expected() {
        let fault = |text: &str| Program::parse(text).expect_err("a fault").to_string();
        let message = fault("graph G\nnode G n after=m empty");
        assert!(
            message.starts_with("2:10: expected `after=` with nodes"),
            "{message}"
        );
        let message = fault("graph G\nnode G n run");
        assert!(
            message.starts_with("2:10: expected what the node does"),
            "{message}"
        );
        let message = fault("instantiate G X");
        assert!(
            message.starts_with("1:13: expected a graph declared above"),
            "{message}"
        );
    }
}
