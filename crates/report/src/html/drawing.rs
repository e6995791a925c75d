//! A timeline as a drawing, and in words.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use streamcheck_engine::Lane;

use super::layout::{AXIS, BAR, BAR_TOP, LANE, Layout, lay_out};
use super::union::{Operation, Union, numbers, role_name};
use super::{bar_id, finding_id, text};
use crate::text::{count, thousands};

/// Findings named in a bar's label.
const NAMED: usize = 4;

/// The drawing of process `number`'s timeline. `after` operations follow its last one.
pub(super) fn draw(union: &Union, number: usize, title: &str, after: u64) -> Markup {
    let layout = lay_out(union, after);
    let several = devices(union);
    html! {
        div.scroll tabindex="-1" {
            div.lanes aria-hidden="true" {
                @for lane in &union.lanes { (lane_title(lane, several)) }
            }
            svg.drawing width=(layout.width) height=(layout.height)
                viewBox={ "0 0 " (layout.width) " " (layout.height) }
                role="group" aria-label={ "Timeline of " (title) ": "
                    (count(union.operations.len() as u64, "operation", "operations")) " on "
                    (count(union.lanes.len() as u64, "lane", "lanes")) } {
                defs {
                    @for (kind, reference) in [("edge", 7), ("missing", 7)] {
                        marker id={ "head-" (number) "-" (kind) } class={ "head " (kind) }
                            viewBox="0 0 8 8" refX=(reference) refY="4"
                            markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse"
                            orient="auto" {
                            path d="M0 0.5L8 4L0 7.5z" {}
                        }
                    }
                }
                (background(union, &layout))
                @for arrow in &layout.arrows {
                    @let kind = if arrow.missing.is_some() { "missing" } else { "edge" };
                    g class=(kind) data-from=(arrow.from) data-to=(arrow.to)
                        data-findings=[&arrow.missing] {
                        title {
                            (arrow.from) " to " (arrow.to) ": " (text(&arrow.reason, 200))
                        }
                        path d=(arrow.path) marker-end={ "url(#head-" (number) "-" (kind) ")" } {}
                    }
                }
                @for (operation, place) in union.operations.iter().zip(0..) {
                    (bar(union, operation, number, &layout, place))
                }
                // Above everything else, as they are what one reads.
                @for arrow in &layout.arrows {
                    @if let Some((x, y)) = arrow.name {
                        @let kind = if arrow.missing.is_some() { "name missing" } else { "name edge" };
                        text class=(kind) x=(x) y=(y) text-anchor="middle" aria-hidden="true"
                            data-from=(arrow.from) data-to=(arrow.to)
                            data-findings=[&arrow.missing] {
                            (arrow.short)
                        }
                    }
                }
            }
        }
        p.about role="status" {}
    }
}

/// The lanes and what is left out between operations.
fn background(union: &Union, layout: &Layout) -> Markup {
    html! {
        g aria-hidden="true" {
            @for (lane, place) in union.lanes.iter().zip(0..) {
                @let top = AXIS + LANE * place;
                // On paper the drawing may be made smaller, and its names with it.
                text.lane-name x="-8" y=(top + BAR_TOP + 16) text-anchor="end" {
                    (crate::text::clean(short_name(&lane.name).0, 16))
                }
                rect.lane x="0" y=(top) width=(layout.width) height=(LANE) {}
                @let middle = top + BAR_TOP + BAR / 2;
                line.rail x1="0" y1=(middle) x2=(layout.width) y2=(middle) {}
            }
            @for gap in &layout.gaps {
                g.gap data-operations=(gap.operations) {
                    rect x=(gap.x) y="0" width=(gap.width) height=(layout.height) {}
                    text x=(gap.x + gap.width / 2) y="15" text-anchor="middle" { (gap.text) }
                }
            }
        }
    }
}

fn bar(
    union: &Union,
    operation: &Operation,
    number: usize,
    layout: &Layout,
    place: usize,
) -> Markup {
    let Some(bar) = layout.bars.get(place) else {
        return html! {};
    };
    let label = label(union, operation);
    let kind = kind(operation);
    let inner = html! {
        title { (label) }
        text.number x=(bar.x) y="15" { (operation.sequence) }
        line.tick x1=(bar.x) y1="19" x2=(bar.x) y2=(bar.y) {}
        @if !bar.mark.is_empty() {
            text.mark x=(bar.x) y=(bar.y - 5) { (bar.mark) }
        }
        rect.bar x=(bar.x) y=(bar.y) width=(bar.width) height=(BAR) rx="4" {}
        text.text x=(bar.x + 8) y=(bar.y + 17) { (bar.text) }
    };
    let findings: BTreeSet<usize> = operation.parts.iter().map(|part| part.finding).collect();
    let id = bar_id(number, operation.sequence);
    let Some(&first) = findings.first() else {
        return html! {
            g.op.(kind) id=(id) role="img" aria-label=(label) data-sequence=(operation.sequence) {
                (inner)
            }
        };
    };
    let level = if operation.parts.iter().any(|part| part.error) {
        "error"
    } else {
        "warning"
    };
    html! {
        a.op.marked.(kind).(level) id=(id) href={ "#" (finding_id(first)) } aria-label=(label)
            data-sequence=(operation.sequence) data-findings=(numbers(&findings)) {
            (inner)
        }
    }
}

