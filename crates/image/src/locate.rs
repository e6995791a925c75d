//! Where an image lies in memory, and how long it is.
//!
//! An image comes as a bare pointer. Its first bytes tell what it is, and its headers how long;
//! nothing is read beyond what these say. The layouts are those of NVIDIA's
//! `fatbinary_section.h` (the wrapper), of what nvcc 12 and 13 write (the container), and
//! of ELF.

use crate::LARGEST;
use crate::bytes::{size_at, u16_at, u32_at};

pub(crate) const WRAPPER_MAGIC: u32 = 0x466243b1;
pub(crate) const CONTAINER_MAGIC: u32 = 0xba55ed50;
pub(crate) const ELF_MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");

/// Magic, version, data, file name or fat binaries.
const WRAPPER_BYTES: usize = 24;
/// Magic, version, header's length, data's length.
const CONTAINER_BYTES: usize = 16;
const ELF_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
/// How many section headers are read at a time.
const SECTIONS_AT_ONCE: usize = 64;

/// The memory that an image lies in.
pub trait Memory {
    /// Fills `into` with what lies at `address`. False if that cannot be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
    /// How many bytes from `address` there are before the first NUL, at most `limit`.
    fn text_length(&self, address: u64, limit: usize) -> usize;
}

/// What was found at an image's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A wrapper that points nowhere: a program compiled without device code.
    Nothing,
    /// A container, an ELF file, or text, for [`Reader`](crate::Reader).
    Image {
        /// Of its first byte.
        address: u64,
        /// In bytes; of a text, without the NUL.
        length: usize,
    },
}

/// Finds the image that `address` stands for: a wrapper, a container, an ELF file or
/// NUL-terminated text. `None` if it is none of them, or longer than [`LARGEST`].
pub fn locate(address: u64, memory: &impl Memory) -> Option<Found> {
    match first(address, memory)? {
        Some(WRAPPER_MAGIC) => {
            let mut wrapper = [0; WRAPPER_BYTES];
            memory.read(address, &mut wrapper).then_some(())?;
            let data = crate::bytes::u64_at(&wrapper, 8)?;
            if data == 0 {
                return Some(Found::Nothing);
            }
            // A wrapper in a wrapper could go in circles.
            match first(data, memory)? {
                Some(WRAPPER_MAGIC) => None,
                other => image(data, other, memory),
            }
        }
        other => image(address, other, memory),
    }
}

/// The first four bytes; `Some(None)` where a text ends before. They are read one by one, as the
/// shortest text is shorter.
fn first(address: u64, memory: &impl Memory) -> Option<Option<u32>> {
    if address == 0 {
        return None;
    }
    let mut bytes = [0; 4];
    for (place, byte) in (address..).zip(&mut bytes) {
        memory
            .read(place, core::slice::from_mut(byte))
            .then_some(())?;
        if *byte == 0 {
            return Some(None);
        }
    }
    Some(Some(u32::from_le_bytes(bytes)))
}

fn image(address: u64, magic: Option<u32>, memory: &impl Memory) -> Option<Found> {
    let length = match magic {
        Some(CONTAINER_MAGIC) => container(address, memory)?,
        Some(ELF_MAGIC) => elf(address, memory)?,
        _ => memory.text_length(address, LARGEST + 1),
    };
    let fits = length <= LARGEST && address.checked_add(length as u64).is_some();
    fits.then_some(Found::Image { address, length })
}

fn container(address: u64, memory: &impl Memory) -> Option<usize> {
    let mut header = [0; CONTAINER_BYTES];
    memory.read(address, &mut header).then_some(())?;
    usize::from(u16_at(&header, 6)?).checked_add(size_at(&header, 8)?)
}

