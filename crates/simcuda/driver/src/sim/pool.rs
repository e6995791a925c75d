//! Stream-ordered memory pools.
//!
//! A block freed in a stream is handed to the next allocation of its size: first in the same stream, then where the
//! order of the calls, or completed work, or a dependency added for the purpose makes it safe; each as far as the pool's
//! attributes allow (`CU_MEMPOOL_ATTR_REUSE_*`, all on by default).

use super::sched::{Past, Scheduler, StreamId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A block that the pool keeps.
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// What must come before the next use; `None` for a block given back by a plain free, complete by contract.
    pub(crate) freed: Option<Arc<Past>>,
}

/// A pool and its counters, in bytes.
pub(crate) struct Pool {
    pub(crate) device: i32,
    pub(crate) handle: u64,
    /// Its handle is gone; it lives until its last allocation is freed.
    pub(crate) destroyed: bool,
    pub(crate) follow_events: bool,
    pub(crate) opportunistic: bool,
    pub(crate) internal_dependencies: bool,
    pub(crate) release_threshold: u64,
    pub(crate) max_size: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    free: Vec<Block>,
    /// What other devices may do with it: none 0, read 1, read and write 3.
    pub(crate) access: BTreeMap<i32, u32>,
}

impl Pool {
    pub(crate) fn new(device: i32, max_size: u64) -> Self {
        Self {
            device,
            handle: 0,
            destroyed: false,
            follow_events: true,
            opportunistic: true,
            internal_dependencies: true,
            release_threshold: 0,
            max_size,
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            free: Vec::new(),
            access: BTreeMap::new(),
        }
    }

    /// What `device` may do with the pool's memory: its own device everything, another nothing unless allowed.
    pub(crate) fn access(&self, device: i32) -> u32 {
        if device == self.device {
            3
        } else {
            self.access.get(&device).copied().unwrap_or(0)
        }
    }

    /// A free block of exactly `size` for `stream`, and the dependency that must be added to make it safe.
    pub(crate) fn reuse(
        &mut self,
        size: u64,
        stream: StreamId,
        sched: &Scheduler,
    ) -> Option<(u64, Option<Arc<Past>>)> {
        let newest = |test: &dyn Fn(&Past) -> bool| {
            self.free
                .iter()
                .rposition(|block| block.size == size && block.freed.as_deref().is_none_or(test))
        };
        let same_stream = |past: &Past| past.point.stream == stream;
        let ordered = |past: &Past| self.follow_events && sched.is_before(past.point, stream);
        let complete = |past: &Past| self.opportunistic && sched.is_done(past.point);
        let safe = newest(&same_stream)
            .or_else(|| newest(&ordered))
            .or_else(|| newest(&complete));
        let index = safe.or_else(|| newest(&|_| self.internal_dependencies))?;
        let block = self.free.remove(index);
        self.count_use(block.size);
        Some((block.address, block.freed.filter(|_| safe.is_none())))
    }

    /// Accounts for a block taken from the device.
    pub(crate) fn grow(&mut self, size: u64) {
        self.reserved += size;
        self.reserved_high = self.reserved_high.max(self.reserved);
        self.count_use(size);
    }

    fn count_use(&mut self, size: u64) {
        self.used += size;
        self.used_high = self.used_high.max(self.used);
    }

    pub(crate) fn give(&mut self, block: Block) {
        self.used -= block.size;
        self.free.push(block);
    }

    /// Takes out the blocks whose free has completed, oldest first, until no more than `keep` bytes are reserved.
    pub(crate) fn trim(&mut self, keep: u64, sched: &Scheduler) -> Vec<Block> {
        let mut released = Vec::new();
        let mut index = 0;
        while self.reserved > keep && index < self.free.len() {
            if self.free[index]
                .freed
                .as_ref()
                .is_none_or(|past| sched.is_done(past.point))
            {
                let block = self.free.remove(index);
                self.reserved -= block.size;
                released.push(block);
            } else {
                index += 1;
            }
        }
        released
    }

