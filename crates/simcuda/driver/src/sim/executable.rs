//! Executable graphs: snapshots of graphs that are launched again and again, and changed node by node.

use super::conditional;
use super::graph::{Action, Conditional, Edge, Owner, When};
use super::plan::{Given, Launch, Plan, PlanNode, Task};
use super::sched::{Past, Point, Work};
use super::state::{Lane, State};
use crate::abi::Status;
use crate::error::INVALID_VALUE;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
pub(crate) const AUTO_FREE: u64 = 1;

/// A node as it was, and has been changed since.
#[derive(Clone)]
pub(crate) struct Part {
    /// The identity of the graph's node.
    pub(crate) id: u64,
    pub(crate) action: Action,
    pub(crate) enabled: bool,
    /// By index.
    pub(crate) needs: Vec<(usize, Edge)>,
    /// The graphs that the node owned.
    pub(crate) inside: Vec<Snapshot>,
}

/// A graph as it was.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) parts: Vec<Part>,
    /// The parts by identity.
    index: HashMap<u64, usize>,
}

/// How a graph cannot be run: the node at fault.
pub(crate) struct Cycle(pub(crate) u64);

impl Snapshot {
    pub(crate) fn part(&self, id: u64) -> Option<&Part> {
        match self.index.get(&id) {
            Some(&at) => self.parts.get(at),
            None => self
                .parts
                .iter()
                .flat_map(|part| &part.inside)
                .find_map(|inside| inside.part(id)),
        }
    }

    pub(crate) fn part_mut(&mut self, id: u64) -> Option<&mut Part> {
        match self.index.get(&id) {
            Some(&at) => self.parts.get_mut(at),
            None => self
                .parts
                .iter_mut()
                .flat_map(|part| &mut part.inside)
                .find_map(|inside| inside.part_mut(id)),
        }
    }

    /// Does something for each part, and for those inside.
    pub(crate) fn each(&self, act: &mut dyn FnMut(&Part)) {
        for part in &self.parts {
            act(part);
            part.inside.iter().for_each(|inside| inside.each(act));
        }
    }

    /// What a launch does. The memory of the launch is not in it.
    fn plan(&self) -> Arc<Plan> {
        let mut plan = Plan::default();
        for part in &self.parts {
            let task = task(part, &mut plan);
            plan.nodes.push(PlanNode {
                id: part.id,
                task,
                needs: part.needs.len(),
                then: Vec::new(),
            });
        }
        for (to, part) in self.parts.iter().enumerate() {
            for &(from, _) in &part.needs {
                plan.nodes[from].then.push(to);
            }
        }
        Arc::new(plan)
    }
}

fn task(part: &Part, plan: &mut Plan) -> Task {
    let marker = || Task::Same(Arc::new(|| Work::Marker));
    if !part.enabled {
        return marker();
    }
    match &part.action {
        Action::Empty | Action::Free(_) => marker(),
        Action::Kernel(kernel) => {
            let kernel = kernel.clone();
            Task::Same(Arc::new(move || kernel.work()))
        }
        Action::Copy(copy) => {
            let transfer = copy.transfer;
            Task::Same(Arc::new(move || {
                Work::Device(Box::new(move || transfer.run()))
            }))
        }
        &Action::Fill(fill) => {
            Task::Same(Arc::new(move || Work::Device(Box::new(move || fill.run()))))
        }
        &Action::Host(call) => {
            plan.awaited = true;
            let run = move || (call.function)(call.data as *mut _);
            Task::Same(Arc::new(move || Work::Host(Box::new(run))))
        }
        &Action::Allocate(address, size, _) => {
            let poison = move || super::dma::poison(address, size);
            Task::Same(Arc::new(move || Work::Device(Box::new(poison))))
        }
        Action::WaitEvent(_) | Action::RecordEvent(_) => Task::Given,
        Action::Signal(_) | Action::AwaitSignal(_) => {
            plan.awaited = true;
            plan.polled |= matches!(part.action, Action::AwaitSignal(_));
            Task::Given
        }
        Action::Values(values) => {
            plan.awaited = true;
            plan.polled = true;
            let last = values.operations.len().wrapping_sub(1);
            let row = values
                .operations
                .iter()
                .enumerate()
                .map(|(at, operation)| PlanNode {
                    id: part.id,
                    task: operation.task(),
                    needs: usize::from(at > 0),
                    then: if at == last { Vec::new() } else { vec![at + 1] },
                });
            let row = Plan {
                nodes: row.collect(),
                ..Plan::default()
            };
            nested(vec![Arc::new(row)], once)
        }
        Action::Child(_) => nested(bodies(part, plan), once),
        Action::Conditional(conditional) => {
            let conditional = conditional.clone();
            nested(bodies(part, plan), move |rounds| {
                chosen(&conditional, rounds)
            })
        }
    }
}

