//! A finding's timeline as lines of text: a row an operation in the order in which the
//! calls were made, a column a stream.
//!
//! What orders two columns is an arrow that begins with the number of the operation
//! waited for; the order that is missing is a broken one. Words say the same beside the
//! rows, so nothing hangs on colour or on the drawing.

use owo_colors::{OwoColorize, Style};
use streamcheck_engine::{Timeline, TimelineOperation};

use crate::json::{Event, Finding};
use crate::places::{missing, verb};
use crate::story::bare_name;
use crate::terminal::Look;
use crate::text::{clean, count};

/// Rows at most, without title and heading.
const ROWS: usize = 14;
/// Streams shown at most.
const LANES: usize = 7;
/// Columns for one stream: at least, and at most.
const NARROWEST: usize = 9;
const WIDEST: usize = 18;
/// Columns that the words beside the drawing need.
const WORDS: usize = 24;
/// Operations in a row left out before a row says so.
const GAP: u64 = 3;
/// The longest name of a call or kernel.
const LONGEST_NAME: usize = 32;
/// The longest place.
const LONGEST_PLACE: usize = 32;
/// What is kept of a place for the sake of what stands behind it.
const SHORTEST_PLACE: usize = 14;

/// The characters of a drawing.
struct Marks {
    lane: char,
    event: char,
    other: char,
    dash: char,
    broken: char,
    cross: char,
    left: char,
    right: char,
    gap: char,
    here: &'static str,
    cut: &'static str,
}

const UNICODE: Marks = Marks {
    lane: '│',
    event: '●',
    other: '○',
    dash: '─',
    broken: '╌',
    cross: '✗',
    left: '◀',
    right: '▶',
    gap: '⋮',
    here: "◀",
    cut: "…",
};

const ASCII: Marks = Marks {
    lane: '|',
    event: '*',
    other: 'o',
    dash: '-',
    broken: '.',
    cross: 'x',
    left: '<',
    right: '>',
    gap: ':',
    here: "<-",
    cut: "...",
};

/// The drawing of a finding's timeline; empty where there is none, or no room for it.
pub(crate) fn drawn(finding: &Finding, look: Look) -> String {
    let timeline = &finding.timeline;
    if timeline.operations.len() < 2 || timeline.lanes.is_empty() {
        return String::new();
    }
    let chosen = chosen(finding);
    let picture = Picture::new(finding, &chosen, look);
    let Some(picture) = picture else {
        return String::new();
    };
    picture.text(&chosen)
}

/// The operations that a few rows hold: the events, the ends of arrows from the last
/// backwards, what else orders things, then the rest; in their order.
fn chosen(finding: &Finding) -> Vec<&TimelineOperation> {
    let timeline = &finding.timeline;
    let is_event = |op: &TimelineOperation| event(finding, op.sequence).is_some();
    let (events, others): (Vec<_>, Vec<_>) =
        timeline.operations.iter().partition(|op| is_event(op));
    let ends = timeline.edges.iter().rev().flat_map(|edge| {
        let end = |number| others.iter().find(move |op| op.sequence == number);
        [end(edge.to), end(edge.from)]
    });
    let plain = |op: &&&TimelineOperation| op.kernel.is_none();
    let wanted = ends
        .flatten()
        .chain(others.iter().rev().filter(plain))
        .chain(others.iter().rev());
    let mut chosen: Vec<&TimelineOperation> = events.into_iter().take(ROWS).collect();
    for op in wanted {
        if chosen.iter().all(|known| known.sequence != op.sequence) {
            let mut more = chosen.clone();
            more.push(op);
            more.sort_by_key(|op| op.sequence);
            if rows(&more) <= ROWS {
                chosen = more;
            }
        }
    }
    chosen
}

/// Operations between two shown ones that a row of its own stands for.
fn left_out(before: &TimelineOperation, after: &TimelineOperation) -> Option<u64> {
    let between = after.sequence.saturating_sub(before.sequence + 1);
    (between >= GAP).then_some(between)
}

fn rows(operations: &[&TimelineOperation]) -> usize {
    let gaps = operations
        .windows(2)
        .filter(|pair| left_out(pair[0], pair[1]).is_some());
    operations.len() + gaps.count()
}

