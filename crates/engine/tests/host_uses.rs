//! What the engine tells of device work's uses of host memory, for whoever guards it.

use streamcheck_engine::{Engine, HostUse, Levels};
use streamcheck_model::text::Program;
use streamcheck_model::{Action, Element, MemoryKind, Operation, Per};

/// Runs a program line by line; the uses that each told, and which of all are over at its end.
struct Run {
    engine: Engine,
    told: Vec<Vec<HostUse>>,
}

impl Run {
    fn new(text: &str) -> Self {
        let program = Program::parse(text).unwrap();
        let mut engine = Engine::new(Levels::default());
        *engine.names_mut() = program.names.clone();
        engine.watch_host();
        let told = program
            .steps
            .iter()
            .map(|step| {
                for operation in &step.operations {
                    engine.apply(operation);
                }
                engine.take_host_uses()
            })
            .collect();
        Self { engine, told }
    }

    /// What the last line told, in short.
    fn last(&self) -> Vec<String> {
        self.told.last().unwrap().iter().map(in_short).collect()
    }
}

/// `pinned+8 64 reads`, or `managed+8 writes from here` where a kernel does.
fn in_short(used: &HostUse) -> String {
    let offset = used.region.address - used.block.0;
    let does = match (used.unknown, used.writes) {
        (true, _) => "is used somehow",
        (false, true) => "writes",
        (false, false) => "reads",
    };
    let kind = used.kind.label();
    match used.pointer {
        true => format!("{kind}+{offset} {does} from here"),
        false => format!(
            "{kind}+{offset} {} {does}",
            used.region.end() - used.region.address
        ),
    }
}

const MEMORY: &str = "stream S nonblocking\nstream T nonblocking\nh = malloc_host 8192\n\
    r = pageable 8192\nregister r\nm = malloc_managed 8192\np = malloc 8192\nu = pageable 8192\n";

fn last(program: &str) -> Vec<String> {
    Run::new(&format!("{MEMORY}{program}")).last()
}

#[test]
fn copies_and_fills_tell_their_bytes() {
    assert_eq!(last("copy S h+8 -> p 64"), ["pinned+8 64 reads"]);
    assert_eq!(last("copy S p -> r 64"), ["registered+0 64 writes"]);
    assert_eq!(last("fill S m+16 32"), ["managed+16 32 writes"]);
    assert_eq!(last("fill S h/64 16x4"), ["pinned+0 208 writes"]);
    assert_eq!(
        last("copies S h -> p 64, p+64 -> r 64"),
        ["pinned+0 64 reads", "registered+0 64 writes"]
    );
    assert_eq!(
        last("copy_layers S h -> p 16x4 h2d 2 1024"),
        ["pinned+0 64 reads", "pinned+1024 64 reads"]
    );
}

#[test]
fn kernels_tell_their_pointers() {
    assert_eq!(
        last("launch k S h+64 read:m p update:r struct:r doubtful:r r@5"),
        [
            "pinned+64 writes from here",
            "managed+0 reads from here",
            "registered+0 is used somehow from here",
            "registered+0 is used somehow from here",
        ]
    );
    // The end of a range is no use of what begins there.
    assert_eq!(
        last("e = malloc_host 64 at h+8192\nlaunch k S read:h read:e"),
        ["pinned+0 reads from here"]
    );
}

#[test]
fn what_is_over_on_return_or_out_of_reach_is_not_told() {
    for quiet in [
        "copy_sync h -> p 64",
        "copy_sync p -> h 64",
        "copies S during h -> p 64",
        "copy S u -> p 64",
        "copies S u -> p 64",
        "fill_sync h 64",
        "launch k S p",
        "write_value S h 1",
        "enqueue S",
        "capture S\ncopy S h -> p 64",
        "wait_value S h >= 1\ncopy S r -> p 64",
    ] {
        assert_eq!(last(quiet), [] as [String; 0], "{quiet}");
    }
}

