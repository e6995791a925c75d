//! What a launch of a graph does: nodes, each of which starts once all that it needs has finished.
//!
//! A launch is one operation of its stream. While it runs, each of its nodes that may start is as likely to be the next
//! as any stream's head, so that nodes without an edge between them run in any order.

use super::sched::{Point, Work};
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

/// Makes a node's work, for each run anew.
pub(crate) type Make = Arc<dyn Fn() -> Work + Send + Sync>;

/// Which of a node's bodies runs next, by how many have run already; `None` once the node is done.
pub(crate) type Choose = Arc<dyn Fn(usize) -> Option<usize> + Send + Sync>;

/// What a node waits for: any store may make it true.
pub(crate) type Condition = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a node does.
#[derive(Clone)]
pub(crate) enum Task {
    /// The same in each run.
    Same(Make),
    /// Nothing, but not before the condition is true.
    Until(Condition),
    /// What the launch brought along for it: see [`Launch::given`].
    Given,
    /// Runs plans of its own, one after another.
    Nested {
        bodies: Vec<Arc<Plan>>,
        choose: Choose,
    },
}

/// A node; others are named by their index.
pub(crate) struct PlanNode {
    pub(crate) id: u64,
    pub(crate) task: Task,
    /// How many nodes must have finished.
    pub(crate) needs: usize,
    /// Those that need this one.
    pub(crate) then: Vec<usize>,
}

/// The nodes of a graph, ready to be run again and again.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) nodes: Vec<PlanNode>,
    /// Programs wait for something in it without asking CUDA.
    pub(crate) awaited: bool,
    /// Something in it waits on memory.
    pub(crate) polled: bool,
}

/// The work of one launch for a node that needs more than its parameters, and the operations that it comes after.
pub(crate) struct Given {
    pub(crate) work: Work,
    pub(crate) after: Vec<Point>,
}

/// One launch.
pub(crate) struct Launch {
    pub(crate) plan: Arc<Plan>,
    /// By the node's identity, for each [`Task::Given`].
    pub(crate) given: HashMap<u64, Given>,
    /// Done when the launch begins.
    pub(crate) begin: Box<dyn FnOnce() + Send>,
}

/// A node whose bodies run.
#[derive(Default)]
struct Inner {
    run: Option<Run>,
    rounds: usize,
}

/// A plan that is being run.
pub(crate) struct Run {
    plan: Arc<Plan>,
    missing: Vec<usize>,
    /// May start.
    ready: Vec<usize>,
    /// May start once their condition is true, or what the launch brought along for them may.
    held: Vec<usize>,
    inner: BTreeMap<usize, Inner>,
    left: usize,
}

