//! NVIDIA's containers: the wrapper that a program registers, the fat binary it points to, and that one's entries.
//!
//! The layouts are NVIDIA's `fatbinary_section.h` (wrapper) and what nvcc 12 and 13 write (container and entries).

use std::ffi::CStr;
use std::io::Read;

const WRAPPER_MAGIC: u32 = 0x466243b1;
const CONTAINER_MAGIC: u32 = 0xba55ed50;
const ELF_MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");

const KIND_PTX: u16 = 1;
const KIND_CUBIN: u16 = 2;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

/// The longest text or file taken for an image, in bytes: a guard against a length that is no length.
const LIMIT: u64 = 1 << 31;

/// What an image holds.
pub(super) enum Code {
    /// A wrapper that points nowhere: a program compiled without device code.
    Nothing,
    /// Its readable entries.
    Parts(Vec<Part>),
}

/// One entry, uncompressed.
pub(super) enum Part {
    Cubin(Vec<u8>),
    Ptx(String),
}

/// Opens the image at `code`; `None` if it is no image.
///
/// # Safety
/// `code` must be null or point to a whole image: a wrapper, a container, an ELF file or NUL-terminated text.
pub(super) unsafe fn open(code: *const u8) -> Option<Code> {
    if code.is_null() {
        return None;
    }
    // SAFETY: the shortest image, a text of one character, may be shorter than four bytes, so they are read one by one.
    let first: Vec<u8> = unsafe { bytes_until_nul(code, 4) };
    match first.as_slice().try_into().map(u32::from_le_bytes).ok() {
        Some(WRAPPER_MAGIC) => {
            // SAFETY: a wrapper is 24 bytes: magic, version, data, file name or fat binaries.
            let wrapper = unsafe { std::slice::from_raw_parts(code, 24) };
            let data = u64_at(wrapper, 8)? as *const u8;
            if data.is_null() {
                return Some(Code::Nothing);
            }
            // SAFETY: a wrapper's data is a container.
            unsafe { open(data) }
        }
        Some(CONTAINER_MAGIC) => {
            // SAFETY: a container starts with 16 bytes of header, which tell its length.
            let header = unsafe { std::slice::from_raw_parts(code, 16) };
            let length = u64::from(u16_at(header, 6)?) + u64_at(header, 8)?;
            if length >= LIMIT {
                return None;
            }
            // SAFETY: the length is the container's own.
            let container = unsafe { std::slice::from_raw_parts(code, length as usize) };
            Some(Code::Parts(entries(container)))
        }
        Some(ELF_MAGIC) => {
            // SAFETY: an ELF file's header tells where its last table ends.
            let header = unsafe { std::slice::from_raw_parts(code, 64) };
            let end = |at: usize, entry: usize, count: usize| {
                Some(
                    u64_at(header, at)?
                        + u64::from(u16_at(header, entry)?) * u64::from(u16_at(header, count)?),
                )
            };
            let length = end(0x28, 0x3a, 0x3c)?.max(end(0x20, 0x36, 0x38)?);
            // SAFETY: cubins end with their section or program headers.
            let bytes = (length < LIMIT)
                .then(|| unsafe { std::slice::from_raw_parts(code, length as usize) })?;
            Some(Code::Parts(vec![Part::Cubin(bytes.to_vec())]))
        }
        _ => {
            // SAFETY: what is left must be NUL-terminated text.
            let text = unsafe { CStr::from_ptr(code.cast()) }.to_str().ok()?;
            text.contains(".version")
                .then(|| Code::Parts(vec![Part::Ptx(text.to_owned())]))
        }
    }
}