fn nested(
    bodies: Vec<Arc<Plan>>,
    choose: impl Fn(usize) -> Option<usize> + Send + Sync + 'static,
) -> Task {
    Task::Nested {
        bodies,
        choose: Arc::new(choose),
    }
}

fn once(rounds: usize) -> Option<usize> {
    (rounds == 0).then_some(0)
}

fn bodies(part: &Part, plan: &mut Plan) -> Vec<Arc<Plan>> {
    let bodies: Vec<Arc<Plan>> = part.inside.iter().map(Snapshot::plan).collect();
    plan.awaited |= bodies.iter().any(|body| body.awaited);
    plan.polled |= bodies.iter().any(|body| body.polled);
    bodies
}

fn chosen(conditional: &Conditional, rounds: usize) -> Option<usize> {
    let value = conditional::value(conditional.handle);
    match conditional.when {
        When::While => (value != 0).then_some(0),
        _ if rounds > 0 => None,
        When::If => Some(usize::from(value == 0)),
        When::Switch => Some(value as usize),
    }
}

/// What launches need of a snapshot.
#[derive(Clone)]
struct Ready {
    plan: Arc<Plan>,
    /// The nodes that each launch brings something along for.
    given: Arc<[(u64, Action)]>,
}

impl Ready {
    fn new(snapshot: &Snapshot) -> Self {
        let mut given = Vec::new();
        snapshot.each(&mut |part| {
            if matches!(
                part.action,
                Action::WaitEvent(_)
                    | Action::RecordEvent(_)
                    | Action::Signal(_)
                    | Action::AwaitSignal(_)
            ) {
                given.push((part.id, part.action.clone()));
            }
        });
        Self {
            plan: snapshot.plan(),
            given: given.into(),
        }
    }
}

/// Events, each with where the time of its record will be.
type Records = Vec<(u64, Arc<AtomicU64>)>;

pub(crate) struct Executable {
    /// Never used twice.
    pub(crate) id: u64,
    pub(crate) flags: u64,
    /// The identity and the handle of the graph that it was made of.
    pub(crate) graph: (u64, u64),
    pub(crate) snapshot: Snapshot,
    /// Made at the first launch after a change.
    ready: Option<Ready>,
    /// The newest launch.
    pub(crate) last: Option<Arc<Past>>,
    /// The addresses that it allocates, and those that it frees.
    allocates: Vec<u64>,
    frees: Vec<u64>,
    /// The user objects that it keeps alive, by one reference each.
    user_objects: Vec<u64>,
    /// The conditional handles that a launch gives a value, and which.
    defaults: Vec<(u64, u32)>,
}

impl Executable {
    /// Something is about to be changed, for later launches.
    pub(crate) fn change(&mut self) -> &mut Snapshot {
        self.ready = None;
        &mut self.snapshot
    }
}

impl State {
    pub(crate) fn executable(&mut self, handle: u64) -> Status<&mut Executable> {
        self.executables.get_mut(handle).ok_or(INVALID_VALUE)
    }