impl Run {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        let mut run = Self {
            missing: plan.nodes.iter().map(|node| node.needs).collect(),
            ready: Vec::new(),
            held: Vec::new(),
            inner: BTreeMap::new(),
            left: plan.nodes.len(),
            plan,
        };
        for index in 0..run.missing.len() {
            if run.missing[index] == 0 {
                run.enable(index);
            }
        }
        run
    }

    fn enable(&mut self, index: usize) {
        match self.plan.nodes[index].task {
            Task::Given | Task::Until(_) => self.held.push(index),
            Task::Same(_) | Task::Nested { .. } => self.ready.push(index),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    fn is_free(&self, index: usize, may: &dyn Fn(u64) -> bool) -> bool {
        let node = &self.plan.nodes[index];
        match &node.task {
            Task::Until(holds) => holds(),
            _ => may(node.id),
        }
    }

    /// How many nodes may start now; `may` tells for those that the launch brought work along for.
    pub(crate) fn startable(&self, may: &dyn Fn(u64) -> bool) -> usize {
        let held = self.held.iter().filter(|&&index| self.is_free(index, may));
        let inner = self.inner.values().filter_map(|inner| inner.run.as_ref());
        self.ready.len() + held.count() + inner.map(|run| run.startable(may)).sum::<usize>()
    }

    /// Takes number `which` of those that may start: where it is, and its work unless the launch has it. A nested node
    /// is taken whenever it is to be decided whether a body runs.
    pub(crate) fn take(
        &mut self,
        mut which: usize,
        may: &dyn Fn(u64) -> bool,
        path: &mut Vec<usize>,
    ) -> Option<Result<Work, u64>> {
        if which < self.ready.len() {
            let index = self.ready.swap_remove(which);
            path.push(index);
            return Some(Ok(match &self.plan.nodes[index].task {
                Task::Same(make) => make(),
                _ => Work::Marker,
            }));
        }
        which -= self.ready.len();
        let free = (0..self.held.len()).filter(|&at| self.is_free(self.held[at], may));
        let free: Vec<usize> = free.collect();
        if let Some(&at) = free.get(which) {
            let index = self.held.remove(at);
            path.push(index);
            let node = &self.plan.nodes[index];
            return Some(match node.task {
                Task::Given => Err(node.id),
                _ => Ok(Work::Marker),
            });
        }
        which -= free.len();
        for (&index, inner) in &mut self.inner {
            let Some(run) = &mut inner.run else { continue };
            let count = run.startable(may);
            if which < count {
                path.push(index);
                return run.take(which, may, path);
            }
            which -= count;
        }
        None
    }

    /// The node at `path` has run.
    pub(crate) fn finish(&mut self, path: &[usize]) {
        let Some((&index, inside)) = path.split_first() else {
            return;
        };
        if !inside.is_empty() {
            if let Some(inner) = self.inner.get_mut(&index)
                && let Some(run) = &mut inner.run
            {
                run.finish(inside);
                if run.is_over() {
                    inner.run = None;
                    self.ready.push(index);
                }
            }
            return;
        }
        let plan = self.plan.clone();
        let Some(node) = plan.nodes.get(index) else {
            return;
        };
        if let Task::Nested { bodies, choose } = &node.task {
            let inner = self.inner.entry(index).or_default();
            if let Some(body) = choose(inner.rounds).and_then(|body| bodies.get(body)) {
                inner.rounds += 1;
                let run = Run::new(body.clone());
                if run.is_over() {
                    self.ready.push(index);
                } else {
                    inner.run = Some(run);
                }
                return;
            }
            self.inner.remove(&index);
        }
        self.left -= 1;
        for &next in &node.then {
            self.missing[next] -= 1;
            if self.missing[next] == 0 {
                self.enable(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64, task: Task, needs: usize, then: &[usize]) -> PlanNode {
        PlanNode {
            id,
            task,
            needs,
            then: then.to_vec(),
        }
    }

    fn marker() -> Task {
        Task::Same(Arc::new(|| Work::Marker))
    }

    fn plan(nodes: Vec<PlanNode>) -> Arc<Plan> {
        Arc::new(Plan {
            nodes,
            ..Plan::default()
        })
    }

    /// Runs everything, always the last that may start; the paths in their order.
    fn run(run: &mut Run) -> Vec<Vec<usize>> {
        let mut order = Vec::new();
        while let Some(last) = run.startable(&|_| true).checked_sub(1) {
            let mut path = Vec::new();
            assert!(run.take(last, &|_| true, &mut path).is_some());
            run.finish(&path);
            order.push(path);
        }
        order
    }

    #[test]
    fn edges_order_and_nothing_else_does() {
        let diamond = plan(vec![
            node(1, marker(), 0, &[1, 2]),
            node(2, marker(), 1, &[3]),
            node(3, marker(), 1, &[3]),
            node(4, marker(), 2, &[]),
        ]);
        let mut first = Run::new(diamond);
        assert_eq!(first.startable(&|_| true), 1);
        assert_eq!(run(&mut first), [[0], [2], [1], [3]]);
        assert!(first.is_over());
    }

    #[test]
    fn what_the_launch_brings_holds_its_node_only() {
        let two = plan(vec![
            node(1, Task::Given, 0, &[]),
            node(2, marker(), 0, &[]),
        ]);
        let mut both = Run::new(two);
        assert_eq!(both.startable(&|_| false), 1);
        assert_eq!(both.startable(&|_| true), 2);
        let mut path = Vec::new();
        assert!(matches!(
            both.take(1, &|id| id == 1, &mut path),
            Some(Err(1))
        ));
        both.finish(&path);
        assert!(!both.is_over());
    }

    #[test]
    fn bodies_run_as_often_as_they_are_chosen() {
        let body = plan(vec![node(2, marker(), 0, &[1]), node(3, marker(), 1, &[])]);
        let empty = plan(Vec::new());
        let nested = Task::Nested {
            bodies: vec![body, empty],
            choose: Arc::new(|rounds| [0, 1, 0].get(rounds).copied()),
        };
        let mut whole = Run::new(plan(vec![
            node(1, nested, 0, &[1]),
            node(4, marker(), 1, &[]),
        ]));
        let order = run(&mut whole);
        assert!(whole.is_over());
        assert_eq!(
            order
                .iter()
                .filter(|path| path.as_slice() == [0, 0])
                .count(),
            2
        );
        assert_eq!(order.last().unwrap(), &[1]);
    }
}
