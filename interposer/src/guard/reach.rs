//! How far a kernel reaches from a pointer that it is given, which has no length.

use core::cell::Cell;

use streamcheck_model::{Element, Per};

use crate::{guard, thread};

/// How large a launch is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Launch {
    /// Its threads; 0 if that is not known.
    threads: u64,
    /// Those of one of its blocks.
    block: u64,
    /// The least of the kernel's numbers that may be how many elements there are; else 0.
    count: u64,
    /// It has other sides than the first.
    sides: bool,
}

impl Launch {
    /// Whether so many elements need each of its blocks.
    fn needs(self, elements: u64) -> bool {
        elements > self.threads.saturating_sub(self.block)
    }
}

fn place() -> &'static Cell<Launch> {
    &thread::block().guard.launch
}

/// How many threads a launch has, and how many one of its blocks. Kept until the launch is
/// recorded.
#[inline]
pub(crate) fn launching(size: impl FnOnce() -> ([u32; 3], [u32; 3])) {
    if guard::on() {
        let (grid, block) = size();
        let product = |sides: [u32; 3]| {
            let sides = sides.map(u64::from);
            sides[0].saturating_mul(sides[1]).saturating_mul(sides[2])
        };
        let sides = [grid, block].iter().any(|size| size[1..] != [1, 1]);
        let block = product(block);
        let all = product(grid).saturating_mul(block);
        place().set(Launch {
            threads: all,
            block,
            count: 0,
            sides,
        });
    }
}

/// The numbers that the kernel which is being recorded was given.
#[cold]
pub(crate) fn launching_with(numbers: impl Iterator<Item = u64>) {
    let mut launch = place().get();
    let (mut least, mut needing) = (u64::MAX, u64::MAX);
    for number in numbers.filter(|number| (1..=launch.threads).contains(number)) {
        least = least.min(number);
        if launch.needs(number) {
            needing = needing.min(number);
        }
    }
    // The grid was made for such a one.
    let count = if needing == u64::MAX { least } else { needing };
    if count != u64::MAX {
        launch.count = count;
        place().set(launch);
    }
}

/// The launch that is being recorded.
pub(super) fn launched() -> Launch {
    place().take()
}

