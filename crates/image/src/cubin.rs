//! Cubins: ELF files whose `.nv.info.KERNEL` sections hold the parameter layouts.

use std::collections::BTreeMap;

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _};
use object::{SymbolKind, SymbolSection};

use crate::bytes::{u16_at, u32_at};
use crate::{Global, Globals, Kernels, Param, checked};

/// The record of one parameter (`EIATTR_KPARAM_INFO`): index, ordinal, offset, and the size in
/// the top 14 bits of its last word.
const KPARAM_INFO: u8 = 0x17;
/// The same for kernels whose parameters are too long for 14 bits (`EIATTR_KPARAM_INFO_V2`):
/// index, ordinal, offset, and the size in 16 bits. As nvcc 13 writes them.
const KPARAM_INFO_V2: u8 = 0x45;
/// The only record format with a payload of its own; the others carry their value in the header.
const SIZED: u8 = 4;

/// How much is read of a file: each byte once, and names somewhat more, as two tables hold
/// them. More than this only where a file has been made to repeat itself.
struct Budget(usize);

impl Budget {
    fn of(bytes: &[u8]) -> Self {
        Self(bytes.len().saturating_mul(4))
    }

    fn take(&mut self, length: usize) -> Option<()> {
        self.0 = self.0.checked_sub(length)?;
        Some(())
    }
}

fn parse(bytes: &[u8]) -> Option<ElfFile64<'_, Endianness>> {
    ElfFile64::parse(bytes).ok()
}

/// What the cubin defines; one that cannot be read defines nothing.
pub(crate) fn kernels(bytes: &[u8]) -> Kernels {
    let mut kernels = BTreeMap::new();
    let mut budget = Budget::of(bytes);
    if let Some(file) = parse(bytes) {
        // What was read until then stays.
        let _ = read_kernels(&file, &mut budget, &mut kernels);
    }
    kernels
}

fn read_kernels(
    file: &ElfFile64<'_, Endianness>,
    budget: &mut Budget,
    kernels: &mut Kernels,
) -> Option<()> {
    for section in file.sections() {
        let Ok(name) = section.name() else { continue };
        budget.take(name.len())?;
        if let Some(kernel) = name.strip_prefix(".text.") {
            kernels.entry(kernel.to_owned()).or_default();
        }
    }
    for section in file.sections() {
        let Ok(name) = section.name() else { continue };
        budget.take(name.len())?;
        if let Some(params) = name
            .strip_prefix(".nv.info.")
            .and_then(|kernel| kernels.get_mut(kernel))
            && let Ok(records) = section.data()
        {
            budget.take(records.len())?;
            *params = parameters(records);
        }
    }
    Some(())
}

/// The parameters that the records list; `None` if the list has a hole or a record is cut short.
fn parameters(mut records: &[u8]) -> Option<Vec<Param>> {
    let mut params = Vec::new();
    while let [format, attribute, rest @ ..] = records {
        if *format != SIZED {
            records = rest.get(2..)?;
            continue;
        }
        let length = u16_at(rest, 0)?.into();
        let (payload, next) = rest.get(2..)?.split_at_checked(length)?;
        if matches!(*attribute, KPARAM_INFO | KPARAM_INFO_V2) {
            let last = u32_at(payload, 8)?;
            let size = if *attribute == KPARAM_INFO {
                last >> 18
            } else {
                last & 0xffff
            };
            let param = Param {
                offset: u16_at(payload, 6)?.into(),
                size: size as usize,
            };
            params.push((usize::from(u16_at(payload, 4)?), param));
        }
        records = next;
    }
    params.sort_by_key(|&(ordinal, _)| ordinal);
    let whole = params
        .iter()
        .map(|&(ordinal, _)| ordinal)
        .eq(0..params.len());
    whole.then_some(())?;
    checked(params.into_iter().map(|(_, param)| param).collect())
}

/// The variables that the cubin defines.
pub(crate) fn globals(bytes: &[u8]) -> Globals {
    let mut globals = BTreeMap::new();
    let mut budget = Budget::of(bytes);
    if let Some(file) = parse(bytes) {
        let _ = read_globals(&file, &mut budget, &mut globals);
    }
    globals
}