/// # Safety
/// `at` must point to `limit` bytes or to a NUL before them.
unsafe fn bytes_until_nul(at: *const u8, limit: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < limit && out.last() != Some(&0) {
        // SAFETY: the caller's promise; reading stops behind the first NUL.
        out.push(unsafe { at.add(out.len()).read() });
    }
    out
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The readable entries; one whose compression or kind is not known is left out.
fn entries(container: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut at = u16_at(container, 6).map_or(container.len(), usize::from);
    while let Some((part, next)) = entry(container, at) {
        parts.extend(part);
        at = next;
    }
    parts
}

fn entry(container: &[u8], at: usize) -> Option<(Option<Part>, usize)> {
    let header = container.get(at..)?;
    let start = u32_at(header, 4)? as usize;
    let length = u64_at(header, 8)? as usize;
    let payload = header.get(start..start.checked_add(length)?)?;
    let flags = u64_at(header, 40)?;
    let compressed = payload.get(..u32_at(header, 16)? as usize);
    let bytes = if flags & FLAG_ZSTD != 0 {
        compressed.and_then(unzstd)
    } else if flags & FLAG_LZ4 != 0 {
        compressed
            .zip(u64_at(header, 56))
            .and_then(|(data, size)| lz4_flex::decompress(data, size as usize).ok())
    } else {
        Some(payload.to_vec())
    };
    let part = bytes.and_then(|bytes| match u16_at(header, 0)? {
        KIND_CUBIN => Some(Part::Cubin(bytes)),
        KIND_PTX => {
            let text = String::from_utf8_lossy(&bytes);
            Some(Part::Ptx(text.trim_end_matches('\0').to_owned()))
        }
        _ => None,
    });
    Some((part, at + start + length))
}

fn unzstd(data: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(data)
        .ok()?
        .read_to_end(&mut out)
        .ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".version 8.0\n.visible .entry k(.param .u64 p){ ret; }\n";

    fn container(entries: &[(u16, u64, Vec<u8>, usize)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, flags, data, size) in entries {
            body.extend(kind.to_le_bytes());
            body.extend(0x101u16.to_le_bytes());
            body.extend(64u32.to_le_bytes());
            body.extend((data.len() as u64).to_le_bytes());
            body.extend((data.len() as u32).to_le_bytes());
            body.extend([0; 20]);
            body.extend(flags.to_le_bytes());
            body.extend([0; 8]);
            body.extend((*size as u64).to_le_bytes());
            body.extend(data);
        }
        let mut out = CONTAINER_MAGIC.to_le_bytes().to_vec();
        out.extend(1u16.to_le_bytes());
        out.extend(16u16.to_le_bytes());
        out.extend((body.len() as u64).to_le_bytes());
        out.extend(body);
        out
    }

    fn texts(code: Option<Code>) -> Vec<String> {
        let Some(Code::Parts(parts)) = code else {
            return vec![];
        };
        let text = |part| {
            if let Part::Ptx(text) = part {
                Some(text)
            } else {
                None
            }
        };
        parts.into_iter().filter_map(text).collect()
    }

    #[test]
    fn plain_lz4_and_zstd_entries_are_read_and_an_unknown_kind_is_left_out() {
        let zstd = ruzstd::encoding::compress_to_vec(
            TEXT.as_bytes(),
            ruzstd::encoding::CompressionLevel::Uncompressed,
        );
        let bytes = container(&[
            (KIND_PTX, 0x11, TEXT.as_bytes().to_vec(), 0),
            (9, 0x11, b"unknown".to_vec(), 0),
            (
                KIND_PTX,
                0x11 | FLAG_LZ4,
                lz4_flex::compress(TEXT.as_bytes()),
                TEXT.len(),
            ),
            (KIND_PTX, 0x11 | FLAG_ZSTD, zstd, TEXT.len()),
        ]);
        // SAFETY: a whole container.
        assert_eq!(texts(unsafe { open(bytes.as_ptr()) }), [TEXT; 3]);
        let wrapper = [u64::from(WRAPPER_MAGIC) | 1 << 32, bytes.as_ptr() as u64, 0];
        // SAFETY: a whole wrapper around it.
        assert_eq!(texts(unsafe { open(wrapper.as_ptr().cast()) }), [TEXT; 3]);
    }

    #[test]
    fn text_is_ptx_and_an_empty_wrapper_is_no_code() {
        let text = std::ffi::CString::new(TEXT).unwrap();
        // SAFETY: NUL-terminated text, a whole wrapper, null.
        unsafe {
            assert_eq!(texts(open(text.as_ptr().cast())), [TEXT]);
            assert!(open(c"no".as_ptr().cast()).is_none());
            let wrapper = [u64::from(WRAPPER_MAGIC) | 1 << 32, 0, 0];
            assert!(matches!(open(wrapper.as_ptr().cast()), Some(Code::Nothing)));
            assert!(open(std::ptr::null()).is_none());
        }
    }

    #[test]
    fn a_damaged_entry_ends_the_list() {
        let mut bytes = container(&[(KIND_PTX, 0x11, TEXT.as_bytes().to_vec(), 0)]);
        bytes[16 + 8] = 0xff;
        bytes[16 + 9] = 0xff;
        // SAFETY: the container's own length is right.
        assert!(texts(unsafe { open(bytes.as_ptr()) }).is_empty());
    }
}