/// How many bytes a kernel uses, from an element's first on, of the `rest` that there are.
///
/// What its code says of the thread that uses an element is known; a grid is rounded up,
/// so up to a block of threads may be too many. Programs that have one grid for
/// all sizes give their kernels the size. A launch that is just large enough for the rest of
/// the allocation is taken to use all of it.
///
/// Where the code does not say it, nothing else tells a pointer to an array from one to a
/// single number.
pub(super) fn reach(element: Element, rest: u64, launch: Launch) -> u64 {
    let bytes = element.bytes().max(1);
    let so_many = |elements: u64| elements.saturating_mul(bytes).min(rest);
    let threads = (launch.threads.saturating_sub(launch.block), launch.threads);
    let (least, most) = match launch.count {
        0 => threads,
        count => (count - 1, count),
    };
    let only = launch.threads == launch.block && launch.count == 0;
    let fit = |(least, most)| so_many(most) == rest && (so_many(least) < rest || only);
    let rounded = launch.count != 0 && launch.needs(launch.count);
    let fits = fit((least, most)) || rounded && fit(threads);
    match element.per() {
        Per::Nowhere => 0,
        _ if launch.threads == 0 => so_many(1),
        Per::Launch => so_many(1),
        Per::Block if !launch.sides => {
            let blocks = launch.threads / launch.block.max(1);
            so_many(blocks.min(most))
        }
        Per::Lane if !launch.sides => so_many(launch.block.min(most)),
        Per::Thread if fits && !launch.sides => rest,
        Per::Thread if !launch.sides => so_many(least + 1),
        _ if fits => rest,
        _ => so_many(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(blocks: u64, block: u64, count: u64) -> Launch {
        Launch {
            threads: blocks * block,
            block,
            count,
            sides: false,
        }
    }

    fn element(bytes: usize, per: Per) -> Element {
        Element::new(per, 0, bytes)
    }

    const REST: u64 = 1 << 20;

    #[test]
    fn an_element_for_each_thread_is_as_many_as_the_launch_is_large() {
        let far = |rest, launch| reach(element(4, Per::Thread), rest, launch);
        // A chunk in a larger buffer: the last block may be idle but for a thread.
        assert_eq!(far(REST, launch(4, 256, 0)), 3 * 1024 + 4);
        // Just large enough for what is left.
        assert_eq!(far(4096, launch(4, 256, 0)), 4096);
        assert_eq!(far(4000, launch(4, 256, 0)), 4000);
        assert_eq!(far(100, launch(1, 256, 0)), 100);
        assert_eq!(far(REST, launch(1, 256, 0)), 4);
        assert_eq!(far(100, launch(64, 256, 0)), 100);
        // One grid for all sizes.
        assert_eq!(far(REST, launch(64, 256, 1000)), 4000);
        assert_eq!(far(4000, launch(64, 256, 1000)), 4000);
        // The grid was made for so many.
        assert_eq!(far(REST, launch(4, 256, 1000)), 4000);
        assert_eq!(far(4096, launch(4, 256, 1000)), 4096);
    }

    #[test]
    fn what_else_the_code_says_is_believed() {
        let far = |per, launch| reach(element(4, per), REST, launch);
        let wide = launch(64, 256, 0);
        assert_eq!(far(Per::Launch, wide), 4);
        assert_eq!(far(Per::Block, wide), 64 * 4);
        assert_eq!(far(Per::Lane, wide), 256 * 4);
        assert_eq!(far(Per::Block, launch(64, 256, 10)), 40);
        assert_eq!(far(Per::Lane, launch(64, 256, 10)), 40);
        assert_eq!(far(Per::Nowhere, wide), 0);
        assert_eq!(reach(element(4, Per::Block), 100, wide), 100);
        assert_eq!(reach(element(4, Per::Launch), 3, wide), 3);
        // It tells of the first side alone.
        let square = Launch {
            sides: true,
            ..wide
        };
        assert_eq!(far(Per::Block, square), 4);
        assert_eq!(far(Per::Thread, square), 4);
    }

    #[test]
    fn a_pointer_of_which_nothing_is_known_is_to_one_element_unless_the_launch_fits() {
        let far = |rest, launch| reach(element(4, Per::Unknown), rest, launch);
        assert_eq!(far(REST, launch(64, 256, 0)), 4);
        assert_eq!(far(REST, launch(64, 256, 1000)), 4);
        assert_eq!(far(4096, launch(4, 256, 0)), 4096);
        assert_eq!(far(4000, launch(4, 256, 0)), 4000);
        assert_eq!(far(100, launch(1, 256, 0)), 100);
        // Far too large, unless a number among the parameters is as large as the buffer.
        assert_eq!(far(4000, launch(64, 256, 0)), 4);
        assert_eq!(far(4000, launch(64, 256, 1000)), 4000);
        // Of a graph's node nothing is known.
        assert_eq!(reach(element(16, Per::Thread), 4096, Launch::default()), 16);
        assert_eq!(reach(element(0, Per::Unknown), 4096, Launch::default()), 1);
    }

    #[test]
    fn a_number_below_the_grids_is_how_many_elements_there_may_be() {
        let count = |numbers: &[u64]| {
            let launch = Launch {
                threads: 16 * 256,
                block: 256,
                ..Launch::default()
            };
            place().set(launch);
            launching_with(numbers.iter().copied());
            launched().count
        };
        // The grid was made for it.
        assert_eq!(count(&[4096, 7]), 4096);
        assert_eq!(count(&[3841, 4000]), 3841);
        assert_eq!(count(&[3840, 1 << 40]), 3840);
        assert_eq!(count(&[1000, 2000, 0]), 1000);
        assert_eq!(count(&[1000, 1]), 1);
        assert_eq!(count(&[1 << 40]), 0);
    }
}