    /// The graph as it is; an error if its edges lead round in a circle.
    pub(crate) fn snapshot(&self, graph: u64) -> Result<Snapshot, Cycle> {
        let nodes = self.graphs.get(graph).map_or(&[][..], |graph| &graph.nodes);
        let places: HashMap<u64, usize> = nodes
            .iter()
            .enumerate()
            .map(|(at, &node)| (node, at))
            .collect();
        let mut snapshot = Snapshot::default();
        for (handle, node) in nodes
            .iter()
            .filter_map(|&handle| Some((handle, self.nodes.get(handle)?)))
        {
            let inside: Result<Vec<Snapshot>, Cycle> = node
                .action
                .inside()
                .iter()
                .map(|&graph| self.snapshot(graph))
                .collect();
            snapshot.index.insert(node.id, snapshot.parts.len());
            let place = |&(from, edge): &(u64, Edge)| Some((*places.get(&from)?, edge));
            snapshot.parts.push(Part {
                id: node.id,
                action: node.action.clone(),
                enabled: true,
                needs: node.needs.iter().filter_map(place).collect(),
                inside: inside.map_err(|_| Cycle(handle))?,
            });
        }
        self.check_order(nodes)?;
        Ok(snapshot)
    }

    /// No node comes after itself.
    fn check_order(&self, nodes: &[u64]) -> Result<(), Cycle> {
        let mut missing: HashMap<u64, usize> = nodes
            .iter()
            .filter_map(|&handle| Some((handle, self.nodes.get(handle)?.needs.len())))
            .collect();
        let mut ready: Vec<u64> = nodes
            .iter()
            .copied()
            .filter(|node| missing.get(node) == Some(&0))
            .collect();
        let mut done = 0;
        while let Some(node) = ready.pop() {
            done += 1;
            for then in self.nodes.get(node).map_or(&[][..], |node| &node.then) {
                if let Some(count) = missing.get_mut(then) {
                    *count -= 1;
                    if *count == 0 {
                        ready.push(*then);
                    }
                }
            }
        }
        if done == nodes.len() {
            return Ok(());
        }
        let stuck = nodes
            .iter()
            .find(|node| missing.get(node).is_some_and(|&count| count > 0));
        Err(Cycle(stuck.copied().unwrap_or(0)))
    }

    /// Makes an executable of a graph; its handle.
    pub(crate) fn instantiate(&mut self, graph: u64, flags: u64) -> Result<u64, Cycle> {
        let snapshot = self.snapshot(graph)?;
        let (mut allocates, mut frees, mut handles) = (Vec::new(), Vec::new(), Vec::new());
        snapshot.each(&mut |part| match &part.action {
            Action::Allocate(address, ..) if !allocates.contains(address) => {
                allocates.push(*address)
            }
            Action::Free(address) => frees.push(*address),
            Action::Conditional(conditional) => handles.push(conditional.handle),
            _ => {}
        });
        for &address in &allocates {
            self.hold_graph_memory(address);
        }
        let defaults = handles
            .into_iter()
            .filter_map(|handle| Some((handle, self.conditions.get(&handle)?.default?)))
            .collect();
        let (graph_id, user_objects) =
            self.graphs.get_mut(graph).map_or((0, Vec::new()), |graph| {
                graph.executables += 1;
                (graph.id, graph.user_objects.keys().copied().collect())
            });
        for &object in &user_objects {
            // The graph holds it, so it is there.
            let _ = self.retain_user_object(object, 1);
        }
        let id = self.fresh_id();
        Ok(self.executables.insert(Executable {
            id,
            flags,
            graph: (graph_id, graph),
            snapshot,
            ready: None,
            last: None,
            allocates,
            frees,
            user_objects,
            defaults,
        }))
    }

    /// What was launched still runs; unfreed allocations stay.
    pub(crate) fn remove_executable(&mut self, handle: u64) -> Status {
        let gone = self.executables.remove(handle).ok_or(INVALID_VALUE)?;
        let (id, graph) = gone.graph;
        if let Some(graph) = self.graphs.get_mut(graph).filter(|graph| graph.id == id) {
            graph.executables -= 1;
        }
        for address in gone.allocates {
            self.drop_graph_memory(address, gone.last.clone());
        }
        for object in gone.user_objects {
            self.release_user_object(object, 1, gone.last.clone())?;
        }
        Ok(())
    }

