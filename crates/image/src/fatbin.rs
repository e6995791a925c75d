//! Containers and their entries, as nvcc 12 and 13 write them.

use std::borrow::Cow;
use std::io::Read as _;

use crate::LARGEST;
use crate::bytes::{size_at, u16_at, u32_at, u64_at};
use crate::locate::{CONTAINER_MAGIC, ELF_MAGIC};

const KIND_PTX: u16 = 1;
const KIND_CUBIN: u16 = 2;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

/// An entry's header is at least so long; up to its flags.
const ENTRY_BYTES: usize = 48;

/// One entry, uncompressed.
#[derive(Debug)]
pub enum Part<'a> {
    /// An ELF file.
    Cubin(Cow<'a, [u8]>),
    /// Text; what is not UTF-8 in it has been replaced.
    Ptx(Cow<'a, str>),
}

/// Reads an image's parts one after the other, so that one of them at a time takes memory and
/// only those take time that are wanted.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// Where the next entry begins; 0 before the first.
    at: usize,
}

impl Reader {
    /// The next part that can be read; an entry of another kind, or that is damaged, is left
    /// out. `image` is the same at each call: a container, an ELF file, or text.
    pub fn next<'a>(&mut self, image: &'a [u8]) -> Option<Part<'a>> {
        let magic = u32_at(image, 0);
        if magic != Some(CONTAINER_MAGIC) {
            if self.at != 0 {
                return None;
            }
            self.at = image.len().max(1);
            return match magic {
                Some(ELF_MAGIC) => Some(Part::Cubin(image.into())),
                _ => text(image.into()),
            };
        }
        if self.at == 0 {
            self.at = u16_at(image, 6)?.into();
        }
        loop {
            let (part, next) = entry(image, self.at, |_, _| true)?;
            self.at = next;
            if part.is_some() {
                return part;
            }
        }
    }

    /// The next part that is text of at most `longest` bytes. No time is spent on others.
    pub fn next_text<'a>(&mut self, image: &'a [u8], longest: usize) -> Option<Part<'a>> {
        if u32_at(image, 0) != Some(CONTAINER_MAGIC) {
            let short = image.len() <= longest;
            let part = self.next(image).filter(|_| short)?;
            return matches!(part, Part::Ptx(_)).then_some(part);
        }
        if self.at == 0 {
            self.at = u16_at(image, 6)?.into();
        }
        loop {
            let wanted = |kind, size| kind == KIND_PTX && size <= longest;
            let (part, next) = entry(image, self.at, wanted)?;
            self.at = next;
            if part.is_some() {
                return part;
            }
        }
    }
}

/// The entry at `at`, if it can be read and is `wanted` by its kind and its uncompressed
/// size, and where the next one begins.
fn entry(
    container: &[u8],
    at: usize,
    wanted: impl Fn(u16, usize) -> bool,
) -> Option<(Option<Part<'_>>, usize)> {
    let header = container.get(at..)?;
    let start = u32_at(header, 4)? as usize;
    let length = size_at(header, 8)?;
    if start < ENTRY_BYTES {
        return None;
    }
    let end = start.checked_add(length)?;
    let payload = header.get(start..end)?;
    let kind = u16_at(header, 0)?;
    let packed = u64_at(header, 40)? & (FLAG_LZ4 | FLAG_ZSTD) != 0;
    let size = if packed {
        size_at(header, 56).unwrap_or(usize::MAX)
    } else {
        payload.len()
    };
    let part = match kind {
        _ if !wanted(kind, size) => None,
        KIND_CUBIN => uncompressed(header, payload).map(Part::Cubin),
        KIND_PTX => uncompressed(header, payload).and_then(text),
        _ => None,
    };
    Some((part, at + end))
}

