//! Cubins: ELF files whose `.nv.info.KERNEL` sections hold the parameter layouts.

use super::{Global, Image, Param};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind, SymbolSection};

/// The record of one parameter: index, ordinal, offset, and the size in the top 14 bits of its last word.
const KPARAM_INFO: u8 = 0x17;
/// The only record format with a payload of its own; the others carry their value in the header.
const SIZED: u8 = 4;

/// Adds what the cubin defines; one that cannot be read adds nothing.
pub(super) fn read(bytes: &[u8], image: &mut Image) {
    let Ok(file) = ElfFile64::<object::Endianness>::parse(bytes) else {
        return;
    };
    for section in file.sections() {
        let Ok(name) = section.name() else { continue };
        if let Some(kernel) = name.strip_prefix(".text.") {
            image.kernels.entry(kernel.to_owned()).or_default();
        }
    }
    for section in file.sections() {
        let Ok(name) = section.name() else { continue };
        if let Some(params) = name
            .strip_prefix(".nv.info.")
            .and_then(|kernel| image.kernels.get_mut(kernel))
        {
            *params = parameters(section.data().unwrap_or_default());
        }
    }
    for symbol in file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.size() > 0)
    {
        let (Ok(name), SymbolSection::Section(index)) = (symbol.name(), symbol.section()) else {
            continue;
        };
        let Ok(section) = file.section_by_index(index) else {
            continue;
        };
        let size = symbol.size() as usize;
        let start = symbol.address() as usize;
        let init = section
            .data()
            .ok()
            .and_then(|data| data.get(start..start + size))
            .unwrap_or_default()
            .to_vec();
        image.globals.insert(name.to_owned(), Global { size, init });
    }
}

fn parameters(mut records: &[u8]) -> Vec<Param> {
    let mut params = Vec::new();
    while let [format, attribute, low, high, rest @ ..] = records {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        if *format != SIZED {
            records = rest;
            continue;
        }
        let Some((payload, next)) = rest.split_at_checked(length) else {
            break;
        };
        if *attribute == KPARAM_INFO
            && let &[
                _,
                _,
                _,
                _,
                ordinal_low,
                ordinal_high,
                offset_low,
                offset_high,
                a,
                b,
                c,
                d,
                ..,
            ] = payload
        {
            let size = (u32::from_le_bytes([a, b, c, d]) >> 18) as usize;
            let offset = usize::from(u16::from_le_bytes([offset_low, offset_high]));
            params.push((
                u16::from_le_bytes([ordinal_low, ordinal_high]),
                Param { offset, size },
            ));
        }
        records = next;
    }
    params.sort_by_key(|&(ordinal, _)| ordinal);
    params.into_iter().map(|(_, param)| param).collect()
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

    #[test]
    fn parameters_come_in_order_with_offset_and_size() {
        let expected = [(0, 8), (8, 16), (24, 8)].map(|(offset, size)| Param { offset, size });
        assert_eq!(parameters(INFO), expected);
    }

    #[test]
    fn a_truncated_record_ends_the_list() {
        assert_eq!(parameters(&INFO[..40]), []);
        assert_eq!(parameters(&INFO[..50]).len(), 1);
        let mut image = Image::default();
        read(b"\x7fELF not really", &mut image);
        assert!(image.kernels.is_empty());
    }
}
