//! Device code, read as far as a test double needs: kernels with their parameter layouts, and global variables.

mod mangled;

pub(crate) use streamcheck_image::{Global, Param};

use std::collections::BTreeMap;
use std::ffi::CStr;
use streamcheck_image::{Found, Memory, Reader, locate};

/// What was found in one image.
#[derive(Debug, Default)]
pub(crate) struct Image {
    /// `None` where the layout is not known.
    pub(crate) kernels: BTreeMap<String, Option<Vec<Param>>>,
    pub(crate) globals: BTreeMap<String, Global>,
    /// There was no device code to read: any kernel name is taken, its layout guessed from the name.
    pub(crate) opaque: bool,
}

/// The memory of this process, where an image lies.
struct Here(());

impl Here {
    /// # Safety
    /// Only the headers and the text of whole images may be read through it.
    unsafe fn new() -> Self {
        Self(())
    }
}

impl Memory for Here {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        // SAFETY: inside a whole image, as `new` was promised.
        unsafe {
            std::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len())
        };
        true
    }

    fn text_length(&self, address: u64, limit: usize) -> usize {
        // SAFETY: what is no other image must be NUL-terminated text.
        let text = unsafe { CStr::from_ptr(address as *const _) };
        text.count_bytes().min(limit)
    }
}

impl Image {
    /// Reads the image at `code`: a fat binary or its wrapper, a cubin, or PTX text. `None`: it is none of them.
    ///
    /// # Safety
    /// `code` must be null or point to a whole image, as for `cuModuleLoadData`.
    pub(crate) unsafe fn load(code: *const u8) -> Option<Self> {
        // SAFETY: the caller's promise.
        match locate(code as u64, &unsafe { Here::new() })? {
            Found::Nothing => Some(Self {
                opaque: true,
                ..Self::default()
            }),
            Found::Image { address, length } => {
                // SAFETY: the image says that it is so long.
                let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, length) };
                Self::read(bytes)
            }
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut image = Self::default();
        let mut reader = Reader::default();
        let mut parts = 0;
        while let Some(part) = reader.next(bytes) {
            parts += 1;
            for (name, params) in part.kernels() {
                let known = image.kernels.entry(name).or_default();
                if known.is_none() {
                    *known = params;
                }
            }
            for (name, global) in part.globals() {
                // Only cubins tell what is in it.
                let known = image.globals.entry(name).or_default();
                if known.size == 0 || known.init.is_empty() {
                    *known = global;
                }
            }
        }
        let container = bytes.starts_with(&[0x50, 0xed, 0x55, 0xba]);
        (parts > 0 || container).then_some(image)
    }

    /// The layout of kernel `name`: `None` if there is no such kernel, `Some(None)` if it is not known.
    pub(crate) fn layout(&self, name: &str) -> Option<Option<Vec<Param>>> {
        match self.kernels.get(name) {
            Some(params) => Some(params.clone()),
            None => self.opaque.then(|| mangled::layout(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_an_image_and_an_empty_wrapper_takes_any_kernel() {
        let text = c".version 8.0\n.visible .entry k(.param .u64 p){ ret; }\n";
        // SAFETY: NUL-terminated text.
        let image = unsafe { Image::load(text.as_ptr().cast()) }.expect("it is PTX");
        let params = vec![Param { offset: 0, size: 8 }];
        assert_eq!(image.layout("k"), Some(Some(params.clone())));
        assert_eq!(image.layout("l"), None);
        let wrapper = [0x4662_43b1_u64 | 1 << 32, 0, 0];
        // SAFETY: a whole wrapper, NUL-terminated text, null.
        unsafe {
            let image = Image::load(wrapper.as_ptr().cast()).expect("it is a wrapper");
            assert_eq!(image.layout("_Z1kPf"), Some(Some(params)));
            assert_eq!(image.layout("k"), Some(None));
            assert!(Image::load(c"no".as_ptr().cast()).is_none());
            assert!(Image::load(std::ptr::null()).is_none());
        }
    }
}
