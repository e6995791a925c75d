//! Containers and their entries, as nvcc 12 and 13 write them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Read as _;

use crate::LARGEST;
use crate::bytes::{size_at, u16_at, u32_at, u64_at};
use crate::locate::{CONTAINER_MAGIC, ELF_MAGIC};

const KIND_PTX: u16 = 1;
const KIND_CUBIN: u16 = 2;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

/// More parts than nvcc ever puts into an image.
const MOST_PARTS: usize = 4096;

/// The linker of device code adds a part without kernels, which is no larger.
const STUB: usize = 1 << 16;

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

/// One part as it lies in its image, perhaps compressed.
#[derive(Clone, Debug)]
pub struct Packed<'a> {
    kind: Kind,
    packing: Packing,
    bytes: Cow<'a, [u8]>,
    /// Of the part, uncompressed.
    size: usize,
    /// The compute capability it is made for, 90 for 9.0; 0 where the image does not say.
    capability: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cubin,
    Text,
    Unknown,
}

#[derive(Clone, Copy, Debug)]
enum Packing {
    None,
    Lz4,
    Zstd,
}

impl<'a> Packed<'a> {
    /// Whether it is PTX, by its header, of at most `longest` bytes.
    #[must_use]
    pub fn is_text(&self, longest: usize) -> bool {
        self.kind == Kind::Text && self.size <= longest
    }

    /// The part; `None` if it is damaged, or of an unknown kind.
    #[must_use]
    pub fn open(self) -> Option<Part<'a>> {
        match self.kind {
            Kind::Unknown => None,
            Kind::Cubin => self.unpacked().map(Part::Cubin),
            Kind::Text => self.unpacked().and_then(text),
        }
    }

    fn has_no_kernel(self) -> bool {
        self.open().is_some_and(|part| part.kernels().is_empty())
    }

    fn unpacked(self) -> Option<Cow<'a, [u8]>> {
        let out = match self.packing {
            Packing::None => return Some(self.bytes),
            _ if self.size > LARGEST => return None,
            Packing::Zstd => {
                let mut out = Vec::new();
                ruzstd::decoding::StreamingDecoder::new(&*self.bytes)
                    .ok()?
                    .take(self.size as u64 + 1)
                    .read_to_end(&mut out)
                    .ok()?;
                out
            }
            // No byte of LZ4 stands for more than 255 (its block format), so that a false
            // size takes no memory.
            Packing::Lz4 if self.size > self.bytes.len().saturating_mul(255) => return None,
            Packing::Lz4 => lz4_flex::decompress(&self.bytes, self.size).ok()?,
        };
        (out.len() == self.size).then_some(out.into())
    }

    /// A copy that outlives the image.
    #[must_use]
    pub fn into_owned(self) -> Packed<'static> {
        Packed {
            kind: self.kind,
            packing: self.packing,
            bytes: self.bytes.into_owned().into(),
            size: self.size,
            capability: self.capability,
        }
    }
}

/// Which part is the PTX of what runs on a device of `capability` (90 for 9.0; the newest
/// device if not known), by its number from 0. The driver takes code compiled for the device's
/// major capability, else the newest PTX that is not newer than the device; `None` where it
/// takes code for an architecture of which there is no PTX of at most `longest` bytes, as that
/// may do something else.
#[must_use]
pub fn text_that_runs(image: &[u8], capability: Option<u32>, longest: usize) -> Option<usize> {
    let capability = capability.unwrap_or(u32::MAX);
    let mut reader = Reader::default();
    let parts: Vec<Packed<'_>> = core::iter::from_fn(|| reader.next_packed(image))
        .take(MOST_PARTS)
        .collect();
    let newest = |kind| {
        let fits =
            move |packed: &&Packed<'_>| packed.kind == kind && packed.capability <= capability;
        parts.iter().filter(fits).map(|packed| packed.capability)
    };
    let text = newest(Kind::Text).max()?;
    let compiled = newest(Kind::Cubin)
        .filter(|made| made / 10 == capability / 10 || capability == u32::MAX)
        .max();
    if compiled.is_some_and(|compiled| compiled != text) {
        return None;
    }
    parts
        .iter()
        .position(|packed| packed.capability == text && packed.is_text(longest))
}

