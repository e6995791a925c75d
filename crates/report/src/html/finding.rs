//! A finding's story: what to add, what orders the calls already, the calls themselves.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::union::Union;
use super::{bar_id, finding_id, text};
use crate::json::{Event, Finding, Report};
use crate::places::{fault, source_line, verb};
use crate::source::{self, shown_path};
use crate::text::{count, thousands};
use crate::{Frame, rule_url};

/// The longest message, ordering or help.
const LONGEST_TEXT: usize = 8000;
/// The longest name.
const LONGEST_NAME: usize = 400;
/// The longest line of a source file.
const LONGEST_LINE: usize = 240;
/// Lines shown before and after the one that is meant.
const CONTEXT: u32 = 2;
/// Calls shown of a finding.
const CALLS: usize = 32;
/// Frames shown of a call.
const FRAMES: usize = 64;

/// The lines of source files that a report's findings point at.
#[derive(Debug, Default)]
pub(super) struct Lines(BTreeMap<String, BTreeMap<u32, String>>);

impl Lines {
    /// Reads every file once.
    pub(super) fn read(report: &Report) -> Self {
        let mut wanted: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for event in report.findings.iter().flat_map(|finding| &finding.events) {
            if let Some((path, line)) = event.stack.first().and_then(source_line) {
                let lines = wanted.entry(path).or_default();
                lines.extend(line.saturating_sub(CONTEXT).max(1)..=line.saturating_add(CONTEXT));
            }
        }
        let files = wanted.into_iter().filter_map(|(path, wanted)| {
            let text = source::load(path)?;
            let lines = (1..)
                .zip(text.lines())
                .filter(|(number, _)| wanted.contains(number))
                .map(|(number, line)| {
                    let line = line.replace('\t', "    ");
                    let line = crate::text::clean(line.trim_end(), LONGEST_LINE).into_owned();
                    (number, line)
                })
                .collect();
            Some((path.to_owned(), lines))
        });
        Self(files.collect())
    }

    /// The lines around one, if it's there.
    fn around(&self, path: &str, line: u32) -> Option<Vec<(u32, &str)>> {
        let lines = self.0.get(path)?;
        lines.get(&line)?;
        let range = line.saturating_sub(CONTEXT)..=line.saturating_add(CONTEXT);
        let around = lines.range(range);
        Some(around.map(|(number, text)| (*number, &**text)).collect())
    }
}

