//! Every form of a report against the schema of its format.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event as Xml};
use serde_json::{Value, json};
use streamcheck_engine::{BlindSpot, Lane, Role, Timeline, TimelineEdge, TimelineOperation};
use streamcheck_model::StackId;
use streamcheck_report::json::{
    Allocation, Event, Finding, ProcessFacts, Report, SCHEMA, Stream, Summary, Tool,
};
use streamcheck_report::{Context, FailOn, Format, Frame};

/// Text with what a format could trip over.
const ODD: &str = "a<b>&\"c'\u{1b}[31m\u{0}\u{fffe}\u{2028}%41 ::error::\r\n]]>--> 語 \u{1f600}";

/// A report in which every field is given; a new one does not compile without it.
fn whole() -> Report {
    let process = |pid, rank| ProcessFacts {
        pid,
        exe: "/opt/my app/train".to_owned(),
        argv: vec!["train".to_owned(), ODD.to_owned()],
        host: "node1".to_owned(),
        rank: Some(rank),
    };
    let frame = |file: &str, line| Frame {
        function: Some("void run<float>(float*)".to_owned()),
        file: Some(file.to_owned()),
        line: Some(line),
        module: Some("/opt/my app/train".to_owned()),
        offset: Some(0x1234),
    };
    let event = |role, kernel: Option<&str>, stack| Event {
        role,
        api: "cudaLaunchKernel".to_owned(),
        stream: Some("stream 1 (0x55d0, non-blocking)".to_owned()),
        kernel: kernel.map(str::to_owned),
        device: 0,
        thread: 1,
        sequence: 4,
        stack,
    };
    let finding = Finding {
        rule: "SC101".to_owned(),
        name: "use-before-alloc".to_owned(),
        level: "error".to_owned(),
        count: 3,
        process: Some(1),
        ranks: vec![0, 1],
        message: ODD.to_owned(),
        ordering: "nothing orders them".to_owned(),
        help: "call cudaStreamWaitEvent(b, e)".to_owned(),
        allocation: Some(Allocation {
            address: "0x7f00".to_owned(),
            size: 4096,
            kind: "stream-ordered".to_owned(),
        }),
        events: vec![
            event(Role::Allocation, None, vec![frame("/src/a b.cu", 3)]),
            event(
                Role::Use,
                Some(ODD),
                vec![frame("lib.cu", 9), frame("/elsewhere/ü.cu", 1)],
            ),
            event(Role::Free, None, vec![Frame::default()]),
        ],
        streams: vec![Stream {
            name: "stream 1 (0x55d0, non-blocking)".to_owned(),
            flags: "non-blocking".to_owned(),
            device: 0,
            created: vec![frame("/src/main.cu", 1)],
        }],
        timeline: Timeline {
            lanes: vec![Lane {
                name: "host".to_owned(),
                device: 0,
            }],
            operations: vec![TimelineOperation {
                sequence: 4,
                lane: 0,
                api: "cudaLaunchKernel".to_owned(),
                kernel: Some("k".to_owned()),
                place: Some("a b.cu:3".to_owned()),
                stack: StackId::default(),
            }],
            edges: vec![TimelineEdge {
                from: 3,
                to: 4,
                reason: "event wait".to_owned(),
            }],
        },
        suppressed: None,
        baseline: false,
    };
    let bare = Finding {
        rule: "SC999".to_owned(),
        level: "warning".to_owned(),
        process: None,
        ranks: Vec::new(),
        ordering: String::new(),
        allocation: None,
        events: Vec::new(),
        streams: Vec::new(),
        timeline: Timeline::default(),
        ..finding.clone()
    };
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        tool: Tool {
            name: "streamcheck".to_owned(),
            version: "0.1.0".to_owned(),
        },
        process: process(10, 0),
        processes: vec![process(10, 0), process(11, 1), process(12, 2)],
        summary: Summary {
            operations: 9,
            launches: 3,
            copies: 1,
            allocations: 2,
            streams: 2,
            errors: 0,
            warnings: 0,
            suppressed: 0,
            blind_spots: vec![BlindSpot {
                kind: "unknown-kernel-parameters".to_owned(),
                count: 2,
                example: ODD.to_owned(),
            }],
        },
        findings: vec![
            finding.clone(),
            Finding {
                suppressed: Some(ODD.to_owned()),
                ..finding.clone()
            },
            Finding {
                baseline: true,
                ..finding
            },
            bare,
        ],
    };
    report.count_findings();
    report
}

/// A report of nothing, as it is before the first call.
fn empty() -> Report {
    Report {
        processes: Vec::new(),
        summary: Summary::default(),
        findings: Vec::new(),
        ..whole()
    }
}

