//! Device code, read as far as its kernels' parameter layouts, what they do with their pointers, and
//! its global variables.
//!
//! A program carries device code as a *fat binary*: a container whose entries are cubins
//! (ELF files) and PTX (text), often compressed. Host code registers a *wrapper* that points
//! to it; the driver's loading functions take wrappers, containers, cubins and PTX alike.
//!
//! * [`locate()`] finds out where an image lies, and how long it is by its own headers.
//! * [`Reader`] gives its [`Part`]s, one at a time, uncompressed, or [`Packed`] as they lie.
//! * [`Part::kernels`], [`Part::code`] and [`Part::globals`] read one.
//!
//! All input may be damaged or made to harm: nothing here panics, and what a part or a list
//! may take of memory is bounded. What cannot be read is left out, never guessed.

mod access;
mod bytes;
mod cubin;
mod fatbin;
mod index;
mod instruction;
mod locate;
mod ptx;

pub use access::{Access, Accesses, Code, Uses};
pub use fatbin::{Architectures, Packed, Part, Reader, containers, holds_text, text_that_runs};
pub use index::{Per, Spread};
pub use locate::{Found, Memory, locate};

use std::collections::BTreeMap;

/// The largest image, and the largest uncompressed part of one, in bytes. A length beyond
/// it is taken for damage.
pub const LARGEST: usize = 1 << 30;

/// All of a kernel's parameters are at most so long together (CUDA C++ Programming Guide,
/// "`__global__` function parameters": 32,764 bytes).
const MOST_PARAMETERS: usize = 32_764;

/// One kernel parameter: where it lies in the parameter buffer and its size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// From the start of the parameter buffer.
    pub offset: usize,
    /// What it takes there.
    pub size: usize,
}

/// A `__device__`, `__constant__` or `__managed__` variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Global {
    /// In bytes.
    pub size: usize,
    /// Its first bytes; the rest is zero.
    pub init: Vec<u8>,
}

/// Kernels by mangled name; `None` where the part does not say how the parameters lie.
pub type Kernels = BTreeMap<String, Option<Vec<Param>>>;

/// Variables by mangled name.
pub type Globals = BTreeMap<String, Global>;

impl Part<'_> {
    /// What a kernel does with the pointers among its parameters; `None` where this part does
    /// not say, as cubins do not.
    #[must_use]
    pub fn code(&self, kernel: &str) -> Option<Code> {
        match self {
            Self::Cubin(_) => None,
            Self::Ptx(text) => {
                let definition = ptx::entry(text, kernel)?;
                access::code(&ptx::Entry::parse(&definition)?)
            }
        }
    }

    /// The kernels that it defines.
    #[must_use]
    pub fn kernels(&self) -> Kernels {
        match self {
            Self::Cubin(bytes) => cubin::kernels(bytes),
            Self::Ptx(text) => ptx::kernels(text),
        }
    }

    /// The variables that it defines. PTX gives their sizes alone.
    #[must_use]
    pub fn globals(&self) -> Globals {
        match self {
            Self::Cubin(bytes) => cubin::globals(bytes),
            Self::Ptx(text) => ptx::globals(text),
        }
    }
}

/// The parameters, if they can be those of a kernel: in order, apart, and not too long.
fn checked(params: Vec<Param>) -> Option<Vec<Param>> {
    let mut end = 0;
    for param in &params {
        if param.size == 0 || param.offset < end {
            return None;
        }
        end = param.offset.checked_add(param.size)?;
    }
    (end <= MOST_PARAMETERS).then_some(params)
}
