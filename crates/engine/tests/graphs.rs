//! Graphs at the limits of what is kept.

use std::fmt::Write as _;

use streamcheck_engine::{Engine, Levels};
use streamcheck_model::text::Program;

/// The rules that a program breaks, and whether the blind spot was counted.
fn judge(text: &str, blind_spot: &str) -> (Vec<String>, bool) {
    let program = Program::parse(text).unwrap();
    let mut engine = Engine::new(Levels::default());
    *engine.names_mut() = program.names.clone();
    let operations = program.steps.iter().flat_map(|step| &step.operations);
    let found = operations.flat_map(|operation| engine.apply(operation));
    let found = found.map(|finding| finding.rule.to_string()).collect();
    let counted = engine
        .summary()
        .blind_spots
        .iter()
        .any(|spot| spot.kind == blind_spot);
    (found, counted)
}

fn nested(children: usize) -> String {
    let mut text = String::from("stream S nonblocking\np = malloc 64\n");
    text.push_str("graph G0\nnode G0 n0 kernel k p\n");
    for child in 1..=children {
        let before = child - 1;
        let _ = write!(
            text,
            "graph G{child}\nnode G{child} n{child} child G{before}\ndestroy G{before}\n"
        );
    }
    let _ = write!(text, "instantiate G{children} X\ngraph_launch S X\n");
    let _ = write!(text, "destroy X\ndestroy G{children}\n");
    text
}

#[test]
fn children_without_end_are_cut_off() {
    let (found, counted) = judge(&nested(40_000), "graph-too-deep");
    assert!(found.is_empty(), "{found:?}");
    assert!(counted);
}

#[test]
fn children_of_children_are_known() {
    let (found, counted) = judge(&nested(60), "graph-too-deep");
    assert!(found.is_empty(), "{found:?}");
    assert!(!counted);
}

/// Of each graph the one before is a child twice: to follow each would never end.
#[test]
fn a_child_is_gone_through_once() {
    let mut text = String::from("graph G0\nnode G0 n0 empty\n");
    for child in 1..50 {
        let before = child - 1;
        let _ = write!(
            text,
            "graph G{child}\nnode G{child} a{child} child G{before}\nnode G{child} b{child} child G{before}\n"
        );
    }
    text.push_str("graph Z\n");
    // More than are kept before the unused are looked for.
    for block in 0..2_500 {
        let _ = write!(
            text,
            "p{block} = malloc 64\nnode Z z{block} kernel k p{block}\n"
        );
    }
    assert!(judge(&text, "").0.is_empty());
}
