//! SARIF 2.1.0, for code scanning.
//!
//! Files below the root are named relative to it, as `SRCROOT`. A result's fingerprint is
//! what a baseline knows a finding by: no line, no address, no number that changes from run
//! to run.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde_json::{Value, json};
use serde_sarif::sarif::{
    Address, ArtifactLocation, CodeFlow, Invocation, Location, LogicalLocation, Message,
    MultiformatMessageString, Notification, PhysicalLocation, PropertyBag, Region,
    ReportingConfiguration, ReportingDescriptor, ReportingDescriptorReference,
    Result as SarifResult, ResultLevel, ResultProvenance, Run, Sarif, Stack, StackFrame,
    Suppression, ThreadFlow, ThreadFlowLocation, Tool, ToolComponent,
};
use streamcheck_engine::{BlindSpot, Level, RULES, Rule};
use xxhash_rust::xxh3::xxh3_128;

use crate::json::{Event, Finding, ProcessFacts, Report};
use crate::places::{Source, call, fault, pointed_at, sentences, source_line};
use crate::reporter::unseen;
use crate::{Context, Frame, baseline, rule_url};

/// Where the standard's schema is.
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The root of the sources, in `uriBaseId`.
const ROOT: &str = "SRCROOT";

/// How a finding is known again, under this name in `partialFingerprints`.
const FINGERPRINT: &str = "streamcheckFinding/v1";

/// What a path in a URI holds as it is (RFC 3986, `pchar` without `:`, which would make a scheme of a
/// relative path's beginning).
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'+')
    .remove(b'@')
    .remove(b'=');

/// The report as a whole file.
pub(crate) fn log(report: &Report, context: &Context) -> String {
    let mut run = Run::builder()
        .tool(Tool::builder().driver(driver(report)).build())
        .build();
    run.original_uri_base_ids = Some(BTreeMap::from([(
        ROOT.to_owned(),
        ArtifactLocation {
            // A folder's URI ends with a slash, or names are taken relative to its parent.
            uri: Some(format!(
                "{}/",
                file_uri(&context.root).trim_end_matches('/')
            )),
            ..ArtifactLocation::default()
        },
    )]));
    run.invocations = Some(invocations(report, context));
    let mut alike = HashMap::new();
    run.results = Some(
        report
            .findings
            .iter()
            .map(|finding| result(finding, report, context, &mut alike))
            .collect(),
    );
    let seen = &report.summary;
    run.properties = Some(properties([
        ("operations", json!(seen.operations)),
        ("launches", json!(seen.launches)),
        ("copies", json!(seen.copies)),
        ("allocations", json!(seen.allocations)),
        ("streams", json!(seen.streams)),
    ]));
    let log = Sarif::builder()
        .schema(SCHEMA.to_owned())
        .version(json!("2.1.0"))
        .runs(vec![run])
        .build();
    // Strings, numbers and lists only: nothing here can fail to serialize.
    let mut text = serde_json::to_string_pretty(&log).unwrap_or_default();
    text.push('\n');
    text
}

fn driver(report: &Report) -> ToolComponent {
    let mut driver = ToolComponent::builder()
        .name(report.tool.name.clone())
        .build();
    driver.semantic_version = Some(report.tool.version.clone());
    driver.information_uri = Some(env!("CARGO_PKG_REPOSITORY").to_owned());
    driver.rules = Some(RULES.iter().map(rule).collect());
    let spots = &report.summary.blind_spots;
    driver.notifications = Some(
        spots
            .iter()
            .map(|spot| ReportingDescriptor::builder().id(spot.kind.clone()).build())
            .collect(),
    );
    driver
}

