//! The nodes of an executable graph, in an order in which they may run, and what is wrong
//! among them.
//!
//! Inside a graph only its edges order. That is judged once, when the graph is
//! instantiated or changed: a launch adds nothing to it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use streamcheck_model::{FreeKind, MemoryKind};

use crate::clock::{Epoch, Slot, Time};
use crate::engine::{Engine, push_once};
use crate::graphs::{Bound, Graph, GraphAllocation, Graphs, Node, NodeTouch, Sort, Work, holding};
use crate::op::{Access, OpRef};
use crate::rules::RuleCode;
use crate::rules::violation::{Block, Violation};
use crate::shadow::Shadow;

/// A node of an executable graph; of a child graph's nodes each is one.
#[derive(Debug)]
pub(crate) struct Flat {
    pub(crate) op: OpRef,
    pub(crate) work: Arc<Work>,
    /// The nodes right before it, which all stand earlier in the list.
    before: SmallVec<[u32; 2]>,
    /// Its order to others is not known.
    pub(crate) loose: bool,
    /// It may run at a launch, or not.
    pub(crate) possible: bool,
    pub(crate) enabled: bool,
    /// Where its graph's allocations begin in [`Nodes::allocations`].
    base: u32,
}

impl Flat {
    /// What memory is to the executable graph that was `bound` in the node's own.
    pub(crate) fn bound(&self, bound: Bound, address: u64, all: &[GraphAllocation]) -> Bound {
        match bound {
            Bound::Inside(place) => Bound::Inside(place + self.base),
            Bound::Outside(owner) => Bound::Outside(owner),
            // A child graph may use what its parent allocates.
            Bound::Nothing => holding(all, address).map_or(Bound::Nothing, Bound::Inside),
        }
    }

    /// The place of what an allocation node allocates.
    pub(crate) fn allocates(&self) -> Option<u32> {
        match *self.work {
            Work::Allocate(place) => Some(place + self.base),
            _ => None,
        }
    }
}

/// The nodes of an executable graph.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) list: Vec<Flat>,
    /// Where each of the graph's own nodes stands; `None` for removed ones.
    pub(crate) places: Vec<Option<u32>>,
    pub(crate) allocations: Vec<GraphAllocation>,
    /// Not all nodes are there.
    pub(crate) unknown: bool,
    /// What nodes of these sorts touch is not known.
    pub(crate) doubted: SmallVec<[Sort; 4]>,
}

/// How deep child graphs and bodies lie in each other.
const DEPTH: usize = 8;

impl Nodes {
    pub(crate) fn of(graphs: &Graphs, graph: &Graph) -> Self {
        let mut nodes = Self::default();
        nodes.places = nodes.lay(graphs, graph, None, (false, false), DEPTH);
        nodes
    }

    /// Puts the nodes of a graph behind what there is, after the node `entry`. Where each
    /// stands, or what comes last of a node that is several.
    fn lay(
        &mut self,
        graphs: &Graphs,
        graph: &Graph,
        entry: Option<u32>,
        (loose, possible): (bool, bool),
        depth: usize,
    ) -> Vec<Option<u32>> {
        let base = self.allocations.len() as u32;
        self.allocations.extend_from_slice(&graph.allocations);
        self.unknown |= graph.unknown;
        for sort in &graph.doubted {
            self.doubt(*sort);
        }
        let (sorted, cyclic) = sorted(graph);
        let loose = loose || graph.loose || cyclic;
        let mut places: Vec<Option<u32>> = vec![None; graph.nodes.len()];
        for place in sorted {
            let node = &graph.nodes[place as usize];
            if self.list.len() + 2 > Graphs::MOST_NODES {
                self.unknown = true;
                break;
            }
            let mut before: SmallVec<[u32; 2]> = SmallVec::new();
            before.extend(
                node.before
                    .iter()
                    .filter_map(|before| places.get(*before as usize).copied().flatten()),
            );
            if before.is_empty() {
                before.extend(entry);
            }
            let flat = Flat {
                op: node.op,
                work: node.work.clone(),
                before,
                loose: loose || node.loose,
                possible,
                enabled: true,
                base,
            };
            let first = self.push(flat);
            let inner: SmallVec<[(&Graph, bool); 2]> = match &*node.work {
                Work::Child(child) => SmallVec::from_iter([(&**child, possible)]),
                Work::Conditional(bodies) => bodies
                    .iter()
                    .filter_map(|body| Some((&**graphs.get(*body)?, true)))
                    .collect(),
                _ => SmallVec::new(),
            };
            places[place as usize] = Some(first);
            if inner.is_empty() {
                continue;
            }
            if depth == 0 {
                self.unknown = true;
                continue;
            }
            let mut last: SmallVec<[u32; 2]> = SmallVec::from_iter([first]);
            for (graph, possible) in inner {
                let loose = loose || node.loose;
                let inner = self.lay(graphs, graph, Some(first), (loose, possible), depth - 1);
                last.extend(inner.into_iter().flatten());
            }
            let exit = Flat {
                op: node.op,
                work: Arc::new(Work::Empty),
                before: last,
                loose: loose || node.loose,
                possible,
                enabled: true,
                base,
            };
            places[place as usize] = Some(self.push(exit));
        }
        places
    }