fn event(finding: &Finding, sequence: u64) -> Option<&Event> {
    finding
        .events
        .iter()
        .find(|event| event.sequence == sequence)
}

/// `stream 2` of `stream 2 (0x55d0, non-blocking)`, and short forms of default streams.
fn heading(name: &str) -> String {
    let short = short_name(name);
    let short = match short.strip_prefix("per-thread default stream of thread ") {
        Some(thread) => format!("thread {thread}'s"),
        None => match short.strip_prefix("stream \"") {
            Some(named) => named.trim_end_matches('"').to_owned(),
            None => short.replace("legacy default stream", "legacy"),
        },
    };
    clean(&short, WIDEST - 3).replace('\t', " ")
}

/// A stream's name without its handle and kind.
pub(crate) fn short_name(name: &str) -> &str {
    name.rsplit_once(" (0x").map_or(name, |(short, _)| short)
}

/// What colour a character is drawn in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ink {
    Plain,
    Faint,
    Arrow,
    Fault,
}

/// A line that is being drawn.
#[derive(Default)]
struct Row(Vec<(char, Ink)>);

impl Row {
    fn put(&mut self, column: usize, c: char, ink: Ink) {
        if self.0.len() <= column {
            self.0.resize(column + 1, (' ', Ink::Plain));
        }
        self.0[column] = (c, ink);
    }

    fn write(&mut self, column: usize, text: &str, ink: Ink) {
        for (place, c) in text.chars().enumerate() {
            self.put(column + place, c, ink);
        }
    }
}

/// What stands beside an operation.
struct Words {
    call: String,
    place: String,
    note: String,
}

struct Picture<'a> {
    finding: &'a Finding,
    look: Look,
    marks: &'static Marks,
    headings: Vec<String>,
    /// Of each chosen operation.
    words: Vec<Words>,
    /// Columns of the calls and of the places.
    widths: (usize, usize),
    /// Columns of the numbers.
    numbers: usize,
    /// Columns of a stream.
    pitch: usize,
    missing: Option<(u64, u64)>,
}

impl<'a> Picture<'a> {
    fn new(finding: &'a Finding, chosen: &[&TimelineOperation], look: Look) -> Option<Self> {
        let lanes = &finding.timeline.lanes;
        let marks = if look.unicode { &UNICODE } else { &ASCII };
        let missing = missing(finding);
        let headings: Vec<String> = lanes.iter().map(|lane| heading(&lane.name)).collect();
        let mut words: Vec<Words> = chosen
            .iter()
            .map(|op| words(finding, op, missing, marks))
            .collect();
        let longest = |words: &[Words], text: fn(&Words) -> &str| {
            let lengths = words.iter().map(|words| text(words).chars().count());
            lengths.max().unwrap_or(0)
        };
        let call = longest(&words, |words| &words.call);
        let note = longest(&words, |words| &words.note);
        let mut place = longest(&words, |words| &words.place);
        let last = chosen.last()?.sequence;
        let numbers = 4 + last.to_string().len();
        // A number, a broken line and a head, with room on both sides.
        let least = (numbers + 3).max(NARROWEST);
        let room = look.width.checked_sub(numbers)?;
        if lanes.len() > LANES || least * lanes.len() + WORDS > room {
            return None;
        }
        // What a call is to the finding says more than the beginning of its place.
        let surplus = (least * lanes.len() + call + place + note + 5).saturating_sub(room);
        if surplus > 0 {
            let most = place.saturating_sub(surplus).max(SHORTEST_PLACE);
            for words in &mut words {
                words.place = without_beginning(&words.place, most, marks);
            }
            place = longest(&words, |words| &words.place);
        }
        let widths = (call, place);
        let beside = call + place + note + 5;
        let longest = headings.iter().map(|name| name.chars().count()).max()?;
        let spare = room.saturating_sub(beside) / lanes.len();
        Some(Self {
            finding,
            look,
            marks,
            headings,
            words,
            widths,
            numbers,
            pitch: (longest + 3).min(WIDEST).min(spare).max(least),
            missing,
        })
    }

    /// Where a stream's line is drawn.
    fn column(&self, lane: usize) -> usize {
        self.numbers + lane * self.pitch + self.pitch / 2
    }

    fn timeline(&self) -> &Timeline {
        &self.finding.timeline
    }