#[test]
fn a_use_is_over_once_the_host_knows() {
    let begun = "copy S h -> p 64\n";
    let over = |rest: &str| {
        let run = Run::new(&format!("{MEMORY}{begun}{rest}"));
        let used = run.told.iter().flatten().next().unwrap();
        run.engine.is_over(used)
    };
    assert!(!over("sync T"));
    assert!(!over("event E\nrecord E S\nwait T E"));
    assert!(over("sync S"));
    assert!(over("query S"));
    assert!(over("event E\nrecord E S\nsync E"));
    assert!(over("event E\nrecord E S\nwait T E\nsync T"));
    assert!(over("hostfunc S f\nhostfunc_runs f"));
    assert!(over("sync device"));
}

#[test]
fn the_version_changes_with_what_is_over() {
    let program = Program::parse(&format!(
        "{MEMORY}copy S h -> p 64\nlaunch k T p\nsync T\nquery S\nquery S"
    ))
    .unwrap();
    let mut engine = Engine::new(Levels::default());
    engine.watch_host();
    let mut uses = Vec::new();
    let mut version = engine.host_version();
    let mut changes = Vec::new();
    for step in &program.steps {
        for operation in &step.operations {
            engine.apply(operation);
        }
        uses.append(&mut engine.take_host_uses());
        let over = uses.iter().filter(|used| engine.is_over(used)).count();
        uses.retain(|used| !engine.is_over(used));
        let changed = engine.host_version() != version;
        version = engine.host_version();
        assert!(over == 0 || changed, "{}", step.text);
        if changed {
            changes.push((step.text.as_str(), over));
        }
    }
    assert_eq!(changes, [("sync T", 0), ("query S", 1)]);
}

const GRAPH: &str =
    "capture S\nlaunch k S m+16\ncopy S h -> p 64\nend_capture S G\ninstantiate G X\n";

#[test]
fn every_launch_of_a_graph_tells_what_its_nodes_touch() {
    let run = Run::new(&format!(
        "{MEMORY}{GRAPH}graph_launch S X\nsync S\ngraph_launch S X\ngraph_launch S X"
    ));
    let launches: Vec<Vec<String>> = run
        .told
        .iter()
        .map(|told| told.iter().map(in_short).collect::<Vec<_>>())
        .filter(|told| !told.is_empty())
        .collect();
    // By their addresses.
    let expected = ["pinned+0 64 reads", "managed+16 writes from here"];
    assert_eq!(launches, [expected, expected, expected]);
    let first = run.told.iter().flatten().next().unwrap();
    assert!(run.engine.is_over(first));
    assert!(!run.engine.is_over(&run.told.last().unwrap()[0]));
}

#[test]
fn a_node_that_is_off_or_whose_memory_is_gone_tells_nothing() {
    let graph = "graph G\nnode G a fill h 64\nnode G b fill m 64\ninstantiate G X\n";
    assert_eq!(
        last(&format!("{graph}disable X a\ngraph_launch S X")),
        ["managed+0 64 writes"]
    );
    assert_eq!(
        last(&format!("{graph}free_host h\ngraph_launch S X")),
        ["managed+0 64 writes"]
    );
}

#[test]
fn a_use_tells_its_block_and_its_element() {
    let program = Program::parse(&format!("{MEMORY}launch k S h+64")).unwrap();
    let mut engine = Engine::new(Levels::default());
    engine.watch_host();
    for operation in program.operations() {
        let mut operation: Operation = operation.clone();
        if let Action::Launched { pointers, .. } = &mut operation.action {
            pointers[0].element = Element::new(Per::Unknown, 0, 16);
        }
        engine.apply(&operation);
    }
    let used = engine.take_host_uses()[0];
    assert_eq!((used.element.bytes(), used.kind), (16, MemoryKind::Pinned));
    assert_eq!(
        (used.region.address - used.block.0, used.block.1),
        (64, 8192)
    );
    assert!(engine.take_host_uses().is_empty());
}

#[test]
fn nobody_asks_and_nothing_is_kept() {
    let program = Program::parse(&format!("{MEMORY}copy S h -> p 64")).unwrap();
    let mut engine = Engine::new(Levels::default());
    for operation in program.operations() {
        engine.apply(operation);
    }
    assert!(engine.take_host_uses().is_empty());
}