/// A clean run of one process.
fn clean() -> Report {
    Report {
        processes: Vec::new(),
        findings: Vec::new(),
        ..whole()
    }
}

fn context() -> Context {
    Context {
        fail_on: FailOn::Error,
        here: PathBuf::from("/src/build"),
        root: PathBuf::from("/src"),
        exit_code: Some(66),
        baseline: false,
    }
}

fn read(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(path).expect("it is in the repository");
    serde_json::from_str(&text).expect("JSON")
}

fn validator(schema: &Value) -> Validator {
    jsonschema::options()
        .should_validate_formats(true)
        .build(schema)
        .expect("a schema")
}

fn complaints(validator: &Validator, value: &Value) -> Vec<String> {
    validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

const OURS: &str = "../../docs/schema/streamcheck-report-1.json";

/// The schema with a ban on every field that it does not name.
fn closed(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let mut map: serde_json::Map<_, _> = map
                .iter()
                .map(|(key, value)| (key.clone(), closed(value)))
                .collect();
            if map.get("type") == Some(&json!("object")) {
                map.insert("additionalProperties".to_owned(), json!(false));
            }
            Value::Object(map)
        }
        Value::Array(list) => list.iter().map(closed).collect(),
        other => other.clone(),
    }
}

/// The names of all fields of a value, at any depth.
fn fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                names.insert(name.clone());
                fields(value, names);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| fields(value, names)),
        _ => {}
    }
}

/// The names of all fields that a schema describes, and that each has a description.
fn described(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                for (name, property) in properties {
                    let words = property["description"].as_str().or_else(|| {
                        // What a definition says is said.
                        property.get("$ref").and(Some("a reference"))
                    });
                    assert!(words.is_some_and(|text| !text.is_empty()), "{name}");
                    names.insert(name.clone());
                }
            }
            map.values().for_each(|value| described(value, names));
        }
        Value::Array(list) => list.iter().for_each(|value| described(value, names)),
        _ => {}
    }
}

#[test]
fn the_json_report_is_what_its_schema_describes() {
    let schema = read(OURS);
    for report in [whole(), empty(), clean()] {
        let text = Format::Json.render(&report, &context());
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(complaints(&validator(&schema), &value), [""; 0]);
        assert_eq!(complaints(&validator(&closed(&schema)), &value), [""; 0]);
    }
    let (mut written, mut promised) = (BTreeSet::new(), BTreeSet::new());
    fields(&serde_json::to_value(whole()).expect("JSON"), &mut written);
    described(&schema, &mut promised);
    assert_eq!(written, promised);
}

#[test]
fn the_schema_lets_later_fields_pass_and_wrong_ones_not() {
    let validator = validator(&read(OURS));
    let mut later = serde_json::to_value(whole()).expect("JSON");
    later["findings"][0]["a_field_of_2031"] = json!(1);
    assert!(validator.is_valid(&later));
    for (place, wrong) in [
        ("/findings/0/level", json!("info")),
        ("/findings/0/count", json!(0)),
        ("/findings/0/events/0/role", json!("bystander")),
        ("/summary/operations", json!(-1)),
        ("/schema", json!("streamcheck-report/2")),
    ] {
        let mut report = serde_json::to_value(whole()).expect("JSON");
        *report.pointer_mut(place).expect("it is there") = wrong;
        assert!(!validator.is_valid(&report), "{place}");
    }
}

#[test]
fn sarif_follows_the_standards_schema() {
    let validator = validator(&read("tests/schemas/sarif-2.1.0.json"));
    for report in [whole(), empty(), clean()] {
        let text = Format::Sarif.render(&report, &context());
        let log: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(complaints(&validator, &log), [""; 0]);
        assert_eq!(
            log["runs"][0]["results"].as_array().map(Vec::len),
            Some(report.findings.len())
        );
    }
    let text = Format::Sarif.render(&whole(), &context());
    let wrong = text.replace("\"startLine\": 3", "\"startLine\": 0");
    assert_ne!(text, wrong);
    assert!(!validator.is_valid(&serde_json::from_str(&wrong).expect("JSON")));
}

/// An element of a JUnit file: its name, attributes and children.
#[derive(Debug, Default)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Element>,
}

