//! One timeline of a process, out of those of its findings.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use streamcheck_engine::{Lane, Role, TimelineEdge};

use crate::json::{Finding, Report};
use crate::places::missing;
use crate::story::bare_name;

/// The lane of calls that go to no stream.
const HOST: &str = "host";

/// Operations that are drawn of all processes.
const OPERATIONS: usize = 6000;
/// Operations that are drawn of one process, at most and at least.
const OF_ONE: (usize, usize) = (1500, 60);

/// What happened around the findings of a process.
#[derive(Debug, Default)]
pub(super) struct Union {
    /// The host first, then the streams.
    pub(super) lanes: Vec<Lane>,
    /// By rising sequence.
    pub(super) operations: Vec<Operation>,
    /// Between operations that are there, each with another lane.
    pub(super) edges: Vec<TimelineEdge>,
    /// What findings say is not ordered, and which findings.
    pub(super) missing: BTreeMap<Missing, BTreeSet<usize>>,
    /// Operations that were left out for their number.
    pub(super) dropped: usize,
}

/// One operation.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) sequence: u64,
    pub(super) lane: usize,
    pub(super) api: String,
    pub(super) kernel: Option<String>,
    /// The findings whose story it's part of, by number in the report, and its part in it.
    pub(super) parts: Vec<Part>,
}

/// An operation's part in a finding.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) finding: usize,
    pub(super) rule: String,
    pub(super) role: Role,
    pub(super) error: bool,
}

/// Two operations that a finding says are not ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Missing {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Operation {
    /// What stands in its bar.
    pub(super) fn text(&self) -> &str {
        self.kernel.as_deref().map_or(&self.api, bare_name)
    }

    /// What stands above its bar: the finding and the part in it.
    pub(super) fn mark(&self) -> String {
        let Some(first) = self.parts.first() else {
            return String::new();
        };
        let others = self
            .parts
            .iter()
            .filter(|part| part.finding != first.finding)
            .map(|part| part.finding)
            .collect::<BTreeSet<_>>()
            .len();
        let rule = crate::text::clean(&first.rule, 10);
        let role = role_name(first.role);
        match others {
            0 => format!("{rule} {role}"),
            _ => format!("{rule} {role} +{others}"),
        }
    }
}

/// Findings' numbers, apart by spaces.
pub(super) fn numbers(findings: &BTreeSet<usize>) -> String {
    let numbers: Vec<String> = findings.iter().map(usize::to_string).collect();
    numbers.join(" ")
}

/// A role as a noun.
pub(super) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Allocation => "allocation",
        Role::Use => "use",
        Role::Free => "free",
        Role::Copy => "copy",
        Role::Event => "event",
        Role::OtherAccess => "other access",
        Role::Node => "node",
    }
}

/// The timelines of a report's processes, in the processes' order.
pub(super) fn unions(report: &Report) -> Vec<Union> {
    let processes = report.processes.len().max(1);
    let most = (OPERATIONS / processes).clamp(OF_ONE.1, OF_ONE.0);
    let mut findings: Vec<Vec<(usize, &Finding)>> = vec![Vec::new(); processes];
    for (number, finding) in report.findings.iter().enumerate() {
        if let Some(own) = findings.get_mut(finding.process.unwrap_or(0)) {
            own.push((number, finding));
        }
    }
    findings.iter().map(|own| union(own, most)).collect()
}