    pub(crate) fn doubt(&mut self, sort: Sort) {
        if !self.doubted.contains(&sort) {
            self.doubted.push(sort);
        }
    }

    fn push(&mut self, flat: Flat) -> u32 {
        self.list.push(flat);
        self.list.len() as u32 - 1
    }
}

/// The nodes that are there, each after those before it; true if some go in a circle,
/// which then come last.
fn sorted(graph: &Graph) -> (Vec<u32>, bool) {
    let nodes = &graph.nodes;
    let there = |place: &u32| !nodes[*place as usize].gone;
    let all = (0..nodes.len() as u32).filter(there);
    let backward = |(place, node): (usize, &Node)| {
        let later = |before: &&u32| **before as usize >= place;
        node.before.iter().filter(later).any(there)
    };
    if !nodes.iter().enumerate().any(backward) {
        return (all.collect(), false);
    }
    let mut after: Vec<SmallVec<[u32; 2]>> = vec![SmallVec::new(); nodes.len()];
    let mut open: Vec<usize> = vec![0; nodes.len()];
    for (place, node) in nodes.iter().enumerate() {
        for before in node.before.iter().copied().filter(there) {
            open[place] += 1;
            after[before as usize].push(place as u32);
        }
    }
    let mut ready: Vec<u32> = (0..)
        .take(nodes.len())
        .filter(|p| open[*p as usize] == 0)
        .collect();
    let mut next = 0;
    while let Some(&place) = ready.get(next) {
        next += 1;
        for later in &after[place as usize] {
            open[*later as usize] -= 1;
            if open[*later as usize] == 0 {
                ready.push(*later);
            }
        }
    }
    let cyclic = ready.len() < nodes.len();
    ready.extend((0..nodes.len() as u32).filter(|place| open[*place as usize] != 0));
    ready.retain(|place| there(place));
    (ready, cyclic)
}

/// The order among nodes, as a clock for each: nodes in a row are one line of it.
struct Clocks {
    /// The line of each node, and its place on it, from 1.
    at: Vec<(u32, u32)>,
    clocks: Vec<Box<[u32]>>,
}

impl Clocks {
    /// Numbers in all clocks.
    const MOST: usize = 1 << 24;

    /// `None` if the graph is too wide.
    fn of(list: &[Flat]) -> Option<Self> {
        let mut at: Vec<(u32, u32)> = Vec::with_capacity(list.len());
        let mut clocks: Vec<Box<[u32]>> = Vec::with_capacity(list.len());
        let mut ends: Vec<u32> = Vec::new();
        let mut numbers = 0;
        for (place, node) in (0..).zip(list) {
            let mut clock: Vec<u32> = Vec::new();
            for before in &node.before {
                let theirs = &clocks[*before as usize];
                if clock.len() < theirs.len() {
                    clock.resize(theirs.len(), 0);
                }
                for (mine, theirs) in clock.iter_mut().zip(theirs) {
                    *mine = (*mine).max(*theirs);
                }
            }
            let extends = |before: &&u32| ends[at[**before as usize].0 as usize] == **before;
            let (line, time) = match node.before.iter().find(extends) {
                Some(before) => (at[*before as usize].0, at[*before as usize].1 + 1),
                None => {
                    ends.push(place);
                    (ends.len() as u32 - 1, 1)
                }
            };
            ends[line as usize] = place;
            if clock.len() <= line as usize {
                clock.resize(line as usize + 1, 0);
            }
            clock[line as usize] = time;
            numbers += clock.len();
            if numbers > Self::MOST {
                return None;
            }
            at.push((line, time));
            clocks.push(clock.into());
        }
        Some(Self { at, clocks })
    }

