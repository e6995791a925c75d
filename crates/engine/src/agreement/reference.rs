//! The model of `docs/semantics.md` without any economy: a node for every
//! operation, edges as the text has them, and "ordered?" answered by walking.

use std::collections::{HashMap, HashSet};

use streamcheck_model::{
    Call, Condition, ContextId, DeviceId, Flag, FreeKind, MemoryKind, Mode, Region, StreamRef,
};

/// An operation, by its number.
pub(super) type Node = usize;

/// Why one node comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Promised,
    /// A wait that NVIDIA does not promise.
    Seen,
    /// The other end is out of sight, so everything is taken to come before.
    Guess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Legacy,
    Blocking,
    NonBlocking,
}

/// A stream's identity, by its number.
pub(super) type LineId = usize;

#[derive(Debug)]
struct Line {
    kind: Kind,
    device: DeviceId,
    context: ContextId,
    /// What comes before all that it is ever given.
    start: Vec<Node>,
    last: Option<Node>,
    /// It may be given more.
    alive: bool,
}

/// Which streams a call without one means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    Device(DeviceId),
    /// Without streams that take no part in the legacy stream's barriers.
    Blocking(DeviceId),
    Context(DeviceId, ContextId),
}

impl Scope {
    fn means(self, kind: Kind) -> bool {
        kind != Kind::NonBlocking || !matches!(self, Self::Blocking(_))
    }

    /// A green context is part of its device's primary one.
    fn holds(self, device: DeviceId, context: ContextId) -> bool {
        match self {
            Self::Device(whole) | Self::Blocking(whole) => whole == device,
            Self::Context(of, whole) => {
                whole == context || whole.is_primary() && context.is_green() && of == device
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody was seen to end it.
    Open,
    Over,
}

#[derive(Debug)]
struct Wait {
    flag: Flag,
    value: u64,
    condition: Condition,
    node: Node,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Footprint {
    /// The kernel adds what the number stands for, unless it is 0.
    Pointer(u64, u32),
    Bytes(Region),
}

impl Footprint {
    pub(super) fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pointer(a, by), Self::Pointer(b, other)) => (a, by) == (b, other),
            (Self::Pointer(p, by), Self::Bytes(region))
            | (Self::Bytes(region), Self::Pointer(p, by)) => {
                *by == 0 && rows(region).any(|(start, end)| (start..end).contains(p))
            }
            (Self::Bytes(a), Self::Bytes(b)) => {
                rows(a).any(|(start, end)| rows(b).any(|(s, e)| start.max(s) < end.min(e)))
            }
        }
    }
}

fn rows(region: &Region) -> impl Iterator<Item = (u64, u64)> + use<> {
    let Region {
        address,
        width,
        rows,
        pitch,
    } = *region;
    (0..rows).map(move |row| (address + row * pitch, address + row * pitch + width))
}

/// Whether two accesses must not meet: one writes, or one is atomic and the other reads.
pub(super) fn conflict(a: Mode, b: Mode) -> bool {
    let either = |mode| a == mode || b == mode;
    either(Mode::Write) || either(Mode::Update) && either(Mode::Read)
}

/// What an operation does to one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) node: Node,
    pub(super) line: LineId,
    pub(super) what: Footprint,
    pub(super) mode: Mode,
    /// It may come before earlier work of its stream.
    pub(super) early: bool,
    /// It is over when the call returns.
    pub(super) over: bool,
    /// Streams signal each other by it: no race.
    pub(super) signals: bool,
    /// Set if its lifetime was wrong, which says it all.
    pub(super) unfit: bool,
    /// The step, as the engine's call site.
    pub(super) site: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Live,
    Freed,
    /// Its context ended, or it was host memory: nothing is known of the address.
    Forgotten,
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) base: u64,
    pub(super) size: u64,
    pub(super) kind: MemoryKind,
    pub(super) device: DeviceId,
    pub(super) context: ContextId,
    pub(super) site: u32,
    pub(super) birth: Option<Node>,
    pub(super) uses: Vec<Access>,
    pub(super) free: Option<Node>,
    pub(super) fate: Fate,
    /// The block that the pool recycled for it.
    pub(super) before: Option<usize>,
}