/// The operations of one process's findings, by number, and the lanes that they are in.
fn gathered(findings: &[(usize, &Finding)]) -> (Vec<Lane>, BTreeMap<u64, Operation>) {
    let mut lanes: Vec<Lane> = Vec::new();
    let mut known: HashMap<(String, u16), usize> = HashMap::new();
    let mut lane_of = |name: &str, device: u16| -> usize {
        // The host is no device's.
        let device = if name == HOST { 0 } else { device };
        *known.entry((name.to_owned(), device)).or_insert_with(|| {
            lanes.push(Lane {
                name: name.to_owned(),
                device,
            });
            lanes.len() - 1
        })
    };
    let mut all: BTreeMap<u64, Operation> = BTreeMap::new();
    for (_, finding) in findings {
        let timeline = &finding.timeline;
        for operation in &timeline.operations {
            let Some(lane) = timeline.lanes.get(operation.lane) else {
                continue;
            };
            all.entry(operation.sequence).or_insert_with(|| Operation {
                sequence: operation.sequence,
                lane: lane_of(&lane.name, lane.device),
                api: operation.api.clone(),
                kernel: operation.kernel.clone(),
                parts: Vec::new(),
            });
        }
    }
    for &(number, finding) in findings {
        for event in &finding.events {
            let operation = all.entry(event.sequence).or_insert_with(|| Operation {
                sequence: event.sequence,
                lane: lane_of(event.stream.as_deref().unwrap_or(HOST), event.device),
                api: event.api.clone(),
                kernel: event.kernel.clone(),
                parts: Vec::new(),
            });
            operation.parts.push(Part {
                finding: number,
                rule: finding.rule.clone(),
                role: event.role,
                error: finding.level == "error",
            });
        }
    }
    (lanes, all)
}

/// The timeline of one process, of `most` operations at most.
fn union(findings: &[(usize, &Finding)], most: usize) -> Union {
    let (lanes, mut all) = gathered(findings);
    let mut union = Union {
        lanes,
        ..Union::default()
    };
    union.dropped = cap(&mut all, most);
    let lane = |sequence| all.get(&sequence).map(|operation| operation.lane);
    let mut seen = BTreeSet::new();
    for edge in findings
        .iter()
        .flat_map(|(_, finding)| &finding.timeline.edges)
    {
        let across = match (lane(edge.from), lane(edge.to)) {
            (Some(from), Some(to)) => from != to && edge.from < edge.to,
            _ => false,
        };
        if across && seen.insert((edge.from, edge.to, &edge.reason)) {
            union.edges.push(edge.clone());
        }
    }
    for &(number, finding) in findings {
        if let Some((from, to)) = missing(finding)
            && lane(from).is_some()
            && lane(to).is_some()
        {
            let missing = Missing { from, to };
            union.missing.entry(missing).or_default().insert(number);
        }
    }
    union.operations = all.into_values().collect();
    union.order_lanes();
    union
}

/// Leaves out what is too much, the findings' own calls last; how many.
fn cap(all: &mut BTreeMap<u64, Operation>, most: usize) -> usize {
    let before = all.len();
    if before <= most {
        return 0;
    }
    let marked = all.values().filter(|own| !own.parts.is_empty()).count();
    let mut others = most.saturating_sub(marked);
    let mut of_findings = most;
    all.retain(|_, operation| {
        let room = if operation.parts.is_empty() {
            &mut others
        } else {
            &mut of_findings
        };
        let keep = *room > 0;
        *room = room.saturating_sub(1);
        keep
    });
    before - all.len()
}

impl Union {
    /// Whether the operation with this sequence is there.
    pub(super) fn draws(&self, sequence: u64) -> bool {
        self.operations
            .binary_search_by_key(&sequence, |operation| operation.sequence)
            .is_ok()
    }

    /// Sorts the lanes and leaves out those without an operation.
    fn order_lanes(&mut self) {
        let used: BTreeSet<usize> = self.operations.iter().map(|own| own.lane).collect();
        let mut order: Vec<usize> = used.into_iter().collect();
        order.sort_by_key(|&place| self.lanes.get(place).map(lane_key));
        let new: HashMap<usize, usize> = order
            .iter()
            .enumerate()
            .map(|(new, &old)| (old, new))
            .collect();
        for operation in &mut self.operations {
            operation.lane = new.get(&operation.lane).copied().unwrap_or(0);
        }
        self.lanes = order
            .iter()
            .filter_map(|&place| self.lanes.get(place).cloned())
            .collect();
    }
}

/// The host, then devices, then names, in which numbers count as numbers.
fn lane_key(lane: &Lane) -> (bool, u16, String, u64, String) {
    let (name, number) = match lane.name.find(|c: char| c.is_ascii_digit()) {
        Some(digits) => {
            let rest = &lane.name[digits..];
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            (
                &lane.name[..digits],
                rest[..end].parse().unwrap_or(u64::MAX),
            )
        }
        None => (&*lane.name, 0),
    };
    (
        lane.name != HOST,
        lane.device,
        name.to_owned(),
        number,
        lane.name.clone(),
    )
}