    /// Whether `address` lies in a block that the pool keeps: its memory is still the device's.
    pub(crate) fn keeps(&self, address: u64) -> bool {
        self.free
            .iter()
            .any(|block| (block.address..block.address + block.size).contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sched::Work;
    use super::*;

    struct Bench {
        sched: Scheduler,
        pool: Pool,
        streams: [StreamId; 2],
    }

    impl Bench {
        fn new() -> Self {
            let mut sched = Scheduler::new(0);
            let streams = [sched.open(), sched.open()];
            let mut pool = Pool::new(0, 0);
            for _ in 0..3 {
                pool.grow(512);
            }
            Self {
                sched,
                pool,
                streams,
            }
        }

        fn free(&mut self, address: u64, stream: usize) {
            let id = self.streams[stream];
            self.sched.submit(id, &[], Work::Marker);
            let freed = Some(self.sched.past(id));
            self.pool.give(Block {
                address,
                size: 512,
                freed,
            });
        }

        fn reuse(&mut self, size: u64, stream: usize) -> Option<(u64, bool)> {
            let found = self.pool.reuse(size, self.streams[stream], &self.sched);
            found.map(|(address, dependency)| (address, dependency.is_some()))
        }
    }

    #[test]
    fn the_same_stream_comes_first_and_last_freed_first() {
        let mut bench = Bench::new();
        bench.free(0x1000, 0);
        bench.free(0x2000, 0);
        bench.free(0x3000, 1);
        assert_eq!(bench.reuse(1024, 0), None, "another size");
        assert_eq!(bench.reuse(512, 0), Some((0x2000, false)));
        assert_eq!(bench.reuse(512, 0), Some((0x1000, false)));
        assert_eq!(
            bench.reuse(512, 0),
            Some((0x3000, true)),
            "the other stream's, with a dependency"
        );
        assert_eq!(
            (bench.pool.used, bench.pool.used_high, bench.pool.reserved),
            (1536, 1536, 1536)
        );
    }

    #[test]
    fn each_attribute_allows_its_own_kind_of_reuse() {
        let mut bench = Bench::new();
        bench.pool.internal_dependencies = false;
        bench.free(0x1000, 0);
        assert_eq!(bench.reuse(512, 1), None, "pending and unordered");
        let past = bench.sched.past(bench.streams[0]);
        bench.sched.submit(bench.streams[1], &[past], Work::Marker);
        bench.pool.follow_events = false;
        assert_eq!(bench.reuse(512, 1), None, "ordered, but not to be followed");
        bench.pool.follow_events = true;
        assert_eq!(bench.reuse(512, 1), Some((0x1000, false)));
        bench.free(0x2000, 0);
        while let Some((point, _)) = bench.sched.start() {
            bench.sched.finish(point);
        }
        bench.pool.opportunistic = false;
        assert_eq!(bench.reuse(512, 1), None, "complete, but not to be polled");
        bench.pool.opportunistic = true;
        assert_eq!(bench.reuse(512, 1), Some((0x2000, false)));
    }

    #[test]
    fn trimming_keeps_what_is_pending_and_what_is_asked_for() {
        let mut bench = Bench::new();
        bench.free(0x1000, 0);
        assert!(bench.pool.trim(0, &bench.sched).is_empty());
        while let Some((point, _)) = bench.sched.start() {
            bench.sched.finish(point);
        }
        assert!(bench.pool.keeps(0x11ff) && !bench.pool.keeps(0x1200));
        assert!(bench.pool.trim(1536, &bench.sched).is_empty());
        let released = bench.pool.trim(1024, &bench.sched);
        assert_eq!(
            released
                .iter()
                .map(|block| block.address)
                .collect::<Vec<_>>(),
            [0x1000]
        );
        assert_eq!(bench.pool.reserved, 1024);
    }
}
