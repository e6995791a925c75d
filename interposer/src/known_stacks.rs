//! Stacks that were unwound, known again without a lock.
//!
//! Unwinding is a function of the return address, the stack pointer, sometimes the frame
//! pointer, and the words of the stack that it reads. Beside each stack these are kept (see
//! [`Trail`]); where all are the same, so is the stack, whoever called. That is some loads
//! and compares, and exact: two ways that lead to the same call with the same stack pointer
//! differ in a return address.
//!
//! The table has a fixed size, and whoever comes late takes another's place. Where a function
//! that calls CUDA is itself called from many places, their stacks begin alike; there the
//! words in which they were seen to differ say where in the table a stack is (see
//! [`Chooser`]).
//!
//! The table is read by all threads at once and written by whoever holds the core's lock. An
//! entry's mark is 0 while it is written, and another one after each writing.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use streamcheck_model::StackId;

use crate::thread::Origin;

const SETS: usize = 1024;
const WAYS: usize = 4;
/// Words that are compared before it is asked whether any differed.
const CHUNK: usize = 8;
/// Words of a stack that an entry can hold.
const MOST_WORDS: usize = 128;

/// What unwinding a stack has read.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    pub(crate) words: Vec<Word>,
    /// Whether the frame pointer at the call had a say.
    pub(crate) frame_pointer: bool,
}

/// A word of a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    /// How many words above the call's frame it is.
    pub(crate) place: u32,
    pub(crate) word: u64,
    /// Which return address it has led to.
    pub(crate) index: usize,
}

/// What a call's stack is found by.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    origin: Origin,
    /// The address after the thread's stack; 0 where the stack is not looked at, and the
    /// return address is all that is told.
    end: u64,
    /// The number of the Python stack.
    python: u32,
}

struct Entry {
    /// The table's age, and below it a number of this writing. 0 while it is written.
    mark: AtomicU64,
    return_address: AtomicU64,
    stack_pointer: AtomicU64,
    /// The frame pointer, or [`ANY`].
    frame_pointer: AtomicU64,
    python: AtomicU32,
    stack: AtomicU32,
    count: AtomicU32,
    /// How many words above the call's frame each is.
    places: [AtomicU32; MOST_WORDS],
    words: [AtomicU64; MOST_WORDS],
}

/// Which words choose the set of calls that have the same key, but differ further up. Read
/// at the wrong moment it chooses a wrong set, in which nothing is found.
struct Chooser {
    /// The key's hash.
    of: AtomicU64,
    /// Up to four places of [`PLACE_BITS`] each, one more than how many words above the
    /// call's frame it is; 0 is none.
    places: AtomicU64,
}

const CHOOSERS: usize = 1024;
const PLACE_BITS: u32 = 16;

static CHOOSER: [Chooser; CHOOSERS] = [const {
    Chooser {
        of: AtomicU64::new(0),
        places: AtomicU64::new(0),
    }
}; CHOOSERS];

/// Any frame pointer will do: none that had a say is misaligned.
const ANY: u64 = 1;

static TABLE: [[Entry; WAYS]; SETS] = [const { [const { Entry::EMPTY }; WAYS] }; SETS];
/// Entries of another age are none.
static AGE: AtomicU32 = AtomicU32::new(1);
static WRITINGS: AtomicU32 = AtomicU32::new(0);

fn mixed(word: u64) -> u64 {
    let word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ word >> 32
}

fn chooser(hash: u64) -> &'static Chooser {
    &CHOOSER[(hash >> 16) as usize % CHOOSERS]
}

impl Key {
    /// `end` is the address after the thread's stack, in which the call's frame lies.
    /// Without, the caller alone counts.
    #[inline]
    pub(crate) fn new(origin: Origin, end: Option<u64>, python: u32) -> Self {
        let aligned = origin.frame_address() & 7 == 0;
        Self {
            origin,
            end: end.filter(|_| aligned).unwrap_or(0),
            python,
        }
    }

    /// The stack pointer, if it counts.
    fn stack_pointer(&self) -> u64 {
        if self.end == 0 {
            0
        } else {
            self.origin.stack_pointer
        }
    }

    fn hash(&self) -> u64 {
        let python = u64::from(self.python) << 40;
        let place = mixed(self.origin.return_address ^ python);
        mixed(place.wrapping_add(self.stack_pointer()))
    }

    #[inline]
    fn set(&self) -> &'static [Entry; WAYS] {
        let mut hash = self.hash();
        let chooser = chooser(hash);
        if chooser.of.load(Relaxed) == hash {
            let mut places = chooser.places.load(Relaxed);
            while places != 0 {
                let place = (places & ((1 << PLACE_BITS) - 1)) - 1;
                places >>= PLACE_BITS;
                hash = mixed(hash ^ self.word(place).unwrap_or(0));
            }
        }
        &TABLE[(hash >> 40) as usize % SETS]
    }

    /// A word of the thread's stack, this many above the call's frame.
    #[inline]
    fn word(&self, place: u64) -> Option<u64> {
        if place >= self.room() {
            return None;
        }
        let bottom = self.origin.frame_address() as *const u64;
        // SAFETY: an aligned word of this thread's own stack (`end`), above the hook's frame.
        Some(unsafe { bottom.add(place as usize).read_volatile() })
    }

    /// How many words of the thread's stack may be looked at.
    fn room(&self) -> u64 {
        self.end.saturating_sub(self.origin.frame_address()) / 8
    }
}

