//! Host functions that were put into streams and have not begun, and threads that run one.
//!
//! Most begin soon. One never does where the stream failed before it, or its context ended;
//! so the oldest are forgotten when there are many.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::clock::Frontier;

#[derive(Debug, Default)]
pub(crate) struct HostFunctions {
    /// The past of each, by its token, and its place in the run.
    waiting: FxHashMap<u64, (Frontier, u64)>,
    /// Tokens, oldest first; some of which have begun.
    oldest: VecDeque<u64>,
    /// Those forgotten.
    pub(crate) forgotten: u64,
    /// Threads that run one, and what had been submitted before it: the last sequence number.
    running: Vec<(u32, u64)>,
}

impl HostFunctions {
    /// Host functions remembered.
    const CAP: usize = 1 << 8;
    /// Threads that run one, remembered.
    const RUNNING: usize = 1 << 4;

    /// Takes one in; a past is handed out that is of no use any more: that of another which
    /// is forgotten for it, or of the same one's earlier launch in a graph.
    pub(crate) fn insert(&mut self, token: u64, past: Frontier, sequence: u64) -> Option<Frontier> {
        if let Some((earlier, _)) = self.waiting.insert(token, (past, sequence)) {
            return Some(earlier);
        }
        self.oldest.push_back(token);
        if self.oldest.len() > 2 * Self::CAP {
            let waiting = &self.waiting;
            self.oldest.retain(|token| waiting.contains_key(token));
        }
        if self.waiting.len() <= Self::CAP {
            return None;
        }
        let forgotten = loop {
            let token = self.oldest.pop_front()?;
            if let Some((past, _)) = self.waiting.remove(&token) {
                break past;
            }
        };
        self.forgotten += 1;
        Some(forgotten)
    }

    /// One begins, on a thread; its past.
    pub(crate) fn begin(&mut self, token: u64, thread: u32) -> Option<Frontier> {
        let (past, sequence) = self.waiting.remove(&token)?;
        self.end(thread);
        if self.running.len() == Self::RUNNING {
            self.running.remove(0);
        }
        self.running.push((thread, sequence));
        Some(past)
    }

    /// The thread makes a call to CUDA, which none does from within a host function.
    #[inline]
    pub(crate) fn end(&mut self, thread: u32) {
        if !self.running.is_empty() {
            self.running.retain(|(running, _)| *running != thread);
        }
    }

    /// If the thread runs one: the place in the run of what was submitted last before it, or
    /// of the launch that it belongs to.
    pub(crate) fn within(&self, thread: u32) -> Option<u64> {
        let mut running = self.running.iter();
        running.find_map(|&(running, sequence)| (running == thread).then_some(sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timeline;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut functions = HostFunctions::default();
        let mut line = Timeline::new(1);
        let many = 8 * HostFunctions::CAP as u64;
        for token in 0..many {
            functions.insert(token, line.frontier(), token);
            // Every other one begins at once.
            if token % 2 == 0 {
                assert!(functions.begin(token, 0).is_some());
            }
            assert!(functions.waiting.len() <= HostFunctions::CAP);
            assert!(functions.oldest.len() <= 2 * HostFunctions::CAP + 1);
        }
        assert_eq!(functions.forgotten, many / 2 - HostFunctions::CAP as u64);
        assert!(functions.begin(1, 0).is_none());
        assert!(functions.begin(many - 1, 0).is_some());
    }

    #[test]
    fn a_thread_runs_the_one_that_began_last_until_it_makes_a_call() {
        let mut functions = HostFunctions::default();
        let mut line = Timeline::new(1);
        for token in 0..2 * HostFunctions::RUNNING as u64 {
            functions.insert(token, line.frontier(), 100 + token);
            functions.begin(token, token as u32 / 2);
        }
        assert_eq!(functions.within(0), Some(101));
        assert_eq!(functions.within(1), Some(103));
        functions.end(1);
        assert_eq!(functions.within(1), None);
        functions.insert(0, line.frontier(), 9);
        functions.begin(0, 0);
        assert_eq!(functions.within(0), Some(9));
        for thread in 0..2 * HostFunctions::RUNNING as u32 {
            functions.insert(0, line.frontier(), 1);
            functions.begin(0, thread);
            assert!(functions.running.len() <= HostFunctions::RUNNING);
        }
    }
}