/// Whether an image holds PTX of at most `longest` bytes, as far as headers tell.
#[must_use]
pub fn holds_text(image: &[u8], longest: usize) -> bool {
    let mut reader = Reader::default();
    core::iter::from_fn(|| reader.next_packed(image)).any(|packed| packed.is_text(longest))
}

/// What an image holds code for, by compute capability (90 for 9.0).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Architectures {
    /// Machine code that has kernels.
    pub compiled: BTreeSet<u32>,
    /// PTX.
    pub text: BTreeSet<u32>,
}

impl Architectures {
    /// Those of an image, as far as headers and small parts tell.
    #[must_use]
    pub fn of(image: &[u8]) -> Self {
        let mut reader = Reader::default();
        let mut found = Self::default();
        for packed in core::iter::from_fn(|| reader.next_packed(image)).take(MOST_PARTS) {
            let (kind, capability) = (packed.kind, packed.capability);
            match kind {
                Kind::Cubin if packed.size <= STUB && packed.has_no_kernel() => {}
                Kind::Cubin => {
                    found.compiled.insert(capability);
                }
                Kind::Text => {
                    found.text.insert(capability);
                }
                Kind::Unknown => {}
            }
        }
        found
    }
}

/// The containers that lie one behind the other in a program's section of device code.
pub fn containers(section: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    core::iter::from_fn(move || {
        // The linker leaves zeros between them, and they begin at multiples of 8.
        while u32_at(section, at)? != CONTAINER_MAGIC {
            at += 8;
        }
        let start = at;
        let length = usize::from(u16_at(section, start + 6)?)
            .checked_add(size_at(section, start + 8)?)?
            .max(ENTRY_BYTES);
        let end = start.checked_add(length)?.min(section.len());
        at = end.checked_next_multiple_of(8)?;
        section.get(start..end)
    })
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
        loop {
            if let Some(part) = self.next_packed(image)?.open() {
                return Some(part);
            }
        }
    }

    /// The next part, whatever it is, which takes no time. `image` is as for [`Reader::next`].
    pub fn next_packed<'a>(&mut self, image: &'a [u8]) -> Option<Packed<'a>> {
        let magic = u32_at(image, 0);
        if magic != Some(CONTAINER_MAGIC) {
            if self.at != 0 {
                return None;
            }
            self.at = image.len().max(1);
            return Some(Packed {
                kind: match magic {
                    Some(ELF_MAGIC) => Kind::Cubin,
                    _ => Kind::Text,
                },
                packing: Packing::None,
                bytes: image.into(),
                size: image.len(),
                capability: 0,
            });
        }
        if self.at == 0 {
            self.at = u16_at(image, 6)?.into();
        }
        let (packed, next) = entry(image, self.at)?;
        self.at = next;
        Some(packed)
    }
}