fn rule(rule: &Rule) -> ReportingDescriptor {
    let code = rule.code.to_string();
    let both = |text: &str, markdown: Option<String>| {
        let mut both = MultiformatMessageString::builder()
            .text(text.to_owned())
            .build();
        both.markdown = markdown;
        both
    };
    let level = match rule.level {
        Level::Error => "error",
        Level::Warning | Level::Off => "warning",
    };
    let mut descriptor = ReportingDescriptor::builder().id(code.clone()).build();
    descriptor.name = Some(pascal_case(rule.name));
    descriptor.short_description = Some(both(rule.name, None));
    descriptor.full_description = Some(both(rule.summary, None));
    descriptor.help = Some(both(rule.page, Some(rule.page.to_owned())));
    descriptor.help_uri = Some(rule_url(&code));
    descriptor.default_configuration = Some(ReportingConfiguration {
        enabled: Some(rule.level != Level::Off),
        level: Some(json!(level)),
        ..ReportingConfiguration::default()
    });
    descriptor.properties = Some(PropertyBag {
        tags: Some(["correctness", "cuda"].map(str::to_owned).to_vec()),
        additional_properties: BTreeMap::from([
            ("precision".to_owned(), json!("high")),
            ("problem.severity".to_owned(), json!(level)),
        ]),
    });
    descriptor
}

/// `UseBeforeAlloc`, as the standard wants rules' names.
fn pascal_case(name: &str) -> String {
    name.split('-')
        .map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_ascii_uppercase() + rest
        })
        .collect()
}

/// One for each process that was watched, in the report's order.
fn invocations(report: &Report, context: &Context) -> Vec<Invocation> {
    let processes = report.watched();
    let nothing = report.summary.operations == 0;
    let mut invocations: Vec<Invocation> = processes
        .iter()
        .map(|process| invocation(process, !nothing))
        .collect();
    // The exit code is that of the process that the command started.
    let main = processes
        .iter()
        .position(|process| process.pid == report.process.pid);
    if let Some(main) = main.and_then(|main| invocations.get_mut(main)) {
        main.exit_code = context.exit_code.map(i64::from);
    }
    if let Some(first) = invocations.first_mut() {
        let mut told: Vec<Notification> =
            report.summary.blind_spots.iter().map(blind_spot).collect();
        if nothing {
            let message = message("no CUDA call was seen, so nothing was checked");
            let mut notification = Notification::builder().message(message).build();
            notification.level = Some(json!("error"));
            told.insert(0, notification);
        }
        first.tool_execution_notifications = Some(told);
    }
    invocations
}

fn invocation(process: &ProcessFacts, successful: bool) -> Invocation {
    let mut invocation = Invocation::builder()
        .execution_successful(successful)
        .build();
    invocation.executable_location = Some(artifact(Source::Outside(process.exe.clone().into())));
    invocation.arguments = Some(process.argv.iter().skip(1).cloned().collect());
    invocation.machine = Some(process.host.clone());
    invocation.process_id = Some(i64::from(process.pid));
    invocation.properties = process.rank.map(|rank| properties([("rank", json!(rank))]));
    invocation
}

fn blind_spot(spot: &BlindSpot) -> Notification {
    let text = unseen(spot);
    let mut notification = Notification::builder().message(message(&text)).build();
    notification.level = Some(json!("note"));
    notification.descriptor = Some(ReportingDescriptorReference {
        id: Some(spot.kind.clone()),
        ..ReportingDescriptorReference::default()
    });
    notification
}

fn result(
    finding: &Finding,
    report: &Report,
    context: &Context,
    alike: &mut HashMap<String, usize>,
) -> SarifResult {
    let mut result = SarifResult::builder()
        .message(message(&sentences(finding).join("\n")))
        .build();
    result.rule_id = Some(finding.rule.clone());
    result.rule_index = RULES
        .iter()
        .position(|rule| rule.code.to_string() == finding.rule)
        .map(|place| place as i64);
    result.level = Some(match finding.level.parse() {
        Ok(Level::Error) => ResultLevel::Error,
        _ => ResultLevel::Warning,
    });
    result.occurrence_count = Some(i64::try_from(finding.count).unwrap_or(i64::MAX));

    result.locations = Some(vec![main_location(finding, report, context)]);
    result.related_locations = Some(
        finding
            .events
            .iter()
            .enumerate()
            .map(|(place, event)| Location {
                id: Some(place as i64),
                ..located(event, best_frame(event, context), context)
            })
            .collect(),
    );
    result.code_flows = code_flow(finding, context).map(|flow| vec![flow]);
    result.stacks = Some(
        finding
            .events
            .iter()
            .filter_map(|e| stack(e, context))
            .collect(),
    );
    result.partial_fingerprints = Some(BTreeMap::from([(
        FINGERPRINT.to_owned(),
        fingerprint(finding, alike),
    )]));
    result.suppressions = Some(
        finding
            .suppressed
            .as_deref()
            .map(suppression)
            .into_iter()
            .collect(),
    );
    result.baseline_state = (context.baseline || finding.baseline)
        .then(|| json!(if finding.baseline { "unchanged" } else { "new" }));
    result.provenance = finding.process.map(|place| ResultProvenance {
        invocation_index: Some(place as i64),
        ..ResultProvenance::default()
    });
    if !finding.ranks.is_empty() {
        result.properties = Some(properties([("ranks", json!(finding.ranks))]));
    }
    result
}