/// A finding's element. `several` names its process in a report of several.
pub(super) fn article(
    finding: &Finding,
    number: usize,
    several: Option<&str>,
    union: Option<&Union>,
    lines: &Lines,
) -> Markup {
    let drawn = |event: &&Event| union.is_some_and(|union| union.draws(event.sequence));
    let last_drawn = finding.events.iter().rev().find(drawn);
    let sequences = union
        .map(|union| sequences(finding, union))
        .unwrap_or_default();
    let level = if finding.level == "error" {
        "error"
    } else {
        "warning"
    };
    let state = match (&finding.suppressed, finding.baseline) {
        (Some(_), _) => "suppressed",
        (None, true) => "known",
        (None, false) => "live",
    };
    let ranks: Vec<String> = finding.ranks.iter().map(u32::to_string).collect();
    let process = finding.process.unwrap_or(0);
    html! {
        article.finding.(level).(state) id=(finding_id(number)) data-rule=(text(&finding.rule, 20))
            data-level=(level) data-state=(state) data-ranks=(ranks.join(" "))
            data-process=(process) data-operations=(sequences) {
            details open {
                summary {
                    span.level { (glyph(level)) (level) } " "
                    span.rule { (text(&finding.rule, 20)) " " (text(&finding.name, 80)) } " "
                    @if state != "live" { span.state { (state) } " " }
                    h3 { (code(&finding.message)) }
                    p.meta { (meta(finding, several)) }
                }
                div.body {
                    @if !finding.help.is_empty() {
                        section.help { h4 { "What to do" } p { (code(&finding.help)) } }
                    }
                    @if !finding.ordering.is_empty() {
                        section.ordering { h4 { "What orders them now" } p { (code(&finding.ordering)) } }
                    }
                    @if let Some(reason) = &finding.suppressed {
                        section { h4 { "Suppressed" } p { (text(reason, LONGEST_TEXT)) } }
                    }
                    @if finding.baseline {
                        section { h4 { "Known" } p { "The baseline holds this finding." } }
                    }
                    section {
                        h4 { "The calls" }
                        (calls(finding, process, union, lines))
                    }
                    p.links {
                        @if let Some(event) = last_drawn {
                            a.focus href={ "#" (bar_id(process, event.sequence)) } {
                                "Show in the timeline"
                            }
                        }
                        @if is_code(&finding.rule) {
                            " " a rel="noreferrer" href=(rule_url(&finding.rule)) {
                                "About " (finding.rule) " " (text(&finding.name, 80))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The sequences of what belongs to a finding, in steps from one to the next.
fn sequences(finding: &Finding, union: &Union) -> String {
    let own: BTreeSet<u64> = finding
        .timeline
        .operations
        .iter()
        .map(|operation| operation.sequence)
        .chain(finding.events.iter().map(|event| event.sequence))
        .collect();
    let drawn = union.operations.iter().map(|operation| operation.sequence);
    let own: Vec<String> = drawn
        .filter(|sequence| own.contains(sequence))
        .map(|sequence| sequence.to_string())
        .collect();
    own.join(" ")
}

/// The mark of a level, which is no matter of colour.
pub(super) fn glyph(level: &str) -> Markup {
    html! { span.glyph aria-hidden="true" { (if level == "error" { "✖" } else { "▲" }) } " " }
}

/// Whether a rule's code is one that a page can have.
fn is_code(rule: &str) -> bool {
    rule.len() <= 20 && !rule.is_empty() && rule.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Where, how often and by whom.
fn meta(finding: &Finding, several: Option<&str>) -> Markup {
    let at_fault = finding.events.get(fault(&finding.events));
    let place = at_fault
        .and_then(|event| event.stack.first())
        .map(frame_place);
    html! {
        @if let Some(place) = place { span.place { (place) } }
        @if finding.count > 1 { span { (thousands(finding.count)) " times" } }
        @if !finding.ranks.is_empty() { span { (rank_list(&finding.ranks)) } }
        @else if let Some(process) = several { span { (process) } }
        @if let Some(allocation) = &finding.allocation {
            span { (count(allocation.size, "byte", "bytes")) " of "
                (text(&allocation.kind, 40)) " memory at " (text(&allocation.address, 40)) }
        }
    }
}

/// `rank 3` or `ranks 0–3, 7`.
pub(super) fn rank_list(ranks: &[u32]) -> String {
    let mut text = if ranks.len() == 1 { "rank " } else { "ranks " }.to_owned();
    let mut rest = ranks.iter().copied().peekable();
    let mut first = true;
    while let Some(from) = rest.next() {
        let mut to = from;
        while let Some(next) = rest.next_if(|next| Some(*next) == to.checked_add(1)) {
            to = next;
        }
        if !first {
            text.push_str(", ");
        }
        first = false;
        text.push_str(&from.to_string());
        if to > from {
            text.push_str(if to - from > 1 { "–" } else { ", " });
            text.push_str(&to.to_string());
        }
    }
    text
}

fn calls(finding: &Finding, process: usize, union: Option<&Union>, lines: &Lines) -> Markup {
    let events = &finding.events;
    let devices = events.iter().any(|event| event.device != events[0].device);
    let threads = events.iter().any(|event| event.thread != events[0].thread);
    html! {
        ol.calls {
            @for event in events.iter().take(CALLS) {
                li {
                    p {
                        b.verb { (verb(event)) } " by " code { (text(&event.api, LONGEST_NAME)) }
                        @if let Some(kernel) = &event.kernel {
                            ", kernel " code { (text(kernel, LONGEST_NAME)) }
                        }
                        @if let Some(stream) = &event.stream { " on " (text(stream, LONGEST_NAME)) }
                        @if devices { ", device " (event.device) }
                        @if threads { ", thread " (event.thread) }
                        " "
                        @let place = format!("operation {}", thousands(event.sequence));
                        @if union.is_some_and(|union| union.draws(event.sequence)) {
                            a.bar-link href={ "#" (bar_id(process, event.sequence)) } { (place) }
                        } @else { (place) }
                    }
                    (source(event, lines))
                    (stack(&event.stack))
                }
            }
        }
        @if let Some(others @ 1..) = events.len().checked_sub(CALLS) {
            p { "and " (count(others as u64, "more call", "more calls")) }
        }
    }
}

fn source(event: &Event, lines: &Lines) -> Markup {
    let Some((path, line)) = event.stack.first().and_then(source_line) else {
        return html! {};
    };
    let Some(around) = lines.around(path, line) else {
        return html! {};
    };
    html! {
        figure.source {
            figcaption { (shown_path(path)) ":" (line) }
            pre { @for (number, text) in around {
                span.line.here[number == line] {
                    span.number { (number) } (if number == line { "▸ " } else { "  " }) (text) "\n"
                }
            } }
        }
    }
}

fn stack(stack: &[Frame]) -> Markup {
    if stack.is_empty() {
        return html! { p.none { "The host stack is not known." } };
    }
    html! {
        details.stack open {
            summary { "Stack of " (count(stack.len() as u64, "frame", "frames")) }
            ol {
                @for frame in stack.iter().take(FRAMES) {
                    li {
                        @if let Some(function) = &frame.function {
                            code { (text(function, LONGEST_NAME)) } " "
                        }
                        span.place { (frame_place(frame)) }
                    }
                }
            }
            @if let Some(others @ 1..) = stack.len().checked_sub(FRAMES) {
                p { "and " (count(others as u64, "more frame", "more frames")) }
            }
        }
    }
}

/// `/src/a.cu:12` or `train+0x1234`.
fn frame_place(frame: &Frame) -> String {
    match (source_line(frame), frame.module_name(), frame.offset) {
        (Some((file, line)), _, _) => format!("{}:{line}", shown_path(file)),
        (None, Some(module), Some(offset)) => format!("{}+{offset:#x}", text(module, LONGEST_NAME)),
        (None, Some(module), None) => text(module, LONGEST_NAME),
        (None, None, Some(offset)) => format!("{offset:#x}"),
        (None, None, None) => "code that is not known".to_owned(),
    }
}

/// Text with its code set as such, its lines kept: what stands in backticks, and CUDA's calls.
fn code(given: &str) -> Markup {
    html! {
        @for (number, line) in given.split('\n').enumerate() {
            @if number > 0 { br; }
            @for (is_code, part) in code_in(&text(line, LONGEST_TEXT)) {
                @if is_code { code { (part) } } @else { (part) }
            }
        }
    }
}

/// The parts of a line, and whether each is code.
fn code_in(line: &str) -> Vec<(bool, &str)> {
    let mut parts = Vec::new();
    let mut rest = line;
    while let Some((before, (quoted, after))) = rest
        .split_once('`')
        .and_then(|(before, behind)| Some((before, behind.split_once('`')?)))
    {
        parts.extend(calls_in(before));
        parts.push((true, quoted));
        rest = after;
    }
    parts.extend(calls_in(rest));
    parts.retain(|(_, part)| !part.is_empty());
    parts
}

/// The parts of a text, and whether each is a call of CUDA's, such as `cudaFree(p)`.
fn calls_in(text: &str) -> Vec<(bool, &str)> {
    let mut parts = Vec::new();
    let (mut begun, mut place) = (0, 0);
    while let Some(found) = text[place..].find("cu") {
        let start = place + found;
        let inside = text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = &text[start..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let own = rest[..end]
            .strip_prefix("cuda")
            .or_else(|| rest[..end].strip_prefix("cu"))
            .is_some_and(|tail| tail.starts_with(|c: char| c.is_ascii_uppercase()));
        place = start + end;
        if inside || !own {
            continue;
        }
        let end = end + arguments(&rest[end..]);
        parts.push((false, &text[begun..start]));
        parts.push((true, &rest[..end]));
        begun = start + end;
        place = begun;
    }
    parts.push((false, &text[begun..]));
    parts
}

/// The length of the bracketed list that a text begins with, else 0.
fn arguments(text: &str) -> usize {
    let mut depth = 0_usize;
    for (place, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return if place == 0 { 0 } else { place + 1 };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a line, with what is code in brackets.
    fn marked(line: &str) -> String {
        let part = |(is_code, part): (bool, &str)| {
            if is_code {
                format!("[{part}]")
            } else {
                part.to_owned()
            }
        };
        code_in(line).into_iter().map(part).collect()
    }

    #[test]
    fn calls_and_quoted_names_are_code() {
        for (line, wanted) in [
            ("", ""),
            ("after cudaFree it is gone", "after [cudaFree] it is gone"),
            (
                "cudaEventRecord(e, f(s)); cuMemFree(p)",
                "[cudaEventRecord(e, f(s))]; [cuMemFree(p)]",
            ),
            (
                "kernel `k<cudaFree>(int)` and `cudaX",
                "kernel [k<cudaFree>(int)] and `[cudaX]",
            ),
            ("cudaFree(not closed", "[cudaFree](not closed"),
            (
                "cut, mycudaFree, écuFree, cu, cudaé",
                "cut, mycudaFree, écuFree, cu, cudaé",
            ),
        ] {
            assert_eq!(marked(line), wanted);
        }
    }

    #[test]
    fn ranks_are_listed_as_ranges() {
        for (ranks, wanted) in [
            (&[3][..], "rank 3"),
            (&[0, 1], "ranks 0, 1"),
            (&[0, 1, 2, 3, 7], "ranks 0–3, 7"),
            (&[u32::MAX - 1, u32::MAX], "ranks 4294967294, 4294967295"),
        ] {
            assert_eq!(rank_list(ranks), wanted);
        }
    }
}