fn uncompressed<'a>(header: &[u8], payload: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let flags = u64_at(header, 40)?;
    if flags & (FLAG_LZ4 | FLAG_ZSTD) == 0 {
        return Some(payload.into());
    }
    let data = payload.get(..u32_at(header, 16)? as usize)?;
    let size = size_at(header, 56).filter(|&size| size <= LARGEST)?;
    let out = if flags & FLAG_ZSTD != 0 {
        let mut out = Vec::new();
        ruzstd::decoding::StreamingDecoder::new(data)
            .ok()?
            .take(size as u64 + 1)
            .read_to_end(&mut out)
            .ok()?;
        out
    } else {
        // No byte of LZ4 stands for more than 255 (its block format), so that a false size
        // takes no memory.
        if size > data.len().saturating_mul(255) {
            return None;
        }
        lz4_flex::decompress(data, size).ok()?
    };
    (out.len() == size).then_some(out.into())
}

fn text(bytes: Cow<'_, [u8]>) -> Option<Part<'_>> {
    // Text in a container ends with NULs.
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    let text = match bytes {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(&bytes[..end]),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes[..end]).into_owned().into(),
    };
    text.contains(".version").then_some(Part::Ptx(text))
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

    fn texts(image: &[u8]) -> Vec<String> {
        let mut reader = Reader::default();
        let mut out = Vec::new();
        while let Some(part) = reader.next(image) {
            if let Part::Ptx(text) = part {
                out.push(text.into_owned());
            }
        }
        out
    }

    #[test]
    fn plain_lz4_and_zstd_entries_are_read_and_an_unknown_kind_is_left_out() {
        let zstd = ruzstd::encoding::compress_to_vec(
            TEXT.as_bytes(),
            ruzstd::encoding::CompressionLevel::Uncompressed,
        );
        let bytes = container(&[
            (KIND_PTX, 0x11, format!("{TEXT}\0\0").into_bytes(), 0),
            (9, 0x11, b"unknown".to_vec(), 0),
            (
                KIND_PTX,
                0x11 | FLAG_LZ4,
                lz4_flex::compress(TEXT.as_bytes()),
                TEXT.len(),
            ),
            (KIND_PTX, 0x11 | FLAG_ZSTD, zstd, TEXT.len()),
        ]);
        assert_eq!(texts(&bytes), [TEXT; 3]);
    }

    #[test]
    fn bare_text_is_ptx_and_anything_else_is_nothing() {
        assert_eq!(texts(TEXT.as_bytes()), [TEXT]);
        assert!(texts(b"no").is_empty());
        assert!(texts(b"").is_empty());
    }

    #[test]
    fn a_damaged_entry_ends_the_list() {
        let good = container(&[(KIND_PTX, 0x11, TEXT.as_bytes().to_vec(), 0)]);
        let mut long = good.clone();
        long[16 + 9] = 0xff;
        assert!(texts(&long).is_empty());
        let mut short = good.clone();
        // No header and no data: the same entry again, for ever.
        short[16 + 4] = 0;
        short[16 + 8] = 0;
        assert!(texts(&short).is_empty());
        let mut backwards = good;
        backwards[16 + 8..16 + 16].fill(0xff);
        assert!(texts(&backwards).is_empty());
    }

    #[test]
    fn a_false_size_takes_no_memory() {
        let data = lz4_flex::compress(TEXT.as_bytes());
        for size in [LARGEST - 1, LARGEST + 1, usize::MAX, 1] {
            let bytes = container(&[(KIND_PTX, 0x11 | FLAG_LZ4, data.clone(), size)]);
            assert!(texts(&bytes).is_empty(), "{size}");
        }
    }

    #[test]
    fn texts_are_found_among_cubins_and_long_ones_left_out() {
        let image = container(&[
            (KIND_CUBIN, 0, b"\x7fELF".to_vec(), 4),
            (KIND_PTX, 0, TEXT.into(), TEXT.len()),
            (KIND_PTX, 0, TEXT.repeat(9).into(), TEXT.len() * 9),
        ]);
        let mut reader = Reader::default();
        assert!(matches!(reader.next_text(&image, 100), Some(Part::Ptx(text)) if text == TEXT));
        assert!(reader.next_text(&image, 100).is_none());
        assert!(Reader::default().next_text(TEXT.as_bytes(), 100).is_some());
        assert!(Reader::default().next_text(TEXT.as_bytes(), 10).is_none());
    }
}