/// An operation in words: what, where, and in which findings.
fn label(union: &Union, operation: &Operation) -> String {
    let mut label = format!(
        "operation {}: {}",
        thousands(operation.sequence),
        text(&operation.api, 160)
    );
    if let Some(kernel) = &operation.kernel {
        label.push_str(", kernel ");
        label.push_str(&text(kernel, 300));
    }
    if let Some(lane) = union.lanes.get(operation.lane) {
        label.push_str(", ");
        label.push_str(&text(&lane.name, 160));
        if devices(union) {
            label.push_str(&format!(", device {}", lane.device));
        }
    }
    for part in operation.parts.iter().take(NAMED) {
        label.push_str(&format!(
            "; {} of finding {} ({})",
            role_name(part.role),
            part.finding + 1,
            text(&part.rule, 20)
        ));
    }
    if let Some(others @ 1..) = operation.parts.len().checked_sub(NAMED) {
        label.push_str(&format!("; and in {others} more places"));
    }
    label
}

/// The kinds of operations that are drawn apart.
fn kind(operation: &Operation) -> &'static str {
    let api = operation.api.as_str();
    let is = |words: &[&str]| words.iter().any(|word| api.contains(word));
    if operation.kernel.is_some() || is(&["Launch"]) {
        "kernel"
    } else if is(&["Synchronize", "Wait", "Event", "Query"]) {
        "order"
    } else if is(&[
        "Malloc", "Alloc", "Free", "Create", "Destroy", "Register", "Unmap",
    ]) {
        "memory"
    } else {
        "other"
    }
}

fn devices(union: &Union) -> bool {
    let mut streams = union.lanes.iter().filter(|lane| lane.name != "host");
    let first = streams.next().map(|lane| lane.device);
    streams.any(|lane| Some(lane.device) != first)
}

/// A stream's name, and what stands behind it in brackets.
fn short_name(name: &str) -> (&str, &str) {
    match name.split_once(" (") {
        Some((name, rest)) => (name, rest.strip_suffix(')').unwrap_or(rest)),
        None => (name, ""),
    }
}

/// A stream's name, and what else is known of it in small.
fn lane_title(lane: &Lane, several: bool) -> Markup {
    let name = text(&lane.name, 160);
    let (name, rest) = short_name(&name);
    html! {
        div.lane-title title=(text(&lane.name, 160)) {
            b { (name) }
            @if several && lane.name != "host" { span { "device " (lane.device) } }
            @if !rest.is_empty() { span { (rest) } }
        }
    }
}

/// The same as a table.
pub(super) fn table(union: &Union, number: usize, title: &str) -> Markup {
    let mut before: BTreeMap<u64, Vec<(u64, &str)>> = BTreeMap::new();
    for edge in &union.edges {
        before
            .entry(edge.to)
            .or_default()
            .push((edge.from, &edge.reason));
    }
    html! {
        details.table open {
            summary { "Operations of " (title) ", in words" }
            div.wide { table {
                thead { tr {
                    th scope="col" { "#" } th scope="col" { "Where" } th scope="col" { "Call" }
                    th scope="col" { "Ordered after" } th scope="col" { "Findings" }
                } }
                tbody {
                    @for operation in &union.operations { (row(union, operation, number, &before)) }
                }
            } }
        }
    }
}

fn row(
    union: &Union,
    operation: &Operation,
    number: usize,
    before: &BTreeMap<u64, Vec<(u64, &str)>>,
) -> Markup {
    let lane = union.lanes.get(operation.lane);
    html! {
        tr {
            th scope="row" {
                a href={ "#" (bar_id(number, operation.sequence)) } { (thousands(operation.sequence)) }
            }
            td { @if let Some(lane) = lane {
                (text(&lane.name, 160))
                @if devices(union) && lane.name != "host" { ", device " (lane.device) }
            } }
            td { code { (text(&operation.api, 160)) }
                @if let Some(kernel) = &operation.kernel { " " code { (text(kernel, 300)) } }
            }
            td { @for (place, (from, reason)) in
                before.get(&operation.sequence).into_iter().flatten().enumerate() {
                @if place > 0 { ", " } (thousands(*from)) " (" (text(reason, 200)) ")"
            } }
            td { @for (place, part) in operation.parts.iter().enumerate() {
                @if place > 0 { ", " }
                a href={ "#" (finding_id(part.finding)) } {
                    (text(&part.rule, 20)) " " (role_name(part.role))
                }
            } }
        }
    }
}
