//! Where a timeline's lanes, bars, gaps and arrows go; pixels, no markup.
//!
//! Left to right is the order of submission, and an operation that an edge orders after
//! another begins to the right of that one's end. A bar's length is that of its text.

use std::collections::HashMap;

use super::union::{Union, numbers};

/// Height of a lane.
pub(super) const LANE: i32 = 64;
/// Height of the row above the lanes, which holds the operations' numbers.
pub(super) const AXIS: i32 = 24;
/// A bar's place in its lane; above it is the mark of a finding, below it the edges' names.
pub(super) const BAR_TOP: i32 = 19;
/// A bar's height.
pub(super) const BAR: i32 = 25;

/// Room at both ends.
const MARGIN: i32 = 14;
/// The least between two operations' beginnings.
const STEP: i32 = 40;
/// The least between two bars of a lane.
const APART: i32 = 10;
/// The least that an arrow is long.
const ARROW: i32 = 34;
/// Characters of a bar's text.
const TEXT: usize = 24;
/// Characters of an edge's name.
const NAME: usize = 24;

/// Width of a character of a bar's text, in tenths of a pixel.
const TEXT_WIDTH: i32 = 67;
/// Width of one of the smaller texts, in tenths of a pixel.
const SMALL_WIDTH: i32 = 61;

/// A drawing's geometry.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) width: i32,
    pub(super) height: i32,
    /// In the operations' order.
    pub(super) bars: Vec<Bar>,
    pub(super) gaps: Vec<Gap>,
    pub(super) arrows: Vec<Arrow>,
}

/// An operation's bar.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) x: i32,
    pub(super) width: i32,
    /// Top of the bar.
    pub(super) y: i32,
    pub(super) text: String,
    /// What stands above it.
    pub(super) mark: String,
}

/// Operations that are left out.
#[derive(Debug)]
pub(super) struct Gap {
    pub(super) x: i32,
    pub(super) width: i32,
    pub(super) operations: u64,
    pub(super) text: String,
}

/// An edge, or one that is missing.
#[derive(Debug)]
pub(super) struct Arrow {
    pub(super) from: u64,
    pub(super) to: u64,
    /// The path's data.
    pub(super) path: String,
    /// In full.
    pub(super) reason: String,
    /// The findings that miss it, by number, if it's no edge that is there.
    pub(super) missing: Option<String>,
    /// The name's middle and baseline; `None` where there is no room for it.
    pub(super) name: Option<(i32, i32)>,
    /// The name as drawn.
    pub(super) short: String,
}

/// Lays a timeline out. `after` operations follow the last one.
pub(super) fn lay_out(union: &Union, after: u64) -> Layout {
    let mut layout = Layout {
        height: AXIS + LANE * len(union.lanes.len()),
        ..Layout::default()
    };
    let places: HashMap<u64, usize> = union
        .operations
        .iter()
        .enumerate()
        .map(|(place, operation)| (operation.sequence, place))
        .collect();
    let mut before: HashMap<u64, Vec<usize>> = HashMap::new();
    for edge in &union.edges {
        if let Some(&from) = places.get(&edge.from) {
            before.entry(edge.to).or_default().push(from);
        }
    }
    let mut lane_ends = vec![0; union.lanes.len()];
    let (mut last, mut least, mut end) = (0, MARGIN, MARGIN - APART);
    for operation in &union.operations {
        let left_out = operation.sequence.saturating_sub(last).saturating_sub(1);
        if left_out > 0 {
            least = layout.gap(left_out, end);
            end = least - APART;
        }
        let text = shorten(operation.text(), TEXT);
        let mark = operation.mark();
        let width = (width_of(&text, TEXT_WIDTH) + 16)
            .max(width_of(&mark, SMALL_WIDTH) + 6)
            .max(30);
        let lane = operation.lane;
        let mut x = least.max(lane_ends.get(lane).map_or(0, |end| end + APART));
        for &from in before.get(&operation.sequence).into_iter().flatten() {
            if let Some(bar) = layout.bars.get(from) {
                x = x.max(bar.x + bar.width + ARROW);
            }
        }
        if let Some(lane_end) = lane_ends.get_mut(lane) {
            *lane_end = x + width;
        }
        end = end.max(x + width);
        least = x + STEP.max(width_of(&operation.sequence.to_string(), SMALL_WIDTH) + 14);
        last = operation.sequence;
        layout.bars.push(Bar {
            x,
            width,
            y: AXIS + LANE * len(lane) + BAR_TOP,
            text,
            mark,
        });
    }
    if after > 0 {
        end = layout.gap(after, end);
    }
    layout.width = end + MARGIN;
    layout.draw_arrows(union, &places);
    layout
}