/// The entry at `at`, and where the next one begins.
fn entry(container: &[u8], at: usize) -> Option<(Packed<'_>, usize)> {
    let header = container.get(at..)?;
    let start = u32_at(header, 4)? as usize;
    let length = size_at(header, 8)?;
    if start < ENTRY_BYTES {
        return None;
    }
    let end = start.checked_add(length)?;
    let payload = header.get(start..end)?;
    let mut kind = match u16_at(header, 0)? {
        KIND_CUBIN => Kind::Cubin,
        KIND_PTX => Kind::Text,
        _ => Kind::Unknown,
    };
    let flags = u64_at(header, 40)?;
    let packing = match flags {
        _ if flags & FLAG_ZSTD != 0 => Packing::Zstd,
        _ if flags & FLAG_LZ4 != 0 => Packing::Lz4,
        _ => Packing::None,
    };
    let (mut bytes, mut size) = (payload, payload.len());
    if !matches!(packing, Packing::None) {
        let packed = u32_at(header, 16).and_then(|length| payload.get(..length as usize));
        match (packed, size_at(header, 56)) {
            (Some(packed), Some(unpacked)) => (bytes, size) = (packed, unpacked),
            _ => kind = Kind::Unknown,
        }
    }
    let packed = Packed {
        kind,
        packing,
        bytes: bytes.into(),
        size,
        capability: u32_at(header, 28)?,
    };
    Some((packed, at + end))
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
    fn a_section_is_containers_one_behind_the_other() {
        let one = |kind, data: Vec<u8>| container(&[(kind, 0, data, 0)]);
        let mut section = one(KIND_PTX, TEXT.into());
        for cubin in [vec![1; STUB + 1], b"without kernels".to_vec()] {
            section.resize(section.len().next_multiple_of(8) + 16, 0);
            section.extend(one(KIND_CUBIN, cubin));
        }
        let found: Vec<_> = containers(&section).map(Architectures::of).collect();
        let counts = found
            .iter()
            .map(|found| (found.text.len(), found.compiled.len()));
        assert_eq!(counts.collect::<Vec<_>>(), [(1, 0), (0, 1), (0, 0)]);
        for cut in (0..section.len()).step_by(97) {
            assert!(containers(&section[..cut]).count() <= 3);
        }
        assert_eq!(containers(&[0; 99]).count(), 0);
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
        let short: Vec<Packed<'_>> = core::iter::from_fn(|| reader.next_packed(&image))
            .filter(|packed| packed.is_text(100))
            .collect();
        let [packed] = &short[..] else {
            panic!("{short:?}");
        };
        let part = packed.clone().into_owned().open();
        assert!(matches!(part, Some(Part::Ptx(text)) if text == TEXT));
        assert!(holds_text(&image, 100) && !holds_text(&image, 10));
        assert!(holds_text(TEXT.as_bytes(), 100) && !holds_text(TEXT.as_bytes(), 10));
        assert!(!holds_text(b"\x7fELF", 100));
    }

    #[test]
    fn the_text_is_that_of_the_code_that_runs() {
        let image = |parts: &[(u16, u32)]| {
            let parts: Vec<_> = parts
                .iter()
                .map(|(kind, _)| (*kind, 0, TEXT.as_bytes().to_vec(), TEXT.len()))
                .collect();
            container(&parts)
        };
        let with = |parts: &[(u16, u32)]| {
            let mut bytes = image(parts);
            let each = 64 + TEXT.len();
            for (place, (_, capability)) in parts.iter().enumerate() {
                let at = 16 + place * each + 28;
                bytes[at..at + 4].copy_from_slice(&capability.to_le_bytes());
            }
            bytes
        };
        let runs =
            |parts: &[(u16, u32)], capability| text_that_runs(&with(parts), capability, 1000);
        let (ptx, cubin) = (KIND_PTX, KIND_CUBIN);
        let both = [(ptx, 75), (cubin, 90), (ptx, 90)];
        assert_eq!(runs(&both, Some(90)), Some(2));
        assert_eq!(runs(&both, Some(80)), Some(0));
        assert_eq!(runs(&both, Some(70)), None);
        assert_eq!(runs(&both, None), Some(2));
        assert_eq!(
            runs(&[(ptx, 75), (cubin, 90)], Some(90)),
            None,
            "compiled from other text"
        );
        assert_eq!(runs(&[(ptx, 80), (cubin, 80)], Some(86)), Some(0));
        assert_eq!(
            runs(&[(ptx, 80), (cubin, 80)], Some(90)),
            Some(0),
            "compiled anew"
        );
        assert_eq!(text_that_runs(TEXT.as_bytes(), Some(90), 1000), Some(0));
    }
}