impl Element {
    fn of(start: &BytesStart<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        Self {
            name: text(start.name().as_ref()),
            attributes: start
                .attributes()
                .map(|attribute| {
                    let attribute = attribute.expect("well formed");
                    let value = attribute
                        .normalized_value(quick_xml::XmlVersion::Implicit1_0)
                        .expect("well formed");
                    (text(attribute.key.as_ref()), value.into_owned())
                })
                .collect(),
            children: Vec::new(),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str) -> usize {
        self.get(name)
            .and_then(|n| n.parse().ok())
            .expect("a number")
    }

    fn named(&self, name: &str) -> Vec<&Self> {
        self.children.iter().filter(|c| c.name == name).collect()
    }
}

/// Parses a file, and checks that it is well formed and holds only characters that XML has.
fn parse(text: &str) -> Element {
    for c in text.chars() {
        let legal = matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
        assert!(legal, "{c:?} is no character of XML");
    }
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_comments = true;
    let mut open = vec![Element::default()];
    loop {
        match reader.read_event().expect("well formed") {
            Xml::Start(start) => open.push(Element::of(&start)),
            Xml::Empty(start) => {
                let element = Element::of(&start);
                open.last_mut().expect("a root").children.push(element);
            }
            Xml::End(_) => {
                let element = open.pop().expect("it was opened");
                open.last_mut().expect("a root").children.push(element);
            }
            Xml::Eof => break,
            _ => {}
        }
    }
    assert_eq!(open.len(), 1, "all is closed");
    let mut roots = open.remove(0).children;
    assert_eq!(roots.len(), 1);
    roots.remove(0)
}

/// An element's name, the attributes that it must have, those that it may have, and its
/// children in their order.
type ElementRule<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a [&'a str]);

/// The rules of the schema that Jenkins' xUnit plugin publishes for JUnit (junit-10.xsd):
/// which elements and attributes there are and which must be there.
fn check_junit(root: &Element) {
    let rules: [ElementRule<'_>; 9] = [
        (
            "testsuites",
            &[],
            &["name", "time", "tests", "failures", "errors"],
            &["testsuite"],
        ),
        (
            "testsuite",
            &["name", "tests", "failures", "errors"],
            &[
                "name",
                "tests",
                "failures",
                "errors",
                "group",
                "time",
                "skipped",
                "timestamp",
                "hostname",
                "id",
                "package",
                "file",
                "log",
                "url",
            ],
            &["properties", "testcase", "system-out", "system-err"],
        ),
        ("properties", &[], &[], &["property"]),
        ("property", &["name", "value"], &["name", "value"], &[]),
        (
            "testcase",
            &["name", "classname"],
            &["name", "time", "classname", "group"],
            &["skipped", "error", "failure", "system-out", "system-err"],
        ),
        ("skipped", &[], &["type", "message"], &[]),
        ("failure", &[], &["type", "message"], &[]),
        ("system-out", &[], &[], &[]),
        ("system-err", &[], &[], &[]),
    ];
    let (_, required, allowed, children) = rules
        .iter()
        .find(|(name, ..)| *name == root.name)
        .unwrap_or_else(|| panic!("<{}> is no element", root.name));
    for name in *required {
        assert!(root.get(name).is_some(), "<{}> has no {name}", root.name);
    }
    for (name, _) in &root.attributes {
        assert!(allowed.contains(&&**name), "<{}> has {name}", root.name);
    }
    let places: Vec<usize> = root
        .children
        .iter()
        .map(|child| {
            let place = children.iter().position(|name| *name == child.name);
            place.unwrap_or_else(|| panic!("<{}> in <{}>", child.name, root.name))
        })
        .collect();
    assert!(places.is_sorted(), "the children of <{}>", root.name);
    root.children.iter().for_each(check_junit);
}

#[test]
fn junit_keeps_the_formats_rules_and_counts_right() {
    for report in [whole(), empty(), clean()] {
        let root = parse(&Format::Junit.render(&report, &context()));
        assert_eq!(root.name, "testsuites");
        check_junit(&root);
        let mut totals = [0; 3];
        for suite in root.named("testsuite") {
            let cases = suite.named("testcase");
            let with = |name: &str| cases.iter().filter(|c| !c.named(name).is_empty()).count();
            let counts = [cases.len(), with("failure"), with("skipped")];
            let said = ["tests", "failures", "skipped"].map(|name| suite.number(name));
            assert_eq!(counts, said);
            assert!(counts[0] > 0, "an empty suite shows nowhere");
            for (total, count) in totals.iter_mut().zip(counts) {
                *total += count;
            }
            let names: BTreeSet<_> = cases
                .iter()
                .map(|c| (c.get("classname"), c.get("name")))
                .collect();
            assert_eq!(names.len(), cases.len(), "names are unique");
        }
        assert_eq!(totals[0], root.number("tests"));
        assert_eq!(totals[1], root.number("failures"));
    }
}

#[test]
fn a_page_is_one_for_every_report() {
    for report in [whole(), empty(), clean()] {
        let page = Format::Html.render(&report, &context());
        assert!(page.starts_with("<!DOCTYPE html>"), "{page:.60}");
    }
}