fn read_globals(
    file: &ElfFile64<'_, Endianness>,
    budget: &mut Budget,
    globals: &mut Globals,
) -> Option<()> {
    for symbol in file.symbols() {
        if symbol.kind() != SymbolKind::Data || symbol.size() == 0 {
            continue;
        }
        let (Ok(name), SymbolSection::Section(index)) = (symbol.name(), symbol.section()) else {
            continue;
        };
        budget.take(name.len())?;
        let (Ok(section), Ok(size), Ok(start)) = (
            file.section_by_index(index),
            usize::try_from(symbol.size()),
            usize::try_from(symbol.address()),
        ) else {
            continue;
        };
        let data = section.data().unwrap_or_default();
        let init = start
            .checked_add(size)
            .and_then(|end| data.get(start..end))
            .unwrap_or_default();
        budget.take(init.len())?;
        let init = init.to_vec();
        globals.insert(name.to_owned(), Global { size, init });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `.nv.info` section that nvcc 13 wrote for `k(float *, struct { float *; int; }, double)`.
    #[rustfmt::skip]
    const INFO: &[u8] = &[
        0x04, 0x66, 0x04, 0x00, 0x03, 0, 0, 0,  0x04, 0x36, 0x04, 0x00, 0x01, 0, 0, 0,
        0x04, 0x0a, 0x08, 0x00, 0x0a, 0, 0, 0, 0x60, 0x01, 0x20, 0x00,  0x03, 0x19, 0x20, 0x00,
        0x04, 0x17, 0x0c, 0x00, 0, 0, 0, 0, 0x02, 0x00, 0x18, 0x00, 0x00, 0xf0, 0x21, 0x00,
        0x04, 0x17, 0x0c, 0x00, 0, 0, 0, 0, 0x01, 0x00, 0x08, 0x00, 0x00, 0xf0, 0x41, 0x00,
        0x04, 0x17, 0x0c, 0x00, 0, 0, 0, 0, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0, 0x21, 0x00,
        0x03, 0x1b, 0xff, 0x00,  0x02, 0x4a, 0x00, 0x00,
    ];

    /// The same for `k(float *, struct { char[20000]; float *; }, int)`.
    #[rustfmt::skip]
    const LONG: &[u8] = &[
        0x04, 0x66, 0x04, 0x00, 0x03, 0, 0, 0,
        0x04, 0x45, 0x0c, 0x00, 0, 0, 0, 0, 0x02, 0x00, 0x30, 0x4e, 0x04, 0x00, 0x00, 0x00,
        0x04, 0x45, 0x0c, 0x00, 0, 0, 0, 0, 0x01, 0x00, 0x08, 0x00, 0x28, 0x4e, 0x00, 0x00,
        0x04, 0x45, 0x0c, 0x00, 0, 0, 0, 0, 0x00, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x05,
        0x03, 0x50, 0x00, 0x00,  0x03, 0x19, 0x34, 0x4e,
    ];

    fn params<const N: usize>(list: [(usize, usize); N]) -> Option<Vec<Param>> {
        Some(list.map(|(offset, size)| Param { offset, size }).into())
    }

    #[test]
    fn parameters_come_in_order_with_offset_and_size() {
        assert_eq!(parameters(INFO), params([(0, 8), (8, 16), (24, 8)]));
        assert_eq!(parameters(LONG), params([(0, 8), (8, 20008), (20016, 4)]));
        assert_eq!(parameters(&INFO[..28]), params([]));
    }

    #[test]
    fn a_list_that_is_not_whole_is_not_known() {
        assert_eq!(parameters(&INFO[..40]), None, "a record is cut short");
        assert_eq!(parameters(&INFO[..48]), None, "parameter 2 without 0 and 1");
        assert_eq!(parameters(&INFO[32 + 16..]), params([(0, 8), (8, 16)]));
        let mut doubled = INFO.to_vec();
        doubled[32 + 8] = 1;
        assert_eq!(parameters(&doubled), None);
        let mut overlapping = INFO.to_vec();
        overlapping[32 + 10] = 16;
        assert_eq!(parameters(&overlapping), None);
        assert!(kernels(b"\x7fELF not really").is_empty());
    }
}