    fn text(&self, chosen: &[&TimelineOperation]) -> String {
        let mut out = self.title(chosen);
        out.push_str(&self.line(self.heads()));
        let mut before: Option<&TimelineOperation> = None;
        for (op, words) in chosen.iter().zip(&self.words) {
            if let Some(between) = before.and_then(|before| left_out(before, op)) {
                out.push_str(&self.line(self.gap(between)));
            }
            out.push_str(&self.line(self.row(op, chosen, words)));
            before = Some(op);
        }
        out
    }

    fn title(&self, chosen: &[&TimelineOperation]) -> String {
        let is_shown = |number| chosen.iter().any(|op| op.sequence == number);
        let arrows = self
            .timeline()
            .edges
            .iter()
            .any(|edge| is_shown(edge.from) && is_shown(edge.to));
        let marks = self.marks;
        let mut legend = Vec::new();
        if arrows {
            legend.push(format!(
                "n {0}{0}{1} comes after call n",
                marks.dash, marks.right
            ));
        }
        if self.missing.is_some() {
            legend.push(format!(
                "n {}{}{} must come after call n, and does not",
                marks.broken, marks.cross, marks.right
            ));
        }
        let legend = if legend.is_empty() {
            String::new()
        } else {
            format!(" ({})", legend.join(", "))
        };
        let title = if self.look.color {
            "calls".style(Style::new().cyan()).to_string()
        } else {
            "calls".to_owned()
        };
        format!("  {title}: in the order made, by stream{legend}\n")
    }

    fn heads(&self) -> Row {
        let mut row = Row::default();
        for (lane, name) in self.headings.iter().enumerate() {
            let name: String = name.chars().take(self.pitch - 1).collect();
            let start = self.column(lane).saturating_sub(name.chars().count() / 2);
            row.write(start.max(self.numbers), &name, Ink::Plain);
        }
        row
    }

    fn lanes(&self) -> Row {
        let mut row = Row::default();
        for lane in 0..self.headings.len() {
            row.put(self.column(lane), self.marks.lane, Ink::Faint);
        }
        row
    }

    fn gap(&self, between: u64) -> Row {
        let mut row = self.lanes();
        row.put(self.numbers - 3, self.marks.gap, Ink::Faint);
        let words = format!("{} more", count(between, "call", "calls"));
        row.write(self.beside(), &words, Ink::Faint);
        row
    }

    /// Where the words begin.
    fn beside(&self) -> usize {
        self.numbers + self.headings.len() * self.pitch + 1
    }

    fn row(&self, op: &TimelineOperation, chosen: &[&TimelineOperation], words: &Words) -> Row {
        let mut row = self.lanes();
        let number = op.sequence.to_string();
        row.write(
            (self.numbers - 2).saturating_sub(number.len()),
            &number,
            Ink::Plain,
        );
        let lane_of = |number: u64| {
            let op = chosen.iter().find(|op| op.sequence == number)?;
            (op.lane < self.headings.len()).then_some(op.lane)
        };
        let Some(lane) = lane_of(op.sequence) else {
            return row;
        };
        let edges = self.timeline().edges.iter();
        let mut arrows: Vec<(usize, u64, bool)> = edges
            .filter(|edge| edge.to == op.sequence)
            .map(|edge| (edge.from, false))
            .chain(
                self.missing
                    .filter(|(_, to)| *to == op.sequence)
                    .map(|(from, _)| (from, true)),
            )
            .filter_map(|(from, broken)| Some((lane_of(from)?, from, broken)))
            .filter(|(from, ..)| *from != lane)
            .collect();
        // Those from far away pass behind the others.
        arrows.sort_by_key(|(from, ..)| std::cmp::Reverse(from.abs_diff(lane)));
        for (from, number, broken) in arrows {
            self.arrow(&mut row, (from, lane), number, broken);
        }
        let (mark, ink) = match event(self.finding, op.sequence) {
            Some(_) => (self.marks.event, Ink::Fault),
            None => (self.marks.other, Ink::Plain),
        };
        row.put(self.column(lane), mark, ink);
        let mut column = self.beside();
        row.write(column, &words.call, Ink::Plain);
        column += self.widths.0 + 2;
        if self.widths.1 > 0 {
            row.write(column, &words.place, Ink::Faint);
            column += self.widths.1 + 2;
        }
        row.write(column, &words.note, Ink::Fault);
        row
    }