    /// Appends a launch to a stream, after the executable's earlier ones.
    pub(crate) fn launch(&mut self, handle: u64, lane: Lane) -> Status {
        let executable = self.executable(handle)?;
        let snapshot = &executable.snapshot;
        let ready = executable.ready.get_or_insert_with(|| Ready::new(snapshot));
        let Ready { plan, given } = ready.clone();
        let (flags, graph) = (executable.flags, executable.graph.0);
        let (allocates, frees) = (executable.allocates.clone(), executable.frees.clone());
        let defaults = executable.defaults.clone();
        let after: Vec<Arc<Past>> = executable.last.iter().cloned().collect();
        self.check_graph_allocations(&allocates, flags & AUTO_FREE != 0)?;
        self.check_graph_frees(&frees, graph)?;
        let (given, records) = self.given(&given);
        let launch = Launch {
            plan,
            given,
            begin: Box::new(move || {
                for (handle, value) in defaults {
                    conditional::set_value(handle, value);
                }
            }),
        };
        self.submit(lane, after, Work::Launch(Box::new(launch)));
        let past = self.sched.past(lane.id);
        self.executable(handle)?.last = Some(past);
        self.record_events(records);
        self.launch_graph_allocations(&allocates);
        self.launch_graph_frees(&frees, graph, lane);
        Ok(())
    }

    /// What a launch brings along for the nodes that need more than their parameters, and the events that it records,
    /// each with where the time will be.
    fn given(&mut self, nodes: &[(u64, Action)]) -> (HashMap<u64, Given>, Records) {
        let (mut given, mut records) = (HashMap::new(), Vec::new());
        for &(node, ref action) in nodes {
            let mut after: Vec<Point> = Vec::new();
            let work = match *action {
                Action::WaitEvent(event) => {
                    // An event that was never recorded, or is gone, is no wait at all.
                    let record = self
                        .events
                        .get(event)
                        .and_then(|event| event.record.as_ref());
                    after.extend(record.map(|(past, _)| past.point));
                    Work::Marker
                }
                Action::RecordEvent(event) => {
                    let time = Arc::new(AtomicU64::new(0));
                    records.push((event, time.clone()));
                    Work::Stamp(time)
                }
                Action::Signal(ref semaphores) => {
                    let all: Vec<_> = semaphores
                        .each()
                        .filter_map(|(handle, value)| {
                            Some(self.semaphores.get(handle)?.signal(value))
                        })
                        .collect();
                    Work::Value(Box::new(move || all.iter().for_each(|signal| signal())))
                }
                Action::AwaitSignal(ref semaphores) => {
                    let mut all = Vec::new();
                    for (handle, value) in semaphores.each() {
                        all.extend(self.semaphores.get_mut(handle).map(|each| each.wait(value)));
                    }
                    Work::Wait(Box::new(move || all.iter().all(|holds| holds())))
                }
                _ => Work::Marker,
            };
            given.insert(node, Given { work, after });
        }
        (given, records)
    }

    /// Each event's newest record is its node in the launch: who waits for it waits for that, not for the launch.
    fn record_events(&mut self, records: Records) {
        for (event, time) in records {
            let Some(context) = self.events.get(event).map(|event| event.context) else {
                continue;
            };
            let gate = self.sched.open();
            self.sched.submit(gate, &[], Work::Gate(time.clone()));
            let past = self.sched.past(gate);
            self.keep_stream(context, gate, super::state::Barrier::NonBlocking);
            self.sched.close(gate);
            if let Some(event) = self.events.get_mut(event) {
                event.record = Some((past, time));
                event.captured = None;
            }
        }
    }

    /// A graph that does what the executable does now.
    pub(crate) fn graph_of(&mut self, snapshot: &Snapshot) -> Status<u64> {
        let graph = self.add_graph(Owner::Capture);
        let mut added = Vec::new();
        for part in &snapshot.parts {
            let action = match &part.action {
                Action::Child(_) => {
                    let inside = part.inside.first().ok_or(INVALID_VALUE)?;
                    Action::Child(self.graph_of(inside)?)
                }
                Action::Conditional(_) | Action::Allocate(..) | Action::Free(_) => {
                    self.remove_graph(graph);
                    return Err(INVALID_VALUE);
                }
                _ if !part.enabled => Action::Empty,
                action => action.clone(),
            };
            added.push(self.add_node(graph, &[], action)?);
        }
        for (to, part) in snapshot.parts.iter().enumerate() {
            for &(from, edge) in &part.needs {
                self.add_edge(added[from], added[to], edge);
            }
        }
        Ok(graph)
    }
}
