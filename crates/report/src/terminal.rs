//! A finding as a person reads it, on a terminal or in a log.
//!
//! miette draws the rule, the sentence and the source lines; the calls without a
//! source line, the timeline, where the streams come from, the ordering that exists and
//! the calls to add stand below.

use std::collections::BTreeMap;
use std::fmt;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, Severity, SourceCode,
    ThemeCharacters,
};
use owo_colors::{OwoColorize, Style};

use crate::json::{Event, Finding, Report};
use crate::lanes;
use crate::places::{call, fault, source_line};
use crate::source::{Sources, shown_path};
use crate::story::bare_name;
use crate::text::{clean, count};
use crate::{Frame, rule_url};

/// The longest message, ordering or help that is shown.
const LONGEST_TEXT: usize = 4000;

/// The longest name of a function or kernel that is shown.
const LONGEST_NAME: usize = 160;

/// Callers shown of a call without a source line.
const CALLERS: usize = 3;

/// Ranks named.
const RANKS: usize = 16;

/// Calls shown of a finding; it has two or three.
const CALLS: usize = 32;

/// How text is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// With colours.
    pub color: bool,
    /// With the rule as a hyperlink, else with its address behind it.
    pub links: bool,
    /// With box-drawing characters, else in ASCII.
    pub unicode: bool,
    /// Columns.
    pub width: usize,
}

impl Look {
    /// The look for this process's output, with colours or not.
    #[must_use]
    pub fn of_this_process(color: bool, terminal: bool) -> Self {
        let variable = |name| {
            std::env::var(name)
                .ok()
                .filter(|value: &String| !value.is_empty())
        };
        let locale = variable("LC_ALL")
            .or_else(|| variable("LC_CTYPE"))
            .or_else(|| variable("LANG"));
        Self {
            color,
            links: color && terminal,
            unicode: !matches!(locale.as_deref(), Some("C" | "POSIX")),
            width: variable("COLUMNS")
                .and_then(|columns| columns.parse().ok())
                .unwrap_or(100)
                .clamp(40, 160),
        }
    }
}

/// A finding of a report, as text that ends with an empty line. Of several processes'
/// report it names those that made it.
#[must_use]
pub fn render(report: &Report, finding: &Finding, color: bool) -> String {
    let look = Look::of_this_process(color, false);
    text(finding, whose(report, finding), look)
}

/// A finding, as text that ends with an empty line.
#[must_use]
pub fn render_with(finding: &Finding, look: Look) -> String {
    text(finding, None, look)
}

/// A finding and who made it.
fn text(finding: &Finding, whose: Option<String>, look: Look) -> String {
    let story = Story::new(finding, look);
    let mut theme = if look.color {
        GraphicalTheme::unicode()
    } else {
        GraphicalTheme::unicode_nocolor()
    };
    if !look.unicode {
        theme.characters = ThemeCharacters::ascii();
    }
    let help_style = theme.styles.help;
    let mut out = String::new();
    // Drawing into a String fails only where miette can't read a snippet; what it
    // drew up to there stands, and the rest follows in words.
    let drawn = GraphicalReportHandler::new_themed(theme)
        .with_links(look.links)
        .with_link_display_text(format!("{}", clean(&finding.name, 80)))
        .with_width(look.width)
        .with_context_lines(1)
        .without_syntax_highlighting()
        .render_report(&mut out, &story);
    if drawn.is_err() && !out.ends_with('\n') {
        out.push('\n');
    }
    for line in &story.unshown {
        paragraph(&mut out, "at", line, Style::new(), look);
    }
    out.push_str(&lanes::drawn(finding, look));
    paragraph(&mut out, "streams", &streams(finding), help_style, look);
    paragraph(&mut out, "note", &finding.ordering, help_style, look);
    paragraph(&mut out, "help", &finding.help, help_style, look);
    for note in whose.into_iter().chain(marks(finding)) {
        paragraph(&mut out, "note", &note, help_style, look);
    }
    out.push('\n');
    out
}