    /// An arrow from one stream's line to another's, with the number where it begins.
    fn arrow(&self, row: &mut Row, (from, to): (usize, usize), number: u64, broken: bool) {
        let (from, to) = (self.column(from), self.column(to));
        let ink = if broken { Ink::Fault } else { Ink::Arrow };
        let dash = if broken {
            self.marks.broken
        } else {
            self.marks.dash
        };
        let number = format!(" {number} ");
        let length = number.len();
        row.put(from, self.marks.lane, Ink::Faint);
        let (start, end) = if from < to {
            row.write(from + 1, &number, ink);
            (from + 1 + length, to - 1)
        } else {
            row.write(from.saturating_sub(length), &number, ink);
            (to + 2, from.saturating_sub(length))
        };
        for column in start..end {
            row.put(column, dash, ink);
        }
        if broken && start < end {
            row.put((start + end) / 2, self.marks.cross, ink);
        }
        if from < to {
            row.put(to - 1, self.marks.right, ink);
        } else {
            row.put(to + 1, self.marks.left, ink);
        }
    }

    /// A row as text, within the width.
    fn line(&self, row: Row) -> String {
        let width = self.look.width;
        let mut cells = row.0;
        while cells.last().is_some_and(|(c, _)| *c == ' ') {
            cells.pop();
        }
        if cells.len() > width {
            cells.truncate(width.saturating_sub(1));
            cells.push((if self.look.unicode { '…' } else { '~' }, Ink::Plain));
        }
        let mut out = String::new();
        for run in cells.chunk_by(|(_, a), (_, b)| a == b) {
            let text: String = run.iter().map(|(c, _)| *c).collect();
            let style = match run[0].1 {
                Ink::Plain => Style::new(),
                Ink::Faint => Style::new().dimmed(),
                Ink::Arrow => Style::new().cyan(),
                Ink::Fault if self.finding.level == "error" => Style::new().red().bold(),
                Ink::Fault => Style::new().yellow().bold(),
            };
            if self.look.color && run[0].1 != Ink::Plain {
                out.push_str(&text.style(style).to_string());
            } else {
                out.push_str(&text);
            }
        }
        out.push('\n');
        out
    }
}

/// The call in few words, where it stands, and what it is to the finding.
fn words(
    finding: &Finding,
    op: &TimelineOperation,
    missing: Option<(u64, u64)>,
    marks: &Marks,
) -> Words {
    let call = match &op.kernel {
        Some(kernel) => format!("kernel {}", bare_name(kernel)),
        None => op.api.clone(),
    };
    let place = op.place.as_deref().unwrap_or_default();
    let place = without_beginning(place, LONGEST_PLACE, marks);
    let note = event(finding, op.sequence).map_or_else(String::new, |event| {
        let lacks = missing
            .filter(|(_, to)| *to == op.sequence)
            .map_or_else(String::new, |(from, _)| format!(", not after call {from}"));
        format!("{} {}{lacks}", marks.here, verb(event))
    });
    Words {
        call: clean(&call, LONGEST_NAME).replace('\t', " "),
        place: clean(&place, LONGEST_PLACE).replace('\t', " "),
        note,
    }
}