/// The call at fault, at the line that a person can change.
fn main_location(finding: &Finding, report: &Report, context: &Context) -> Location {
    let main = match pointed_at(finding, context) {
        Some((event, frame)) => located(event, Some(frame), context),
        None => match finding.events.get(fault(&finding.events)) {
            Some(event) => located(event, event.stack.first(), context),
            None => Location::default(),
        },
    };
    Location {
        physical_location: main.physical_location.or_else(|| {
            // Code scanning takes no result without a file.
            Some(PhysicalLocation {
                artifact_location: Some(artifact(Source::Outside(
                    report.process.exe.clone().into(),
                ))),
                ..PhysicalLocation::default()
            })
        }),
        ..main
    }
}

/// The calls of a finding as steps, in their order.
fn code_flow(finding: &Finding, context: &Context) -> Option<CodeFlow> {
    let at_fault = fault(&finding.events);
    let steps: Vec<ThreadFlowLocation> = finding
        .events
        .iter()
        .enumerate()
        .map(|(place, event)| ThreadFlowLocation {
            location: Some(located(event, best_frame(event, context), context)),
            stack: stack(event, context),
            execution_order: Some(place as i64 + 1),
            importance: Some(json!(if place == at_fault {
                "essential"
            } else {
                "important"
            })),
            ..ThreadFlowLocation::default()
        })
        .collect();
    if steps.is_empty() {
        return None;
    }
    let flow = ThreadFlow::builder().locations(steps).build();
    Some(CodeFlow::builder().thread_flows(vec![flow]).build())
}

fn suppression(reason: &str) -> Suppression {
    let mut suppression = Suppression::builder().kind(json!("external")).build();
    suppression.status = Some(json!("accepted"));
    suppression.justification = Some(reason.to_owned());
    suppression
}

/// What a baseline knows a finding by, and its number among those that are alike.
fn fingerprint(finding: &Finding, alike: &mut HashMap<String, usize>) -> String {
    let key = baseline::key(finding);
    let hash = xxh3_128(key.as_bytes());
    let number = alike.entry(key).or_default();
    *number += 1;
    format!("{hash:032x}:{number}")
}

/// The frame of a call to show: in the root if there is one.
fn best_frame<'a>(event: &'a Event, context: &Context) -> Option<&'a Frame> {
    let inside = |frame: &&Frame| {
        source_line(frame)
            .is_some_and(|(file, _)| matches!(context.source(file), Source::Inside(_)))
    };
    event.stack.iter().find(inside).or(event.stack.first())
}

/// A call and its place.
fn located(event: &Event, frame: Option<&Frame>, context: &Context) -> Location {
    Location {
        message: Some(message(&call(event))),
        ..frame.map_or_else(Location::default, |frame| place(frame, context))
    }
}

fn place(frame: &Frame, context: &Context) -> Location {
    let physical = match (source_line(frame), &frame.module) {
        (Some((file, line)), _) => Some(PhysicalLocation {
            artifact_location: Some(artifact(context.source(file))),
            region: Some(Region {
                start_line: Some(i64::from(line)),
                ..Region::default()
            }),
            ..PhysicalLocation::default()
        }),
        (None, Some(module)) => Some(PhysicalLocation {
            artifact_location: Some(artifact(Source::Outside(module.into()))),
            address: frame.offset.map(|offset| Address {
                relative_address: i64::try_from(offset).ok(),
                ..Address::default()
            }),
            ..PhysicalLocation::default()
        }),
        (None, None) => None,
    };
    let function = frame.function.as_ref().map(|function| LogicalLocation {
        fully_qualified_name: Some(function.clone()),
        kind: Some("function".to_owned()),
        ..LogicalLocation::default()
    });
    Location {
        physical_location: physical,
        logical_locations: function.map(|function| vec![function]),
        ..Location::default()
    }
}

