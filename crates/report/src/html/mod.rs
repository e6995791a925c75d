//! A report as one self-contained page.
//!
//! The page needs no network and no other file. All of it is markup: it reads, prints and
//! links without its script, which adds search, filters, the keyboard and focus in the
//! timeline. Its policy allows this very style and this very script, by their hashes: a
//! text of the report that got through the escaping would still not run.

mod drawing;
mod finding;
mod layout;
mod union;

use std::collections::{BTreeMap, BTreeSet};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::json::{ProcessFacts, Report, Summary};
use crate::text::{count, thousands};
use union::Union;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// What the page may do. A test says what the hashes have to be.
const POLICY: &str = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; \
    style-src 'sha256-Zxacw8nU/20UgTnOu3O0Tjsk9A8E8t8W+vwW6DPBJ1M='; \
    script-src 'sha256-BnlboHfi5DPHKki0gb8KzYHNnbVlb7W95OHV4SyA9ek='";

/// The report as a page.
#[must_use]
pub(crate) fn page(report: &Report) -> String {
    let unions = union::unions(report);
    let lines = finding::Lines::read(report);
    let title = format!("{} · streamcheck", headline(report));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                meta name="generator" content={
                    (text(&report.tool.name, 40)) " " (text(&report.tool.version, 40)) };
                title { (title) }
                // Else a browser asks a server for one.
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#findings" { "Skip to the findings" }
                (header(report))
                main {
                    (findings(report, &unions, &lines))
                    (timelines(report, &unions))
                }
                footer {
                    p { "Written by " (text(&report.tool.name, 40)) " "
                        (text(&report.tool.version, 40)) }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// A text of the report: one line without control characters, of bounded length.
fn text(given: &str, most: usize) -> String {
    crate::text::clean(given, most).into_owned()
}

/// The id of a finding's element.
fn finding_id(number: usize) -> String {
    format!("f{}", number + 1)
}

/// The id of an operation's bar.
fn bar_id(process: usize, sequence: u64) -> String {
    format!("p{process}o{sequence}")
}

/// The verdict in a few words.
fn headline(report: &Report) -> String {
    let Summary {
        operations,
        errors,
        warnings,
        ..
    } = report.summary;
    match (operations, errors, warnings) {
        (0, 0, 0) => "No CUDA call was seen".to_owned(),
        (_, 0, 0) => "No findings".to_owned(),
        (_, errors, 0) => count(errors, "error", "errors"),
        (_, 0, warnings) => count(warnings, "warning", "warnings"),
        _ => format!(
            "{}, {}",
            count(errors, "error", "errors"),
            count(warnings, "warning", "warnings")
        ),
    }
}

/// A process in a few words.
fn process_title(process: &ProcessFacts) -> String {
    let place = format!("process {} on {}", process.pid, text(&process.host, 80));
    match process.rank {
        Some(rank) => format!("rank {rank} ({place})"),
        None => place,
    }
}

fn header(report: &Report) -> Markup {
    let summary = &report.summary;
    let own = report.watched();
    let known = report
        .findings
        .iter()
        .filter(|finding| finding.baseline && finding.suppressed.is_none())
        .count() as u64;
    let (state, glyph) = match (summary.operations, summary.errors, summary.warnings) {
        (0, 0, 0) => ("nothing", "?"),
        (_, 0, 0) => ("clean", "✔"),
        (_, 0, _) => ("warning", "▲"),
        _ => ("error", "✖"),
    };
    html! {
        header.(state) {
            p.tool { "streamcheck report" }
            h1 { span.glyph aria-hidden="true" { (glyph) } " " (headline(report)) }
            p.command { code { (command(&report.process)) } }
            @if summary.operations == 0 {
                p.seen { "Nothing was checked. Either the program never got to a CUDA call, or its calls "
                    "could not be seen: " code { "streamcheck doctor" } " says which." }
            } @else {
                p.seen { "Seen: " (seen(summary)) "." }
            }
            @if summary.suppressed > 0 || known > 0 {
                p.excused { "Not counted: " (excused(summary.suppressed, known)) "." }
            }
            @if !summary.blind_spots.is_empty() {
                section.blind aria-label="Blind spots" {
                    h2 { "Not seen into" }
                    ul { @for spot in &summary.blind_spots {
                        li { (thousands(spot.count)) " × " (text(&spot.kind, 80).replace('-', " "))
                            @if !spot.example.is_empty() {
                                ", such as " code { (text(&spot.example, 200)) }
                            }
                        }
                    } }
                    p { "What lies there was not checked, neither for good nor for bad." }
                }
            }
            @if own.len() > 1 { (process_table(report, own)) }
        }
    }
}

/// `1,204 operations (12 launches, …)`.
fn seen(summary: &Summary) -> String {
    format!(
        "{}: {}, {}, {}, on {}",
        count(summary.operations, "operation", "operations"),
        count(summary.launches, "launch", "launches"),
        count(summary.copies, "copy or fill", "copies and fills"),
        count(summary.allocations, "allocation", "allocations"),
        count(summary.streams, "stream", "streams"),
    )
}

fn excused(suppressed: u64, known: u64) -> String {
    let suppressed_text = format!("{} suppressed", thousands(suppressed));
    let known_text = format!("{} known from the baseline", thousands(known));
    match (suppressed, known) {
        (_, 0) => suppressed_text,
        (0, _) => known_text,
        _ => format!("{suppressed_text}, {known_text}"),
    }
}

fn command(process: &ProcessFacts) -> String {
    let line = if process.argv.is_empty() {
        process.exe.clone()
    } else {
        process.argv.join(" ")
    };
    text(&line, 1000)
}

fn process_table(report: &Report, own: &[ProcessFacts]) -> Markup {
    let mut found: BTreeMap<usize, u64> = BTreeMap::new();
    for finding in report.findings.iter().filter(|finding| finding.is_live()) {
        *found.entry(finding.process.unwrap_or(0)).or_default() += 1;
    }
    let ranks = own.iter().any(|process| process.rank.is_some());
    html! {
        details.processes open {
            summary { (count(own.len() as u64, "process", "processes")) }
            div.wide { table {
                thead { tr {
                    @if ranks { th scope="col" { "Rank" } }
                    th scope="col" { "Process" } th scope="col" { "Host" }
                    th scope="col" { "Command" } th scope="col" { "First found here" }
                } }
                tbody { @for (number, process) in own.iter().enumerate() { tr {
                    @if ranks { td { @if let Some(rank) = process.rank { (rank) } } }
                    td { (process.pid) }
                    td { (text(&process.host, 200)) }
                    td { code { (command(process)) } }
                    td { (thousands(found.get(&number).copied().unwrap_or(0))) }
                } } }
            } }
        }
    }
}

fn findings(report: &Report, unions: &[Union], lines: &finding::Lines) -> Markup {
    let own = report.watched();
    let several = own.len() > 1;
    html! {
        section id="findings" aria-labelledby="findings-title" tabindex="-1" {
            h2 id="findings-title" { "Findings" }
            @if report.findings.is_empty() {
                p.empty { (if report.summary.operations == 0 {
                    "There are none, as nothing was checked."
                } else {
                    "There are none: every use, copy and free that was seen is ordered as it should be."
                }) }
            } @else {
                (toolbar(report))
                div id="list" {
                    @for (number, finding) in report.findings.iter().enumerate() {
                        @let process = finding.process.unwrap_or(0);
                        @let title = own.get(process).filter(|_| several).map(process_title);
                        (finding::article(finding, number, title.as_deref(), unions.get(process), lines))
                    }
                }
                p.empty id="no-match" hidden {
                    "No finding matches. " button type="button" id="reset" { "Show all" }
                }
            }
        }
    }
}

/// Search and filters; of no use without the script, which shows them.
fn toolbar(report: &Report) -> Markup {
    let rules: BTreeMap<&str, &str> = report
        .findings
        .iter()
        .map(|finding| (&*finding.rule, &*finding.name))
        .collect();
    let ranks: BTreeSet<u32> = report
        .findings
        .iter()
        .flat_map(|finding| finding.ranks.iter().copied())
        .collect();
    let levels: BTreeSet<bool> = report
        .findings
        .iter()
        .map(|finding| finding.level == "error")
        .collect();
    let excused = report
        .findings
        .iter()
        .filter(|finding| !finding.is_live())
        .count() as u64;
    html! {
        form id="tools" role="search" aria-label="Filter the findings" hidden {
            label { span { "Search" }
                input type="search" id="search" autocomplete="off" spellcheck="false"
                    placeholder="kernel, file, stream, call …" aria-keyshortcuts="/";
            }
            @if levels.len() > 1 {
                label { span { "Level" }
                    select id="level" {
                        option value="" { "all" }
                        option value="error" { "errors" }
                        option value="warning" { "warnings" }
                    }
                }
            }
            @if rules.len() > 1 {
                label { span { "Rule" }
                    select id="rule" {
                        option value="" { "all" }
                        @for (rule, name) in rules {
                            option value=(text(rule, 20)) { (text(rule, 20)) " " (text(name, 60)) }
                        }
                    }
                }
            }
            @if ranks.len() > 1 {
                label { span { "Rank" }
                    select id="rank" {
                        option value="" { "all" }
                        @for rank in ranks { option value=(rank) { (rank) } }
                    }
                }
            }
            @if excused > 0 {
                label.check {
                    input type="checkbox" id="excused";
                    span { "Suppressed and known (" (thousands(excused)) ")" }
                }
            }
            span.buttons {
                button type="button" id="expand" { "Open all" }
                button type="button" id="collapse" { "Close all" }
            }
            output id="shown" for="search level rule rank excused" {}
        }
    }
}

fn timelines(report: &Report, unions: &[Union]) -> Markup {
    let own = report.watched();
    let drawn: Vec<(usize, &Union, String)> = unions
        .iter()
        .enumerate()
        .filter(|(_, union)| !union.operations.is_empty())
        .map(|(number, union)| {
            let title = own.get(number).map(process_title).unwrap_or_default();
            (number, union, title)
        })
        .collect();
    if drawn.is_empty() {
        return html! {};
    }
    html! {
        section id="timelines" aria-labelledby="timelines-title" tabindex="-1" {
            div.bar-head {
                h2 id="timelines-title" { "Timeline" }
                p.legend {
                    "Left to right: the order of submission; a bar's length has no meaning. "
                    span.key.edge { "→ orders" } " "
                    span.key.missing { "⇢ should order, but is missing" }
                }
                span.tools hidden {
                    @if drawn.len() > 1 {
                        label { span { "Process" }
                            select id="process" {
                                @for (number, _, title) in &drawn {
                                    option value=(number) { (title) }
                                }
                            }
                        }
                    }
                    button type="button" id="unfocus" hidden { "Show all alike" }
                    button type="button" id="dock" aria-pressed="true" { "Keep in view" }
                }
            }
            @for (number, union, title) in &drawn {
                @let after = own_operations_after(report, union);
                figure.timeline id={ "timeline-" (number) } data-process=(number) {
                    figcaption { (title)
                        @if union.dropped > 0 {
                            ", without " (count(union.dropped as u64, "operation", "operations"))
                            " that would be too many to draw"
                        }
                    }
                    (drawing::draw(union, *number, title, after))
                }
            }
        }
        section id="words" aria-label="Operations in words" {
            @for (number, union, title) in &drawn { (drawing::table(union, *number, title)) }
        }
    }
}

/// Operations of the run after the last one of a timeline, where the report tells.
fn own_operations_after(report: &Report, union: &Union) -> u64 {
    if !report.processes.is_empty() {
        return 0;
    }
    let last = union.operations.last().map_or(0, |last| last.sequence);
    report.summary.operations.saturating_sub(last)
}