    fn epoch(&self, node: u32) -> Epoch {
        let (line, time) = self.at[node as usize];
        Epoch {
            slot: line as Slot,
            time: Time::from(time),
        }
    }

    fn knows(&self, later: u32, epoch: Epoch) -> bool {
        let clock = &self.clocks[later as usize];
        let time = clock.get(epoch.slot as usize).copied().unwrap_or(0);
        Time::from(time) >= epoch.time
    }

    fn before(&self, earlier: u32, later: u32) -> bool {
        self.knows(later, self.epoch(earlier))
    }
}

/// An allocation node's memory, while its graph is judged.
#[derive(Debug, Default)]
struct Life {
    node: Option<u32>,
    frees: SmallVec<[u32; 1]>,
    used: bool,
}

impl Engine {
    /// Violations that one graph may have by itself.
    const MOST_INSIDE: usize = 64;

    /// What is wrong among the nodes of an executable graph.
    pub(crate) fn judge_inside(&mut self, nodes: &Nodes, found: &mut Vec<Violation>) {
        let Some(clocks) = Clocks::of(&nodes.list) else {
            self.blind_spot("graph-too-wide", Default::default());
            return;
        };
        let most = found.len() + Self::MOST_INSIDE;
        let certain = |node: &Flat| node.enabled && !node.loose && !node.possible;
        let mut lives: Vec<Life> = Vec::new();
        lives.resize_with(nodes.allocations.len(), Life::default);
        for (place, node) in (0..).zip(&nodes.list).filter(|(_, node)| certain(node)) {
            if let Some(allocation) = node.allocates() {
                lives[allocation as usize].node = Some(place);
            }
        }
        for (place, node) in (0..).zip(&nodes.list).filter(|(_, node)| certain(node)) {
            if let Work::Free { address, bound } = *node.work
                && let Bound::Inside(allocation) = node.bound(bound, address, &nodes.allocations)
                && !is_of_another(nodes, &lives, &clocks, (place, address), allocation)
            {
                lives[allocation as usize].frees.push(place);
            }
        }
        let mut shadows: FxHashMap<(u8, u64, u64), Shadow> = FxHashMap::default();
        for (place, node) in (0..).zip(&nodes.list).filter(|(_, node)| certain(node)) {
            let Work::Touches(sort, touches) = &*node.work else {
                continue;
            };
            if nodes.doubted.contains(sort) {
                continue;
            }
            let first = found.len();
            for touch in touches {
                if found.len() >= most {
                    return;
                }
                let address = touch.footprint.address();
                let bound = node.bound(touch.bound, address, &nodes.allocations);
                let Some((key, block)) = self.block_inside(nodes, bound, touch) else {
                    continue;
                };
                let access = Access {
                    epoch: clocks.epoch(place),
                    op: node.op,
                };
                if let Bound::Inside(allocation) = bound {
                    if is_of_another(nodes, &lives, &clocks, (place, address), allocation) {
                        continue;
                    }
                    let life = &mut lives[allocation as usize];
                    life.used = true;
                    if outside_its_life(life, &clocks, nodes, (place, block), found, first) {
                        continue;
                    }
                }
                let shadow = shadows.entry(key).or_default();
                let known = |old: &Access| clocks.knows(place, old.epoch);
                if let Some(other) = shadow.race(touch.footprint, touch.mode, known) {
                    let violation = Violation {
                        address: touch.footprint.address(),
                        ..inside(RuleCode::SC109, node.op, block, other.op)
                    };
                    push_once(found, first, violation);
                }
                self.evicted_accesses +=
                    shadow.add(touch.footprint, touch.mode, access, known, |_| false);
            }
        }
        for (allocation, life) in nodes.allocations.iter().zip(&lives) {
            freed_twice(allocation, life, &clocks, nodes, found);
            let Some(birth) = life.node.filter(|_| !life.used) else {
                continue;
            };
            for free in life
                .frees
                .iter()
                .filter(|free| !clocks.before(birth, **free))
            {
                let (at, birth) = (nodes.list[*free as usize].op, nodes.list[birth as usize].op);
                found.push(inside(RuleCode::SC104, at, made_inside(allocation), birth));
            }
        }
    }