impl Block {
    fn ordered(&self) -> bool {
        self.kind == MemoryKind::StreamOrdered
    }
}

/// A finding: the rule, the block's site, the site of the call that it is about.
pub(super) type Verdict = (&'static str, u32, u32);

#[derive(Default)]
pub(super) struct Reference {
    before: Vec<Vec<(Node, Edge)>>,
    /// Whether each node is the host's.
    hosts: Vec<bool>,
    /// Whether there is an edge that is not promised.
    leans: bool,
    /// Operations behind a wait that was open when they were submitted.
    unknown: HashSet<Node>,
    pub(super) host: Option<Node>,
    lines: Vec<Line>,
    created: HashMap<u64, LineId>,
    legacy: HashMap<ContextId, LineId>,
    per_thread: HashMap<(u32, ContextId), LineId>,
    /// What streams of a scope come after, those made later too.
    scoped: Vec<(Scope, Node)>,
    pub(super) events: HashMap<u64, Option<Node>>,
    writes: HashMap<Flag, Vec<(u64, Node)>>,
    /// Writes, each with the lines of which it ended a wait.
    spent: HashSet<(Node, LineId)>,
    waits: Vec<Wait>,
    /// The pasts of writes of values that the host may see.
    pub(super) shown: Vec<Vec<bool>>,
    pub(super) blocks: Vec<Block>,
}

impl Reference {
    fn node(&mut self, before: impl IntoIterator<Item = (Node, Edge)>) -> Node {
        let before: Vec<(Node, Edge)> = before.into_iter().collect();
        self.leans |= before.iter().any(|(_, edge)| *edge == Edge::Seen);
        self.before.push(before);
        self.hosts.push(false);
        self.before.len() - 1
    }

    /// For each node, whether it comes before `from` or is it, by the edges that
    /// `follow` takes. What the host knows complete was submitted before.
    fn walk(&self, from: Option<Node>, follow: impl Fn(Node, Edge) -> bool) -> Vec<bool> {
        // For each node, the nodes below which it leads to.
        let mut bounds = vec![0; self.before.len()];
        let mut open: Vec<(Node, Node)> = from.map(|node| (node, usize::MAX)).into_iter().collect();
        while let Some((node, bound)) = open.pop() {
            let bound = if self.hosts[node] {
                bound.min(node + 1)
            } else {
                bound
            };
            if bound <= bounds[node] {
                continue;
            }
            bounds[node] = bound;
            for &(earlier, edge) in &self.before[node] {
                if earlier < bound && follow(node, edge) {
                    open.push((earlier, bound));
                }
            }
        }
        bounds.into_iter().map(|bound| bound > 0).collect()
    }

    pub(super) fn past(&self, node: Option<Node>, strict: bool) -> Vec<bool> {
        self.walk(node, |_, edge| !strict || edge != Edge::Seen)
    }

    /// The past as far as it is known and not guessed.
    fn firm(&self, node: Option<Node>) -> Vec<bool> {
        self.walk(node, |_, edge| edge != Edge::Guess)
    }

    // Streams.

    fn add(&mut self, kind: Kind, call: &Call) -> LineId {
        let (device, context) = (call.device, call.context);
        let start = self
            .scoped
            .iter()
            .filter(|(scope, _)| scope.holds(device, context) && scope.means(kind))
            .map(|(_, node)| *node)
            .collect();
        self.lines.push(Line {
            kind,
            device,
            context,
            start,
            last: None,
            alive: true,
        });
        self.lines.len() - 1
    }

    pub(super) fn create(&mut self, handle: u64, blocking: bool, call: &Call) {
        let kind = if blocking {
            Kind::Blocking
        } else {
            Kind::NonBlocking
        };
        // One that had the handle was destroyed out of sight.
        self.destroy(handle);
        let line = self.add(kind, call);
        self.created.insert(handle, line);
    }

    pub(super) fn destroy(&mut self, handle: u64) {
        if let Some(line) = self.created.remove(&handle) {
            self.lines[line].alive = false;
        }
    }

    /// The stream that the call means. One that nobody was seen to create counts as
    /// blocking.
    pub(super) fn resolve(&mut self, stream: StreamRef, call: &Call) -> LineId {
        let thread = (call.thread.0, call.context);
        let known = match stream {
            StreamRef::Legacy => self.legacy.get(&call.context),
            StreamRef::PerThread => self.per_thread.get(&thread),
            StreamRef::Created(handle) => self.created.get(&handle.0),
        };
        if let Some(line) = known {
            return *line;
        }
        match stream {
            StreamRef::Legacy => {
                let line = self.add(Kind::Legacy, call);
                self.legacy.insert(call.context, line);
                line
            }
            StreamRef::PerThread => {
                let line = self.add(Kind::Blocking, call);
                self.per_thread.insert(thread, line);
                line
            }
            StreamRef::Created(handle) => {
                self.create(handle.0, true, call);
                self.created[&handle.0]
            }
        }
    }

    /// Everything ever submitted.
    fn everything(&self) -> Vec<(Node, Edge)> {
        let ends = self
            .lines
            .iter()
            .flat_map(|line| line.start.iter().copied().chain(line.last));
        ends.map(|node| (node, Edge::Guess)).collect()
    }

    fn blocking_work(&self, context: ContextId) -> Vec<Node> {
        self.lines
            .iter()
            .filter(|line| line.kind == Kind::Blocking && line.context == context)
            .filter_map(|line| line.last)
            .collect()
    }

    /// An operation on a stream, which also comes after the `others`.
    fn submit_after(&mut self, id: LineId, others: Vec<(Node, Edge)>) -> Node {
        let Line {
            kind,
            context,
            ref start,
            last,
            ..
        } = self.lines[id];
        let mut before: Vec<Node> = start.clone();
        before.extend(last.into_iter().chain(self.host));
        match kind {
            Kind::Legacy => before.extend(self.blocking_work(context)),
            Kind::Blocking => before.extend(
                self.legacy
                    .get(&context)
                    .and_then(|legacy| self.lines[*legacy].last),
            ),
            Kind::NonBlocking => {}
        }
        let edges = before.into_iter().map(|node| (node, Edge::Promised));
        let node = self.node(edges.chain(others));
        self.lines[id].last = Some(node);
        self.mark_unknown(node);
        node
    }

    pub(super) fn submit(&mut self, id: LineId) -> Node {
        self.submit_after(id, Vec::new())
    }

    /// The stream's last operation.
    pub(super) fn last(&self, id: LineId) -> Node {
        self.lines[id].last.unwrap()
    }

    fn mark_unknown(&mut self, node: Node) {
        if self.waits.iter().all(|wait| wait.state == State::Over) {
            return;
        }
        // What the host knows complete is behind no open wait.
        let past = self.walk(Some(node), |node, _| !self.hosts[node]);
        if self
            .waits
            .iter()
            .any(|wait| wait.state == State::Open && past[wait.node])
        {
            self.unknown.insert(node);
        }
    }

    pub(super) fn is_unknown(&self, node: Node) -> bool {
        self.unknown.contains(&node)
    }

    // The host.

    fn host_after(&mut self, before: Vec<(Node, Edge)>) {
        let host = self.host.map(|host| (host, Edge::Promised));
        let node = self.node(before.into_iter().chain(host));
        self.hosts[node] = true;
        self.host = Some(node);
        if self.waits.iter().all(|wait| wait.state == State::Over) {
            return;
        }
        let known = self.firm(self.host);
        for wait in &mut self.waits {
            if known[wait.node] {
                wait.state = State::Over;
            }
        }
    }

    pub(super) fn host_knows(&mut self, node: Node) {
        self.host_after(vec![(node, Edge::Promised)]);
    }

    /// The call may have waited: its memory could be on either side.
    pub(super) fn host_may_know(&mut self, node: Node) {
        self.host_after(vec![(node, Edge::Guess)]);
    }

    pub(super) fn host_happens_to_know(&mut self, node: Node) {
        self.host_after(vec![(node, Edge::Seen)]);
    }

    pub(super) fn synchronize_stream(&mut self, id: LineId) {
        let line = &self.lines[id];
        let mut before: Vec<Node> = line.start.iter().copied().chain(line.last).collect();
        if line.kind == Kind::Legacy {
            before.extend(self.blocking_work(line.context));
        }
        self.host_after(
            before
                .into_iter()
                .map(|node| (node, Edge::Promised))
                .collect(),
        );
    }

    fn work_of(&self, scope: Scope) -> Vec<Node> {
        self.lines
            .iter()
            .filter(|line| scope.holds(line.device, line.context) && scope.means(line.kind))
            .filter_map(|line| line.last)
            .collect()
    }

    pub(super) fn synchronize(&mut self, scope: Scope, promised: bool) {
        let edge = if promised { Edge::Promised } else { Edge::Seen };
        let before = self.work_of(scope);
        self.host_after(before.into_iter().map(|node| (node, edge)).collect());
    }

    // Events.

    /// A wait for an event that has a record, or of which nothing is known.
    pub(super) fn wait(&mut self, id: LineId, event: u64) -> Node {
        let before = match self.events.get(&event).copied().flatten() {
            Some(record) => vec![(record, Edge::Promised)],
            None => self.everything(),
        };
        self.submit_after(id, before)
    }

    pub(super) fn synchronize_event(&mut self, event: u64) {
        match self.events.get(&event).copied() {
            Some(None) => {}
            Some(Some(record)) => self.host_knows(record),
            None => {
                let before = self.everything();
                self.host_after(before);
            }
        }
    }

    // Contexts and devices.

    /// A point after all work of the scopes, on no stream.
    fn gather(&mut self, scopes: &[Scope]) -> Node {
        let work = scopes.iter().flat_map(|scope| self.work_of(*scope));
        let before: Vec<Node> = work.chain(self.host).collect();
        self.node(before.into_iter().map(|node| (node, Edge::Promised)))
    }

    /// All later work of the scope comes after `node`.
    fn scatter(&mut self, scope: Scope, node: Node) {
        self.scoped.push((scope, node));
        for id in 0..self.lines.len() {
            let line = &self.lines[id];
            if line.alive && scope.holds(line.device, line.context) && scope.means(line.kind) {
                self.submit_after(id, vec![(node, Edge::Promised)]);
            }
        }
    }

    pub(super) fn record_scope(&mut self, event: u64, scope: Scope) {
        let node = self.gather(&[scope]);
        self.events.insert(event, Some(node));
    }

    pub(super) fn wait_scope(&mut self, event: u64, scope: Scope) {
        let before = match self.events.get(&event) {
            Some(None) => return,
            Some(Some(record)) => vec![(*record, Edge::Promised)],
            None => self.everything(),
        };
        let host = self.host.map(|host| (host, Edge::Promised));
        let node = self.node(before.into_iter().chain(host));
        self.scatter(scope, node);
    }

    pub(super) fn barrier(&mut self, devices: &[DeviceId]) {
        if devices.is_empty() {
            return;
        }
        let scopes: Vec<Scope> = devices
            .iter()
            .map(|device| Scope::Blocking(*device))
            .collect();
        let node = self.gather(&scopes);
        for scope in scopes {
            self.scatter(scope, node);
        }
    }

    pub(super) fn end_context(&mut self, scope: Scope) {
        self.synchronize(scope, true);
        let lines = &self.lines;
        let gone = |id: &LineId| scope.holds(lines[*id].device, lines[*id].context);
        self.created.retain(|_, id| !gone(id));
        self.per_thread.retain(|_, id| !gone(id));
        self.legacy.retain(|_, id| !gone(id));
        self.scoped.retain(|(waits, _)| match *waits {
            Scope::Context(device, context) => !scope.holds(device, context),
            Scope::Device(_) | Scope::Blocking(_) => true,
        });
        for line in &mut self.lines {
            if scope.holds(line.device, line.context) {
                line.alive = false;
                // What the host knows complete takes part in no barrier.
                line.kind = Kind::NonBlocking;
            }
        }
        for block in &mut self.blocks {
            if block.fate == Fate::Live
                && block.kind != MemoryKind::System
                && scope.holds(block.device, block.context)
            {
                block.fate = Fate::Forgotten;
            }
        }
    }

    // Values.

    pub(super) fn write_value(&mut self, id: LineId, flag: Flag, value: u64) -> Node {
        let node = self.submit(id);
        let own = self.firm(Some(node));
        let mut ended: Vec<usize> = (0..self.waits.len())
            .filter(|&i| {
                let wait = &self.waits[i];
                // A write that comes after the wait is not what ends it.
                wait.state == State::Open
                    && wait.flag == flag
                    && wait.condition.holds(value, wait.value)
                    && !own[wait.node]
            })
            .collect();
        // A signal without a value ends one wait.
        let one = self
            .waits
            .iter()
            .any(|wait| wait.flag == flag && wait.condition == Condition::Signalled);
        if one {
            ended.truncate(1);
        }
        let spent = one && !ended.is_empty();
        for wait in ended {
            self.waits[wait].state = State::Over;
            let waits = self.waits[wait].node;
            self.before[waits].push((node, Edge::Promised));
        }
        if !spent {
            self.writes.entry(flag).or_default().push((value, node));
        }
        node
    }

    pub(super) fn wait_for_value(
        &mut self,
        id: LineId,
        flag: Flag,
        value: u64,
        condition: Condition,
    ) -> Node {
        let host = self.past(self.host, false);
        let writes = self.writes.get(&flag).cloned().unwrap_or_default();
        let pending: Vec<(u64, Node)> = writes
            .into_iter()
            .filter(|(_, node)| !host[*node])
            .collect();
        let ends = |there: u64| condition.holds(there, value);
        let mut before = Vec::new();
        if let Some(&(newest, write)) = pending.last()
            && ends(newest)
        {
            if condition == Condition::Signalled {
                self.writes.remove(&flag);
            }
            let ending = pending.iter().filter(|(there, _)| ends(*there));
            before = ending.map(|(_, node)| (*node, Edge::Promised)).collect();
            // What ended a wait of this stream before may have been undone unseen.
            if self.spent.insert((write, id)) {
                return self.submit_after(id, before);
            }
        }
        before.extend(self.everything());
        let node = self.submit_after(id, before);
        self.waits.push(Wait {
            flag,
            value,
            condition,
            node,
            state: State::Open,
        });
        self.unknown.insert(node);
        node
    }

    /// Bytes are written by other means, or are other memory: what streams wrote there
    /// ends no wait any more.
    pub(super) fn overwritten(&mut self, start: u64, end: u64) {
        self.writes.retain(|flag, _| match flag {
            Flag::Memory(address) => !(start..end).contains(address),
            Flag::Semaphore(_) => true,
        });
    }

    // Memory.

    /// The newest block that held `address`.
    pub(super) fn owner(&self, address: u64) -> Option<usize> {
        self.blocks
            .iter()
            .rposition(|block| (block.base..block.base + block.size).contains(&address))
    }

    pub(super) fn live(&self, address: u64) -> Option<usize> {
        self.owner(address)
            .filter(|&index| self.blocks[index].fate == Fate::Live)
    }

    /// Judges what an operation does to the block, and remembers it.
    pub(super) fn touch(&mut self, index: usize, mut access: Access, found: &mut Vec<Verdict>) {
        let at = if access.early {
            self.host
        } else {
            Some(access.node)
        };
        let block = &self.blocks[index];
        let verdict = match block.fate {
            Fate::Live => self
                .judge_use(index, &access, &self.past(at, false))
                .or_else(|| {
                    let leans = self.leans
                        && self
                            .judge_use(index, &access, &self.past(at, true))
                            .is_some();
                    leans.then_some("SC203")
                }),
            // The part of a structure that is not in use may hold what was there before.
            Fate::Freed if access.mode == Mode::Unknown && !access.signals => None,
            Fate::Freed => Some("SC102"),
            Fate::Forgotten => None,
        };
        found.extend(verdict.map(|rule| (rule, block.site, access.site)));
        access.unfit = matches!(verdict, Some("SC101" | "SC105"));
        if self.blocks[index].fate == Fate::Live && !access.over {
            self.blocks[index].uses.push(access);
        }
    }

    fn judge_use(&self, index: usize, access: &Access, past: &[bool]) -> Option<&'static str> {
        // Nothing is said of what a wait may order whose end is out of sight.
        let blind = !access.early && self.is_unknown(access.node);
        let known = |node: Node| blind || past[node] || self.is_unknown(node);
        let born = |node: Option<Node>| node.is_none_or(known);
        let block = &self.blocks[index];
        if block.ordered() && !born(block.birth) {
            let pending = block.before.is_some_and(|before| {
                let before = &self.blocks[before];
                !born(before.free) || before.uses.iter().any(|a| !known(a.node))
            });
            return Some(if pending { "SC105" } else { "SC101" });
        }
        let races = |other: &Access| {
            !other.unfit
                && !other.signals
                && conflict(access.mode, other.mode)
                && access.what.meets(&other.what)
                && !known(other.node)
        };
        (!access.signals && block.uses.iter().any(races)).then_some("SC109")
    }

    /// What a free of the right kind must get, at `at` on a stream or on the host.
    pub(super) fn judge_free(
        &self,
        index: usize,
        kind: FreeKind,
        at: Option<Node>,
        site: u32,
    ) -> Vec<Verdict> {
        let found = self.cut_short(index, kind, at, site, false);
        if self.leans && found.is_empty() && !self.cut_short(index, kind, at, site, true).is_empty()
        {
            return vec![("SC203", self.blocks[index].site, site)];
        }
        found
    }

    fn cut_short(
        &self,
        index: usize,
        kind: FreeKind,
        at: Option<Node>,
        site: u32,
        strict: bool,
    ) -> Vec<Verdict> {
        let block = &self.blocks[index];
        let rule = match kind {
            FreeKind::Async | FreeKind::Unmap => "SC103",
            FreeKind::Sync if block.ordered() => "SC103",
            FreeKind::Host | FreeKind::Unregister | FreeKind::Libc => "SC107",
            FreeKind::Sync | FreeKind::Import => return Vec::new(),
        };
        let past = self.past(at.or(self.host), strict);
        let blind = at.is_some_and(|node| self.is_unknown(node));
        let shown = |node: Node| {
            let mut shown = self.shown.iter().filter(|_| at.is_none());
            shown.any(|past| past.get(node) == Some(&true))
        };
        let known = |node: Node| blind || past[node] || self.is_unknown(node) || shown(node);
        // A stream's last use speaks for those before it.
        let mut last: HashMap<LineId, &Access> = HashMap::new();
        for access in block
            .uses
            .iter()
            .filter(|access| !self.is_unknown(access.node))
        {
            last.insert(access.line, access);
        }
        let mut found: Vec<Verdict> = last
            .values()
            .filter(|access| !known(access.node))
            .map(|access| (rule, block.site, access.site))
            .collect();
        let unborn = block.birth.is_some_and(|birth| !known(birth));
        if rule == "SC103" && block.ordered() && block.uses.is_empty() && unborn {
            found.push(("SC104", block.site, site));
        }
        found
    }
}