fn stack(event: &Event, context: &Context) -> Option<Stack> {
    if event.stack.is_empty() {
        return None;
    }
    let frames: Vec<StackFrame> = event
        .stack
        .iter()
        .map(|frame| StackFrame {
            location: Some(place(frame, context)),
            module: frame.module_name().map(str::to_owned),
            thread_id: Some(i64::from(event.thread)),
            ..StackFrame::default()
        })
        .collect();
    let mut stack = Stack::builder().frames(frames).build();
    stack.message = Some(message(&call(event)));
    Some(stack)
}

fn artifact(source: Source) -> ArtifactLocation {
    match source {
        Source::Inside(path) => ArtifactLocation {
            uri: Some(encoded(&path)),
            uri_base_id: Some(ROOT.to_owned()),
            ..ArtifactLocation::default()
        },
        Source::Outside(path) => ArtifactLocation {
            uri: Some(if path.is_absolute() {
                file_uri(&path)
            } else {
                encoded(&path)
            }),
            ..ArtifactLocation::default()
        },
    }
}

fn file_uri(path: &Path) -> String {
    format!("file://{}", encoded(path))
}

fn encoded(path: &Path) -> String {
    percent_encode(path.as_os_str().as_encoded_bytes(), PATH).to_string()
}

fn message(text: &str) -> Message {
    Message {
        text: Some(text.to_owned()),
        ..Message::default()
    }
}

