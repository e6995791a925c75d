//! Names for the things that operations talk about.

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);
    };
}

number!(
    /// A device, by CUDA's ordinal.
    DeviceId(u16)
);
number!(
    /// A CUDA context. The runtime uses one a device (its primary context), which
    /// is numbered like the device; other contexts get numbers from 0x1_0000 up,
    /// green ones from 0x8000_0000.
    ContextId(u32)
);
number!(
    /// A host thread, numbered in the order in which threads made their first
    /// CUDA call, from 1.
    ThreadId(u32)
);
number!(
    /// An interned string: an entry point, a kernel, a label. 0 is the empty string.
    NameId(u32)
);
number!(
    /// An interned host call stack. 0 is "not recorded".
    StackId(u32)
);
number!(
    /// The raw value of a stream, event or pool handle. The same value may stand
    /// for another object after a destroy.
    Handle(u64)
);

/// A stack's addresses from here on are no code's: each stands for a frame of an
/// interpreted language. Programs have their code far below.
pub const INTERPRETED: u64 = 1 << 63;

impl StackId {
    /// The number under which a trace says what an address from [`INTERPRETED`] on stands
    /// for, as if it were a stack of that one frame. Stacks themselves are fewer.
    #[must_use]
    pub fn of_interpreted(address: u64) -> Self {
        Self(1 << 31 | address as u32)
    }
}

impl ContextId {
    /// Whether it is some device's primary context.
    #[must_use]
    pub fn is_primary(self) -> bool {
        self.0 < 0x1_0000
    }

    /// Whether it is a green context, which is part of its device's primary one.
    #[must_use]
    pub fn is_green(self) -> bool {
        self.0 >= 0x8000_0000
    }
}

/// Which stream a call named.
///
/// Handle 0 means the legacy or the per-thread default stream depending on the
/// entry point's flavour (`_ptsz`), so that choice is made where the flavour is
/// known and no raw 0, 1 or 2 appears here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StreamRef {
    /// The legacy default stream of the call's context.
    Legacy,
    /// The per-thread default stream of the call's thread and context.
    PerThread,
    /// A stream that the application created.
    Created(Handle),
}