    /// What block a touch is of, and a name for it.
    fn block_inside(
        &self,
        nodes: &Nodes,
        bound: Bound,
        touch: &NodeTouch,
    ) -> Option<((u8, u64, u64), Block)> {
        Some(match bound {
            Bound::Inside(place) => {
                let made = &nodes.allocations[place as usize];
                ((0, u64::from(place), 0), made_inside(made))
            }
            Bound::Outside(owner) => ((1, owner.0, owner.1), self.graphs.owner(owner)?.block),
            Bound::Nothing => {
                let block = self.memory.live(touch.footprint.address())?;
                ((2, block.address, 0), block.into())
            }
        })
    }
}

/// Whether a node means the memory of another allocation node than the newest of that
/// address: the edges put it behind that one, and not behind the newest.
fn is_of_another(
    nodes: &Nodes,
    lives: &[Life],
    clocks: &Clocks,
    (place, address): (u32, u64),
    newest: u32,
) -> bool {
    let known = |life: &Life| life.node.is_some_and(|birth| clocks.before(birth, place));
    let lies_there = |(made, life): (&GraphAllocation, &Life)| made.holds(address) && known(life);
    !known(&lives[newest as usize]) && nodes.allocations.iter().zip(lives).any(lies_there)
}

/// Reports the nodes that free what another node of the graph frees.
fn freed_twice(
    allocation: &GraphAllocation,
    life: &Life,
    clocks: &Clocks,
    nodes: &Nodes,
    found: &mut Vec<Violation>,
) {
    let Some(birth) = life.node else {
        return;
    };
    let mut frees = life
        .frees
        .iter()
        .filter(|free| clocks.before(birth, **free));
    let Some(first) = frees.next() else {
        return;
    };
    for again in frees {
        let op = |node: u32| nodes.list[node as usize].op;
        found.push(Violation {
            address: allocation.address,
            free: Some(FreeKind::Async),
            ..inside(
                RuleCode::SC106,
                op(*again),
                made_inside(allocation),
                op(*first),
            )
        });
    }
}

/// Whether a node uses an allocation node's memory outside of its life, which is then
/// reported.
fn outside_its_life(
    life: &Life,
    clocks: &Clocks,
    nodes: &Nodes,
    (place, block): (u32, Block),
    found: &mut Vec<Violation>,
    first: usize,
) -> bool {
    let op = |node: u32| nodes.list[node as usize].op;
    let unborn = life
        .node
        .filter(|birth| !clocks.before(*birth, place))
        .map(|birth| inside(RuleCode::SC101, op(place), block, op(birth)));
    let mut outside = unborn.is_some();
    if let Some(violation) = unborn {
        push_once(found, first, violation);
    }
    for free in &life.frees {
        if clocks.before(*free, place) {
            if !outside {
                let late = inside(RuleCode::SC102, op(place), block, op(*free));
                push_once(found, first, late);
            }
            outside = true;
        } else if !clocks.before(place, *free) {
            let early = inside(RuleCode::SC103, op(*free), block, op(place));
            push_once(found, first, early);
        }
    }
    outside
}

fn made_inside(allocation: &GraphAllocation) -> Block {
    Block {
        address: allocation.address,
        size: allocation.size,
        kind: MemoryKind::StreamOrdered,
        birth: nowhere(allocation.op),
    }
}

/// `at` should come after `after` in its graph.
fn inside(rule: RuleCode, at: OpRef, block: Block, after: OpRef) -> Violation {
    Violation {
        block: Some(block),
        after: Some(nowhere(after)),
        inside: true,
        ..Violation::new(rule, at)
    }
}

/// What is on no stream's timeline.
fn nowhere(op: OpRef) -> Access {
    Access {
        epoch: Epoch { slot: 0, time: 0 },
        op,
    }
}