impl Entry {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "each use makes an entry of its own"
    )]
    const EMPTY: Self = Self {
        mark: AtomicU64::new(0),
        return_address: AtomicU64::new(0),
        stack_pointer: AtomicU64::new(0),
        frame_pointer: AtomicU64::new(0),
        python: AtomicU32::new(0),
        stack: AtomicU32::new(0),
        count: AtomicU32::new(0),
        places: [const { AtomicU32::new(0) }; MOST_WORDS],
        words: [const { AtomicU64::new(0) }; MOST_WORDS],
    };

    /// The first place where a stack with this trail has another word, if it has the same
    /// key.
    fn differs(&self, key: &Key, trail: &Trail) -> Option<u32> {
        if self.return_address.load(Relaxed) != key.origin.return_address
            || self.stack_pointer.load(Relaxed) != key.stack_pointer()
            || self.python.load(Relaxed) != key.python
        {
            return None;
        }
        let count = self.count.load(Relaxed) as usize;
        let own = self.places[..count].iter().zip(&self.words[..count]);
        for ((place, word), other) in own.zip(&trail.words) {
            if place.load(Relaxed) != other.place {
                return None;
            }
            if word.load(Relaxed) != other.word {
                return Some(other.place);
            }
        }
        None
    }

    /// The stack, if this is its call.
    #[inline]
    fn is(&self, key: &Key, age: u32) -> Option<StackId> {
        let mark = self.mark.load(Acquire);
        if (mark >> 32) as u32 != age
            || self.return_address.load(Relaxed) != key.origin.return_address
            || self.stack_pointer.load(Relaxed) != key.stack_pointer()
            || self.python.load(Relaxed) != key.python
        {
            return None;
        }
        let frame_pointer = self.frame_pointer.load(Relaxed);
        if frame_pointer != ANY && frame_pointer != key.origin.frame_pointer {
            return None;
        }
        let count = (self.count.load(Relaxed) as usize).min(MOST_WORDS);
        let room = key.room();
        if count != 0 && room == 0 {
            return None;
        }
        let bottom = key.origin.frame_address() as *const u64;
        for (places, words) in self.places[..count]
            .chunks(CHUNK)
            .zip(self.words[..count].chunks(CHUNK))
        {
            let mut difference = 0;
            for (place, word) in places.iter().zip(words) {
                // Another thread may be writing the entry: any place may come out.
                let place = u64::from(place.load(Relaxed)).min(room - 1);
                // SAFETY: as in `Key::word`.
                let there = unsafe { bottom.add(place as usize).read_volatile() };
                difference |= there ^ word.load(Relaxed);
            }
            if difference != 0 {
                return None;
            }
        }
        let stack = self.stack.load(Relaxed);
        fence(Acquire);
        (self.mark.load(Relaxed) == mark).then_some(StackId(stack))
    }
}

/// The stack of a call, if it was met before.
#[inline]
pub(crate) fn find(key: &Key) -> Option<StackId> {
    let age = AGE.load(Relaxed);
    key.set().iter().find_map(|entry| entry.is(key, age))
}

/// Keeps a stack, if its trail is not too long. Called with the core's lock held.
pub(crate) fn remember(key: &Key, trail: &Trail, stack: StackId) {
    if trail.words.len() > MOST_WORDS {
        return;
    }
    let age = AGE.load(Relaxed);
    let writing = WRITINGS.fetch_add(1, Relaxed);
    let entry = place_for(key, trail, age, writing);
    entry.mark.store(0, Relaxed);
    fence(Release);
    let Origin {
        return_address,
        frame_pointer,
        ..
    } = key.origin;
    entry.return_address.store(return_address, Relaxed);
    entry.stack_pointer.store(key.stack_pointer(), Relaxed);
    let frame_pointer = if trail.frame_pointer {
        frame_pointer
    } else {
        ANY
    };
    entry.frame_pointer.store(frame_pointer, Relaxed);
    entry.python.store(key.python, Relaxed);
    entry.stack.store(stack.0, Relaxed);
    entry.count.store(trail.words.len() as u32, Relaxed);
    for (index, Word { place, word, .. }) in trail.words.iter().enumerate() {
        entry.places[index].store(*place, Relaxed);
        entry.words[index].store(*word, Relaxed);
    }
    let mark = u64::from(age) << 32 | u64::from(writing);
    entry.mark.store(mark, Release);
}

/// An entry of the key's set: a free one, else another's.
fn place_for(key: &Key, trail: &Trail, age: u32, writing: u32) -> &'static Entry {
    let is_free = |entry: &&Entry| (entry.mark.load(Relaxed) >> 32) as u32 != age;
    let set = key.set();
    if let Some(free) = set.iter().find(is_free) {
        return free;
    }
    let other = &set[writing as usize % WAYS];
    let Some(place) = other.differs(key, trail) else {
        return other;
    };
    // Both are told apart by this word from now on.
    let hash = key.hash();
    let chooser = chooser(hash);
    if chooser.of.load(Relaxed) != hash {
        chooser.places.store(0, Relaxed);
        chooser.of.store(hash, Relaxed);
    }
    let known = chooser.places.load(Relaxed);
    if known >> (64 - PLACE_BITS) != 0 || place + 1 >= 1 << PLACE_BITS {
        return other;
    }
    chooser
        .places
        .store(known << PLACE_BITS | (u64::from(place) + 1), Relaxed);
    let set = key.set();
    let free = set.iter().find(is_free);
    free.unwrap_or(&set[writing as usize % WAYS])
}

/// Forgets every stack: modules were unloaded, or a forked child numbers its own. Called
/// with the core's lock held.
pub(crate) fn forget() {
    let age = AGE.load(Relaxed).wrapping_add(1).max(1);
    AGE.store(age, Relaxed);
}