/// A place in so many characters: its line matters more than how its path begins.
fn without_beginning(place: &str, most: usize, marks: &Marks) -> String {
    let surplus = place.chars().count().saturating_sub(most);
    if surplus == 0 {
        return place.to_owned();
    }
    let rest = place.chars().skip(surplus + marks.cut.chars().count());
    marks.cut.chars().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use streamcheck_engine::{Lane, TimelineEdge};

    use super::*;
    use crate::json::tests::finding;
    use crate::terminal::tests::LOOK;

    /// Operations (number, lane, kernel or call) and edges over some lanes.
    fn timeline(
        lanes: &[&str],
        operations: &[(u64, usize, &str)],
        edges: &[(u64, u64)],
    ) -> Timeline {
        Timeline {
            lanes: lanes
                .iter()
                .map(|name| Lane {
                    name: (*name).to_owned(),
                    device: 0,
                })
                .collect(),
            operations: operations
                .iter()
                .map(|&(sequence, lane, name)| TimelineOperation {
                    sequence,
                    lane,
                    api: name.to_owned(),
                    kernel: name.contains('(').then(|| name.to_owned()),
                    place: Some(format!("a.cu:{}", sequence.saturating_add(10))),
                    ..TimelineOperation::default()
                })
                .collect(),
            edges: edges
                .iter()
                .map(|&(from, to)| TimelineEdge {
                    from,
                    to,
                    reason: "event wait".to_owned(),
                })
                .collect(),
        }
    }

    /// The use of an allocation before which an event was recorded.
    fn story() -> Finding {
        let mut finding = Finding::new(finding(), Vec::new());
        finding.events[0].sequence = 6;
        finding.events[1].sequence = 40;
        finding.timeline = timeline(
            &[
                "host",
                "stream 1 (0x55d0, non-blocking)",
                "stream \"copies\" (0x55e0, non-blocking)",
            ],
            &[
                (3, 1, "void init<float>(float*)"),
                (4, 1, "cudaEventRecord"),
                (6, 1, "cudaMallocAsync"),
                (7, 2, "cudaStreamWaitEvent"),
                (8, 0, "cudaEventSynchronize"),
                (9, 2, "fill(float*)"),
                (40, 2, "saxpy(int, float, float*, float*)"),
            ],
            &[(4, 7), (4, 8), (8, 9), (8, 40)],
        );
        finding
    }

    #[test]
    fn a_row_an_operation_a_column_a_stream() {
        let finding = story();
        let ascii = Look {
            unicode: false,
            ..LOOK
        };
        let plain = drawn(&finding, ascii);
        assert!(plain.is_ascii(), "{plain}");
        insta::assert_snapshot!(format!("{}\n{plain}", drawn(&finding, LOOK)));
    }

    #[test]
    fn colours_change_no_character() {
        let colored = drawn(
            &story(),
            Look {
                color: true,
                ..LOOK
            },
        );
        let mut plain = String::new();
        let mut rest = colored.as_str();
        while let Some((before, after)) = rest.split_once('\u{1b}') {
            plain.push_str(before);
            rest = after.split_once('m').map_or("", |(_, rest)| rest);
        }
        plain.push_str(rest);
        assert_eq!(plain, drawn(&story(), LOOK));
    }

    #[test]
    fn few_rows_hold_what_matters() {
        let mut finding = story();
        let many: Vec<(u64, usize, &str)> = (1..=400)
            .map(|number| match number {
                100 => (number, 0, "cudaEventRecord"),
                200 => (number, 1, "cudaStreamWaitEvent"),
                _ => (number, (number % 2) as usize, "step(int)"),
            })
            .collect();
        finding.timeline = timeline(&["stream 1", "stream 2"], &many, &[(100, 200)]);
        finding.events[0].sequence = 5;
        finding.events[1].sequence = 390;
        let text = drawn(&finding, LOOK);
        assert!(text.lines().count() <= ROWS + 2, "{text}");
        for number in ["  5", "100", "200", "390"] {
            let row = text
                .lines()
                .any(|line| line.trim_start().starts_with(number.trim()));
            assert!(row, "{number}:\n{text}");
        }
        assert!(text.contains("calls more"), "{text}");
    }

    #[test]
    fn odd_timelines_neither_panic_nor_overflow() {
        let evil = "\u{1b}[31m漢\t\n".repeat(50);
        let lanes: Vec<&str> = vec![&evil; 9];
        for lanes in [&lanes[..1], &lanes[..3], &lanes] {
            for width in [0, 1, 30, 40, 60, 100, 160] {
                let mut finding = story();
                let operations = [
                    (6, 0, evil.as_str()),
                    (7, 99, "k("),
                    (40, lanes.len() - 1, "f("),
                    (u64::MAX, 0, "g"),
                ];
                finding.timeline =
                    timeline(lanes, &operations, &[(6, 40), (7, 40), (40, 6), (1, 2)]);
                finding.timeline.operations[0].place = Some(evil.clone());
                for unicode in [true, false] {
                    let look = Look {
                        unicode,
                        width,
                        ..LOOK
                    };
                    let text = drawn(&finding, look);
                    assert!(!text.contains(['\u{1b}', '\t']), "{text:?}");
                    let long = text
                        .lines()
                        .skip(1)
                        .find(|line| line.chars().count() > width);
                    assert_eq!(long, None, "{width}");
                }
            }
        }
    }
}