/// Where the last of an ELF file's tables and sections ends.
fn elf(address: u64, memory: &impl Memory) -> Option<usize> {
    const NOBITS: u32 = 8;
    let mut header = [0; ELF_BYTES];
    memory.read(address, &mut header).then_some(())?;
    // 64 bits, little-endian.
    if header[4..6] != [2, 1] {
        return None;
    }
    let table = |offset: usize, entry: usize, count: usize| {
        entry
            .checked_mul(count)?
            .checked_add(offset)
            .filter(|&end| end <= LARGEST)
    };
    let segments = table(
        size_at(&header, 0x20)?,
        u16_at(&header, 0x36)?.into(),
        u16_at(&header, 0x38)?.into(),
    )?;
    let mut end = segments.max(ELF_BYTES);
    let start = size_at(&header, 0x28)?;
    if start == 0 {
        return Some(end);
    }
    if u16_at(&header, 0x3a)? as usize != SECTION_BYTES {
        return None;
    }
    let mut sections = [0; SECTION_BYTES * SECTIONS_AT_ONCE];
    let mut count = usize::from(u16_at(&header, 0x3c)?);
    if count == 0 {
        // More than fit there: the first section's size is their number.
        let head = &mut sections[..SECTION_BYTES];
        let place = address.checked_add(table(start, 0, 0)? as u64)?;
        memory.read(place, head).then_some(())?;
        count = size_at(head, 0x20)?;
    }
    end = end.max(table(start, SECTION_BYTES, count)?);
    address.checked_add(end as u64)?;
    let mut done = 0;
    while done < count {
        let now = SECTIONS_AT_ONCE.min(count - done);
        let some = &mut sections[..now * SECTION_BYTES];
        let place = address + (start + done * SECTION_BYTES) as u64;
        memory.read(place, some).then_some(())?;
        for section in some.chunks_exact(SECTION_BYTES) {
            if u32_at(section, 4)? != NOBITS {
                end = end.max(table(size_at(section, 0x18)?, size_at(section, 0x20)?, 1)?);
            }
        }
        done += now;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes from address 0x1000 on; reading past them is a failure of the test.
    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            let at = (address - 0x1000) as usize;
            into.copy_from_slice(&self.0[at..at + into.len()]);
            true
        }
        fn text_length(&self, address: u64, limit: usize) -> usize {
            let rest = &self.0[(address - 0x1000) as usize..];
            let end = rest.iter().position(|&byte| byte == 0);
            end.expect("the text ends").min(limit)
        }
    }

    fn found(bytes: &[u8]) -> Option<Found> {
        locate(0x1000, &Bytes(bytes.to_vec()))
    }

    fn wrapper(data: u64) -> Vec<u8> {
        let mut bytes = WRAPPER_MAGIC.to_le_bytes().to_vec();
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(data.to_le_bytes());
        bytes.extend([0; 8]);
        bytes
    }

    #[test]
    fn text_ends_at_its_nul() {
        let image = |length| {
            Some(Found::Image {
                address: 0x1000,
                length,
            })
        };
        assert_eq!(found(b"\0"), image(0));
        assert_eq!(found(b"ab\0"), image(2));
        assert_eq!(found(b".version 8.0\n\0"), image(13));
        assert_eq!(locate(0, &Bytes(vec![])), None);
    }

    #[test]
    fn a_wrapper_leads_to_its_container_or_nowhere() {
        let mut bytes = wrapper(0x1018);
        bytes.extend(CONTAINER_MAGIC.to_le_bytes());
        bytes.extend([1, 0, 16, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            found(&bytes),
            Some(Found::Image {
                address: 0x1018,
                length: 21
            })
        );
        assert_eq!(found(&wrapper(0)), Some(Found::Nothing));
        assert_eq!(found(&wrapper(0x1000)), None, "a circle");
    }

    #[test]
    fn a_length_that_is_none_is_refused() {
        let mut bytes = CONTAINER_MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend(u64::MAX.to_le_bytes());
        assert_eq!(found(&bytes), None);
        bytes[8..].copy_from_slice(&(LARGEST as u64).to_le_bytes());
        assert_eq!(found(&bytes), None);
    }

    #[test]
    fn an_elf_file_ends_with_the_last_of_its_sections_and_tables() {
        let mut bytes = vec![0; 64 + 2 * 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[0x28] = 64; // section headers right behind this one
        bytes[0x3a] = 64;
        bytes[0x3c] = 2;
        let length = |bytes: &[u8]| match found(bytes) {
            Some(Found::Image { length, .. }) => length,
            other => panic!("{other:?}"),
        };
        assert_eq!(length(&bytes), 192);
        bytes[128 + 0x18] = 200;
        bytes[128 + 0x20] = 50;
        assert_eq!(length(&bytes), 250);
        bytes[128 + 4] = 8; // nothing of it is in the file
        assert_eq!(length(&bytes), 192);
        // Extended numbering.
        bytes[0x3c] = 0;
        bytes[64 + 4] = 8;
        bytes[64 + 0x20] = 2;
        assert_eq!(length(&bytes), 192);
        bytes[4] = 1;
        assert_eq!(found(&bytes), None, "32 bits");
    }
}