fn properties<const N: usize>(pairs: [(&str, Value); N]) -> PropertyBag {
    PropertyBag {
        additional_properties: pairs
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        ..PropertyBag::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::tests::{finding, frame, report};
    use crate::places::tests::context;

    fn parsed(report: &Report, context: &Context) -> Value {
        serde_json::from_str(&log(report, context)).unwrap()
    }

    #[test]
    fn a_result_tells_the_story() {
        let mut run = parsed(&report(), &context())["runs"][0].take();
        // The rules are the declarations'.
        let rules = run["tool"]["driver"]["rules"].take();
        assert_eq!(rules.as_array().map(Vec::len), Some(RULES.len()));
        assert_eq!(rules[0]["name"], "UseBeforeAlloc");
        assert_eq!(rules[0]["helpUri"], rule_url("SC101"));
        insta::assert_snapshot!(serde_json::to_string_pretty(&run).unwrap());
    }

    #[test]
    fn a_fingerprint_outlives_what_changes_from_run_to_run() {
        let print = |report: &Report| {
            let log = parsed(report, &context());
            let print = &log["runs"][0]["results"][0]["partialFingerprints"][FINGERPRINT];
            print.as_str().unwrap().to_owned()
        };
        let before = print(&report());
        let mut moved = report();
        moved.process.pid = 7;
        let finding = &mut moved.findings[0];
        finding.message = "other words".to_owned();
        finding.count = 99;
        finding.allocation = None;
        finding.events[0].sequence = 99;
        finding.events[0].stream = Some("stream 9 (0x1)".to_owned());
        let frame = &mut finding.events[0].stack[0];
        frame.file = Some("/builds/8/a.cu".to_owned());
        frame.line = Some(77);
        frame.offset = Some(1);
        assert_eq!(print(&moved), before);
        moved.findings[0].events[0].stack[0].function = Some("other".to_owned());
        assert_ne!(print(&moved), before);
    }

    #[test]
    fn twins_have_fingerprints_of_their_own() {
        let mut twins = report();
        twins.findings.push(twins.findings[0].clone());
        let log = parsed(&twins, &context());
        let print = |place: usize| {
            let result = &log["runs"][0]["results"][place];
            result["partialFingerprints"][FINGERPRINT]
                .as_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(print(0).replace(":1", ":2"), print(1));
    }

    #[test]
    fn files_are_named_from_the_root_or_in_full() {
        for (file, base, uri) in [
            ("/src/a b/x#1.cu", Some(ROOT), "a%20b/x%231.cu"),
            ("/src/a:b.cu", Some(ROOT), "a%3Ab.cu"),
            ("x.cu", Some(ROOT), "build/x.cu"),
            ("/usr/include/ü.h", None, "file:///usr/include/%C3%BC.h"),
        ] {
            let stacks = vec![Vec::new(), vec![frame("f", file, 3)]];
            let mut report = report();
            report.findings = vec![Finding::new(finding(), stacks)];
            let log = parsed(&report, &context());
            let place = &log["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
            assert_eq!(place["artifactLocation"]["uri"], uri);
            assert_eq!(place["artifactLocation"]["uriBaseId"].as_str(), base);
            assert_eq!(place["region"]["startLine"], 3);
            let root = &log["runs"][0]["originalUriBaseIds"][ROOT]["uri"];
            assert_eq!(root, "file:///src/");
        }
    }

    #[test]
    fn a_place_without_source_is_one_in_its_module() {
        let mut bare = report();
        let frame = &mut bare.findings[0].events[0].stack[0];
        frame.file = None;
        let result = parsed(&bare, &context())["runs"][0]["results"][0].take();
        // The use's stack is not known: the program has to do.
        let place = &result["locations"][0]["physicalLocation"]["artifactLocation"];
        assert_eq!(place["uri"], "file:///opt/app/train");
        let related = &result["relatedLocations"][0];
        assert_eq!(
            related["physicalLocation"]["address"]["relativeAddress"],
            0x1234
        );
        assert_eq!(related["logicalLocations"][0]["fullyQualifiedName"], "main");
    }

    #[test]
    fn what_is_accepted_says_why() {
        let mut accepted = report();
        accepted.findings[0].suppressed = Some("NCCL does".to_owned());
        let known = Finding {
            baseline: true,
            ..report().findings.remove(0)
        };
        accepted.findings.push(known);
        accepted.findings.push(report().findings.remove(0));
        let baseline = Context {
            baseline: true,
            ..context()
        };
        let results = parsed(&accepted, &baseline)["runs"][0]["results"].take();
        assert_eq!(results[0]["suppressions"][0]["justification"], "NCCL does");
        assert_eq!(results[1]["suppressions"], json!([]));
        let states = [0, 1, 2].map(|place: usize| results[place]["baselineState"].as_str());
        assert_eq!(states, [Some("new"), Some("unchanged"), Some("new")]);
        // Without a baseline nothing is said of one.
        let results = parsed(&report(), &context())["runs"][0]["results"].take();
        assert_eq!(results[0]["baselineState"], Value::Null);
    }

    #[test]
    fn a_run_that_checked_nothing_was_no_success() {
        let mut nothing = report();
        nothing.findings.clear();
        nothing.summary = crate::json::Summary::default();
        let ended = Context {
            exit_code: Some(3),
            ..context()
        };
        let invocation = parsed(&nothing, &ended)["runs"][0]["invocations"][0].take();
        assert_eq!(invocation["executionSuccessful"], false);
        assert_eq!(invocation["exitCode"], 3);
        let told = &invocation["toolExecutionNotifications"][0];
        assert_eq!(told["level"], "error");
        let seen = parsed(&report(), &context())["runs"][0]["invocations"][0].take();
        assert_eq!(seen["executionSuccessful"], true);
        let spot = &seen["toolExecutionNotifications"][0];
        assert_eq!(spot["descriptor"]["id"], "unknown-kernel-parameters");
    }

    #[test]
    fn each_process_of_a_merged_report_is_an_invocation() {
        let process = crate::json::tests::process();
        let other = Report {
            process: ProcessFacts {
                pid: 7,
                rank: Some(1),
                ..report().process
            },
            findings: vec![Finding {
                rule: "SC103".to_owned(),
                ..report().findings.remove(0)
            }],
            ..report()
        };
        let merged = Report::merge(&process, vec![report(), other]);
        let run = parsed(&merged, &context())["runs"][0].take();
        let pids = [0, 1].map(|place: usize| run["invocations"][place]["processId"].as_u64());
        assert_eq!(pids, [Some(4242), Some(7)]);
        let result = &run["results"][1];
        assert_eq!(result["provenance"]["invocationIndex"], 1);
        assert_eq!(result["properties"]["ranks"], json!([1]));
    }
}
