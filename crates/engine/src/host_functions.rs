//! Host functions that were put into streams and have not begun.
//!
//! Most begin soon. One never does where the stream failed before it, or its context ended;
//! so the oldest are forgotten when there are many.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::clock::Frontier;

#[derive(Debug, Default)]
pub(crate) struct HostFunctions {
    /// The past of each, by its token.
    waiting: FxHashMap<u64, Frontier>,
    /// Tokens, oldest first; some of which have begun.
    oldest: VecDeque<u64>,
    /// Those forgotten.
    pub(crate) forgotten: u64,
}

impl HostFunctions {
    /// Host functions remembered.
    const CAP: usize = 1 << 8;

    /// Takes one in; a past is handed out that is of no use any more: that of another which
    /// is forgotten for it, or of the same one's earlier launch in a graph.
    pub(crate) fn insert(&mut self, token: u64, past: Frontier) -> Option<Frontier> {
        if let Some(earlier) = self.waiting.insert(token, past) {
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
            if let Some(past) = self.waiting.remove(&token) {
                break past;
            }
        };
        self.forgotten += 1;
        Some(forgotten)
    }

    /// One begins.
    pub(crate) fn remove(&mut self, token: u64) -> Option<Frontier> {
        self.waiting.remove(&token)
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
            functions.insert(token, line.frontier());
            // Every other one begins at once.
            if token % 2 == 0 {
                assert!(functions.remove(token).is_some());
            }
            assert!(functions.waiting.len() <= HostFunctions::CAP);
            assert!(functions.oldest.len() <= 2 * HostFunctions::CAP + 1);
        }
        assert_eq!(functions.forgotten, many / 2 - HostFunctions::CAP as u64);
        assert!(functions.remove(1).is_none());
        assert!(functions.remove(many - 1).is_some());
    }
}