/// What else there is to say of a finding in a report.
fn marks(finding: &Finding) -> Vec<String> {
    let mut marks = Vec::new();
    if finding.count > 1 {
        marks.push(format!(
            "this happened {}",
            count(finding.count, "time", "times")
        ));
    }
    if let Some(reason) = &finding.suppressed {
        marks.push(format!("suppressed: {reason}"));
    }
    if finding.baseline {
        marks.push("known: the baseline holds it".to_owned());
    }
    marks
}

/// Which processes made a finding, if the report is of several.
fn whose(report: &Report, finding: &Finding) -> Option<String> {
    let processes = &report.processes;
    let first = processes.get(finding.process?)?;
    if processes.len() < 2 {
        return None;
    }
    let ranks: Vec<String> = finding
        .ranks
        .iter()
        .take(RANKS)
        .map(u32::to_string)
        .collect();
    let more = match finding.ranks.len().saturating_sub(RANKS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let several = finding.ranks.len() > 1;
    let mut whose = match ranks.as_slice() {
        [] => String::new(),
        [one] => format!("on rank {one}: "),
        _ => format!("on ranks {}{more}: ", ranks.join(", ")),
    };
    if several {
        whose.push_str("first seen ");
    }
    let program = first.exe.rsplit('/').next().unwrap_or(&first.exe);
    whose.push_str(&format!(
        "in process {} ({})",
        first.pid,
        clean(program, LONGEST_NAME)
    ));
    if processes.iter().any(|process| process.host != first.host) {
        whose.push_str(&format!(" on {}", clean(&first.host, LONGEST_NAME)));
    }
    Some(whose)
}

/// Where the streams of a finding come from, a line each.
fn streams(finding: &Finding) -> String {
    let created = finding.streams.iter().take(CALLS).filter_map(|stream| {
        let frame = stream.created.first()?;
        let place = match (frame.function.as_deref(), source_line(frame)) {
            (Some(function), Some((file, line))) => format!(
                "at {}:{line} ({})",
                shown_path(file),
                clean(bare_name(function), LONGEST_NAME)
            ),
            (None, Some((file, line))) => format!("at {}:{line}", shown_path(file)),
            _ => format!("in {}", frame_in_words(frame)),
        };
        // A program often makes all its streams in one place.
        let caller = stream.created.get(1).and_then(source_line);
        let caller = caller.map_or_else(String::new, |(file, line)| {
            format!(", called from {}:{line}", shown_path(file))
        });
        Some(format!(
            "{}: created {place}{caller}",
            clean(&stream.name, LONGEST_NAME),
        ))
    });
    created.collect::<Vec<_>>().join("\n")
}

/// `  help: text`, wrapped and indented as miette does.
fn paragraph(out: &mut String, title: &str, text: &str, style: Style, look: Look) {
    if text.is_empty() {
        return;
    }
    let plain = format!("  {title}: ");
    let rest = " ".repeat(plain.len());
    let first = if look.color {
        plain.style(style).to_string()
    } else {
        plain
    };
    for (place, line) in text.split('\n').enumerate() {
        let line = glued(
            &clean(line, LONGEST_TEXT),
            look.width.saturating_sub(rest.len()),
        );
        let options = textwrap::Options::new(look.width)
            .initial_indent(if place == 0 { &first } else { &rest })
            .subsequent_indent(&rest)
            // Calls to copy are not to be broken.
            .break_words(false)
            .word_splitter(textwrap::WordSplitter::NoHyphenation)
            .word_separator(textwrap::WordSeparator::AsciiSpace);
        out.push_str(&textwrap::fill(&line, options).replace(GLUE, " "));
        out.push('\n');
    }
}

/// A space at which no line ends.
const GLUE: char = '\u{a0}';

/// The text with the spaces within a call's parentheses glued, so that what is to be copied
/// stays in one piece; save in calls that are longer than `room` columns.
fn glued(text: &str, room: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('(') {
        let (before, after) = rest.split_at(open);
        out.push_str(before);
        let is_call = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let close = is_call.then(|| closing(after)).flatten();
        let word = before.rsplit(' ').next().unwrap_or("").chars().count();
        let whole = close.filter(|end| word + after[..*end].chars().count() <= room);
        let (call, later) = after.split_at(whole.unwrap_or(1));
        out.extend(call.chars().map(|c| if c == ' ' { GLUE } else { c }));
        rest = later;
    }
    out + rest
}

/// The end of the parentheses that a text begins with.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(place + 1);
        }
    }
    None
}