impl Layout {
    /// Adds a gap behind `end`; where the next bar may begin.
    fn gap(&mut self, operations: u64, end: i32) -> i32 {
        let text = format!(
            "⋯ {}",
            crate::text::count(operations, "operation", "operations")
        );
        let (x, width) = (end + APART, width_of(&text, SMALL_WIDTH) + 14);
        self.gaps.push(Gap {
            x,
            width,
            operations,
            text,
        });
        x + width + APART
    }

    fn draw_arrows(&mut self, union: &Union, places: &HashMap<u64, usize>) {
        let mut taken: HashMap<i32, Vec<(i32, i32)>> = HashMap::new();
        let missing = union.missing.iter().map(|(missing, findings)| {
            let reason = "not ordered".to_owned();
            (missing.from, missing.to, reason, Some(numbers(findings)))
        });
        let edges = union
            .edges
            .iter()
            .map(|edge| (edge.from, edge.to, edge.reason.clone(), None));
        for (from, to, reason, missing) in missing.chain(edges) {
            let Some((a, b)) = places
                .get(&from)
                .and_then(|&from| self.bars.get(from))
                .zip(places.get(&to).and_then(|&to| self.bars.get(to)))
            else {
                continue;
            };
            let (path, middle) = if missing.is_some() {
                across(a, b)
            } else {
                along(a, b)
            };
            let short = shorten(short_reason(&reason), NAME);
            let half = width_of(&short, SMALL_WIDTH) / 2 + 3;
            let middle = middle.max(half);
            // Names stand between lanes, where there are no bars.
            let (upper, lower) = (a.y.min(b.y), a.y.max(b.y));
            let rows = [upper + BAR + 13, lower - BAR_TOP - 7];
            let name = rows.into_iter().find_map(|row| {
                let row_taken = taken.entry(row).or_default();
                let free = row_taken
                    .iter()
                    .all(|&(left, right)| middle + half < left || middle - half > right);
                free.then(|| {
                    row_taken.push((middle - half, middle + half));
                    (middle, row)
                })
            });
            self.arrows.push(Arrow {
                from,
                to,
                path,
                reason,
                missing,
                name,
                short,
            });
        }
    }
}

/// From a bar's end to the beginning of one further right; and the middle.
fn along(a: &Bar, b: &Bar) -> (String, i32) {
    let (x1, y1, x2, y2) = (a.x + a.width, a.y + BAR / 2, b.x - 2, b.y + BAR / 2);
    let bend = ((x2 - x1) / 2).clamp(12, 60);
    let path = format!("M{x1} {y1}C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2 - bend);
    (path, (x1 + x2) / 2)
}

/// From one bar to another that may begin before its end: out of the near edge of the first,
/// between the lanes, where there are no bars, and into the beginning of the second.
fn across(a: &Bar, b: &Bar) -> (String, i32) {
    let (x1, x2, y2) = (a.x + 12, b.x - 14, b.y + BAR / 2);
    let (y1, between) = if b.y > a.y {
        (a.y + BAR, b.y - BAR_TOP + 2)
    } else {
        let near = if b.y < a.y { a.y } else { a.y + BAR };
        (near, b.y + BAR + 6)
    };
    let path = format!(
        "M{x1} {y1}C{x1} {between} {x1} {between} {} {between}L{x2} {between}\
         C{} {between} {} {y2} {} {y2}",
        x1 + 8,
        x2 + 8,
        x2 + 4,
        b.x - 2
    );
    (path, x1)
}

/// A reason in a word or two.
fn short_reason(reason: &str) -> &str {
    match reason {
        "submission after what the host knows complete" => "submission",
        "all streams of a context or device" => "all streams",
        "unseen, taken as ordered" => "taken as ordered",
        other => other,
    }
}

fn shorten(text: &str, most: usize) -> String {
    crate::text::clean(text, most).into_owned()
}

fn width_of(text: &str, tenths: i32) -> i32 {
    len(text.chars().count()) * tenths / 10 + 1
}

/// A count of what is drawn, which is capped far below.
fn len(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX / (2 * LANE))
}
