//! Device code, read as far as a test double needs: kernels with their parameter layouts, and global variables.

mod cubin;
mod fatbin;
mod mangled;
mod ptx;

use std::collections::BTreeMap;

/// One kernel parameter: where it lies in the parameter buffer and its size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Param {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// A `__device__`, `__constant__` or `__managed__` variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Global {
    pub(crate) size: usize,
    /// Its first bytes; the rest is zero.
    pub(crate) init: Vec<u8>,
}

/// What was found in one image.
#[derive(Debug, Default)]
pub(crate) struct Image {
    pub(crate) kernels: BTreeMap<String, Vec<Param>>,
    pub(crate) globals: BTreeMap<String, Global>,
    /// There was no device code to read: any kernel name is taken, its layout guessed from the name.
    pub(crate) opaque: bool,
}

impl Image {
    /// Reads the image at `code`: a fat binary or its wrapper, a cubin, or PTX text. `None`: it is none of them.
    ///
    /// # Safety
    /// `code` must be null or point to a whole image, as for `cuModuleLoadData`.
    pub(crate) unsafe fn load(code: *const u8) -> Option<Self> {
        // SAFETY: the caller's promise.
        match unsafe { fatbin::open(code) }? {
            fatbin::Code::Nothing => Some(Self {
                opaque: true,
                ..Self::default()
            }),
            fatbin::Code::Parts(parts) => {
                let mut image = Self::default();
                for part in &parts {
                    match part {
                        fatbin::Part::Cubin(bytes) => cubin::read(bytes, &mut image),
                        fatbin::Part::Ptx(text) => ptx::read(text, &mut image),
                    };
                }
                Some(image)
            }
        }
    }

    /// The layout of kernel `name`: `None` if there is no such kernel, `Some(None)` if it is not known.
    pub(crate) fn layout(&self, name: &str) -> Option<Option<Vec<Param>>> {
        match self.kernels.get(name) {
            Some(params) => Some(Some(params.clone())),
            None => self.opaque.then(|| mangled::layout(name)),
        }
    }
}

/// Places a parameter after `end`, as C's layout rules do.
fn place(end: &mut usize, size: usize, align: usize) -> Param {
    let offset = end.next_multiple_of(align.max(1));
    *end = offset + size;
    Param { offset, size }
}