/// A finding as miette takes it.
#[derive(Debug)]
struct Story {
    code: String,
    url: String,
    severity: Severity,
    message: String,
    sources: Sources,
    labels: Vec<LabeledSpan>,
    /// The calls that no source line stands for.
    unshown: Vec<String>,
}

impl Story {
    fn new(finding: &Finding, look: Look) -> Self {
        let events: Vec<&Event> = finding.events.iter().take(CALLS).collect();
        let sources = Sources::read(
            events
                .iter()
                .filter_map(|event| source_line(event.stack.first()?)),
        );
        let fault = fault(&events);
        let devices = events.iter().any(|event| event.device != events[0].device);
        let threads = events.iter().any(|event| event.thread != events[0].thread);
        // Calls of one line share its label.
        let mut by_line: BTreeMap<(usize, usize), (Vec<String>, bool)> = BTreeMap::new();
        let mut unshown = Vec::new();
        for (number, event) in events.iter().enumerate() {
            let what = what(event, devices, threads);
            let frame = event.stack.first();
            let span = frame
                .and_then(source_line)
                .and_then(|(path, line)| sources.span(path, line));
            match span {
                Some(span) => {
                    let (texts, at_fault) = by_line.entry(span).or_default();
                    texts.push(what);
                    *at_fault |= number == fault;
                }
                None => unshown.push(in_words(&what, &event.stack)),
            }
        }
        let labels = by_line
            .into_iter()
            .map(|(span, (texts, at_fault))| {
                let label = Some(texts.join("\n"));
                if at_fault {
                    LabeledSpan::new_primary_with_span(label, span)
                } else {
                    LabeledSpan::new_with_span(label, span)
                }
            })
            .collect();
        let level = clean(&finding.level, 20);
        let rule = clean(&finding.rule, 20);
        let name = clean(&finding.name, 80);
        Self {
            // A hyperlink ends with the name.
            code: if look.links {
                format!("{level} {rule}")
            } else {
                format!("{level} {rule} {name}")
            },
            url: rule_url(&rule),
            severity: if finding.level == "error" {
                Severity::Error
            } else {
                Severity::Warning
            },
            message: clean(&finding.message.replace('\n', " "), LONGEST_TEXT).into_owned(),
            sources,
            labels,
            unshown,
        }
    }
}

/// `used here: kernel saxpy(float*, int) on stream 2, device 1, thread 2`.
fn what(event: &Event, devices: bool, threads: bool) -> String {
    let mut text = call(event);
    if devices {
        text.push_str(&format!(", device {}", event.device));
    }
    if threads {
        text.push_str(&format!(", thread {}", event.thread));
    }
    text
}

/// A call whose source line can't be shown: where it is, as far as that's known.
fn in_words(what: &str, stack: &[Frame]) -> String {
    let mut text = what.replacen(" here: ", ": ", 1);
    let Some(first) = stack.first() else {
        return text;
    };
    text.push_str("\nin ");
    text.push_str(&frame_in_words(first));
    let callers: Vec<String> = stack
        .iter()
        .skip(1)
        .take(CALLERS)
        .map(frame_in_words)
        .collect();
    if !callers.is_empty() {
        text.push_str("\ncalled from ");
        text.push_str(&callers.join(", from "));
    }
    text
}

/// `main at /src/a.cu:12` or `main (train+0x1234)`.
fn frame_in_words(frame: &Frame) -> String {
    let function = frame
        .function
        .as_deref()
        .map(|name| clean(name, LONGEST_NAME));
    let module = match (frame.module_name(), frame.offset) {
        (Some(module), Some(offset)) => format!("{}+{offset:#x}", clean(module, LONGEST_NAME)),
        (Some(module), None) => clean(module, LONGEST_NAME).into_owned(),
        (None, Some(offset)) => format!("{offset:#x}"),
        (None, None) => "code that is not known".to_owned(),
    };
    match (function, source_line(frame)) {
        (Some(function), Some((file, line))) => {
            format!("{function} at {}:{line}", shown_path(file))
        }
        (None, Some((file, line))) => format!("{}:{line}", shown_path(file)),
        (Some(function), None) => format!("{function} ({module})"),
        (None, None) => module,
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Story {}

impl Diagnostic for Story {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.code))
    }

    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }

    fn url<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.url))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        (!self.sources.is_empty()).then_some(&self.sources as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        if self.labels.is_empty() {
            return None;
        }
        Some(Box::new(self.labels.iter().cloned()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;
    use crate::json::tests::{finding, frame};

    pub(crate) const LOOK: Look = Look {
        color: false,
        links: false,
        unicode: true,
        width: 100,
    };

    const SOURCE: &str = "\
#include <cuda_runtime.h>
__global__ void saxpy(int n, float a, float* x, float* y);

int main() {
    cudaStream_t s1, s2;
    float* x;
    cudaMallocAsync((void**)&x, 4096, s1);
    saxpy<<<1, 256, 0, s2>>>(1024, 2.0f, x, x);
\tcudaFreeAsync(x, s1);
}
";

    /// The finding with its events on these lines of these files.
    fn placed(places: &[(&str, u32)]) -> Finding {
        let stacks = places
            .iter()
            .map(|(file, line)| vec![frame("main", file, *line)])
            .collect();
        Finding::new(finding(), stacks)
    }

    /// What is drawn, with the directory's name taken out.
    fn drawn(finding: &Finding, directory: &tempfile::TempDir) -> String {
        render_with(finding, LOOK).replace(&*directory.path().to_string_lossy(), "DIR")
    }

    fn source(name: &str) -> (tempfile::TempDir, String) {
        let directory = tempfile::Builder::new()
            .prefix("x")
            .rand_bytes(6)
            .tempdir()
            .unwrap();
        let path = directory.path().join(name);
        fs::write(&path, SOURCE).unwrap();
        (directory, path.display().to_string())
    }

    #[test]
    fn one_file() {
        let (directory, path) = source("a.cu");
        insta::assert_snapshot!(drawn(&placed(&[(&path, 7), (&path, 8)]), &directory));
    }

    #[test]
    fn two_files() {
        let (directory, a) = source("a.cu");
        let b = directory.path().join("b.cu").display().to_string();
        fs::write(&b, SOURCE.replace("x, x", "p, q")).unwrap();
        insta::assert_snapshot!(drawn(&placed(&[(&b, 7), (&a, 8)]), &directory));
    }

    #[test]
    fn one_line() {
        let (directory, path) = source("a.cu");
        insta::assert_snapshot!(drawn(&placed(&[(&path, 9), (&path, 9)]), &directory));
    }

    #[test]
    fn no_source() {
        let (directory, path) = source("a.cu");
        let mut finding = placed(&[(&path, 400), ("/nowhere/b.cu", 8)]);
        finding.events[0].stack.push(Frame {
            function: None,
            file: None,
            line: None,
            module: Some("/lib/libtorch.so".to_owned()),
            offset: Some(0x99),
        });
        finding.events[1].stack[0].file = None;
        finding.events[1].thread = 2;
        finding.level = "warning".to_owned();
        insta::assert_snapshot!(drawn(&finding, &directory));
    }

    #[test]
    fn nothing_known() {
        let directory = tempfile::tempdir().unwrap();
        let mut finding = placed(&[]);
        finding.count = 3;
        finding.baseline = true;
        finding.suppressed = Some("known".to_owned());
        insta::assert_snapshot!(drawn(&finding, &directory));
    }

    #[test]
    fn a_call_is_not_broken_within_its_parentheses() {
        let help = "Add f(a, g(b, c), d) (a b). Not h(a b) (c, or i(j k";
        assert_eq!(
            glued(help, 20).replace(GLUE, "~"),
            "Add f(a,~g(b,~c),~d) (a b). Not h(a~b) (c, or i(j k"
        );
        assert_eq!(glued("Add f(a, b)", 6).replace(GLUE, "~"), "Add f(a, b)");
        let mut finding = placed(&[]);
        finding.help = format!(
            "{}cudaStreamWaitEvent(stream_2, event, 0)",
            "and then ".repeat(7)
        );
        let text = render_with(&finding, LOOK);
        let call = "        cudaStreamWaitEvent(stream_2, event, 0)\n";
        assert!(text.contains(call), "{text}");
    }

    #[test]
    fn colours_links_and_ascii() {
        let (_directory, path) = source("a.cu");
        let finding = placed(&[(&path, 7), (&path, 8)]);
        let look = Look {
            color: true,
            links: true,
            ..LOOK
        };
        let text = render_with(&finding, look);
        let link = format!("\u{1b}]8;;{}\u{1b}\\", rule_url("SC101"));
        assert!(
            text.starts_with(&link) && text.contains("\u{1b}[31m"),
            "{text:?}"
        );
        let look = Look {
            unicode: false,
            ..LOOK
        };
        let text = render_with(&finding, look);
        assert!(text.is_ascii(), "{text}");
        assert!(!render_with(&finding, LOOK).contains('\u{1b}'));
    }

    #[test]
    fn hostile_texts_are_tamed() {
        let (_directory, path) = source("a.cu");
        let mut finding = placed(&[(&path, 3), (&path, 1)]);
        let evil = "\u{1b}]0;title\u{7}".to_owned() + &"x".repeat(100_000) + "\n\r\0";
        finding.message = evil.clone();
        finding.help = evil.clone();
        finding.ordering = evil.clone();
        finding.name = evil.clone();
        for event in &mut finding.events {
            event.api = evil.clone();
            event.stream = Some(evil.clone());
            event.kernel = Some(evil.clone());
        }
        finding.events[0].stack[0].file = Some(evil.clone());
        finding.events[0].stack[0].function = Some(evil.clone());
        let text = render_with(&finding, LOOK);
        assert!(!text.contains(['\u{1b}', '\u{7}', '\0', '\r']), "{text:?}");
        assert!(text.len() < 50_000, "{}", text.len());
    }

    #[test]
    fn odd_sources_do_not_panic() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.cu");
        let shown = path.display().to_string();
        let texts: [&[u8]; 8] = [
            b"",
            b"\n",
            b"x",
            b"\r\r\n\n\r",
            b"\xff\xff\n\xe2\x82",
            "\u{feff}é\u{301}漢字\t\tx\n\u{2028}\n".as_bytes(),
            b"    \n\t\n",
            &[0; 1000],
        ];
        for text in texts {
            fs::write(&path, text).unwrap();
            for (a, b) in [(1, 1), (1, 2), (2, 1), (2, 3), (0, 5), (3, u32::MAX)] {
                for width in [0, 1, 40, 100] {
                    let look = Look { width, ..LOOK };
                    let finding = placed(&[(&shown, a), (&shown, b)]);
                    let drawn = render_with(&finding, look);
                    assert!(drawn.contains("SC101") && drawn.ends_with('\n'));
                }
            }
        }
    }
}
