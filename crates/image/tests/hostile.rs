//! Damaged and hostile images: no panic, no reading past the end, no more memory than the input
//! accounts for.

use proptest::prelude::*;
use streamcheck_image::{Found, LARGEST, Memory, Param, Part, Reader, locate};

const PTX: &str = ".version 8.0\n.target sm_75\n.global .align 4 .b8 g[64];\n\
    .visible .entry k(.param .u64 a, .param .align 8 .b8 b[24]) // two\n{ /* body */ ret; }\n";

/// An ELF file with a kernel `k` of two parameters and a variable `g` of four bytes.
fn cubin() -> Vec<u8> {
    let names = b"\0.text.k\0.nv.info.k\0.nv.global.init\0.shstrtab\0.symtab\0.strtab\0";
    let name = |text: &str| {
        let place = names
            .windows(text.len())
            .position(|part| part == text.as_bytes());
        place.expect("it is there") as u32
    };
    let mut info = vec![4, 0x17, 12, 0, 0, 0, 0, 0, 1, 0, 8, 0];
    info.extend((24u32 << 18).to_le_bytes());
    info.extend([4, 0x17, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    info.extend((8u32 << 18).to_le_bytes());
    info.extend([3, 0x19, 32, 0]);
    let mut symbols = vec![0; 24];
    // Name 1, an object, in section 3, at 4, of 4 bytes.
    symbols.extend([1, 0, 0, 0, 0x11, 0, 3, 0]);
    symbols.extend(4u64.to_le_bytes());
    symbols.extend(4u64.to_le_bytes());
    let sections: [(&str, u32, &[u8], u32); 6] = [
        (".text.k", 1, &[0; 16], 0),
        (".nv.info.k", 0x7000_0000, &info, 0),
        (".nv.global.init", 1, &[1, 2, 3, 4, 5, 6, 7, 8], 0),
        (".shstrtab", 3, names, 0),
        (".symtab", 2, &symbols, 6),
        (".strtab", 3, b"\0g\0", 0),
    ];
    let mut out = vec![0; 64];
    let mut headers = vec![0; 64];
    for (section, kind, data, link) in sections {
        let mut header = [0; 64];
        header[..4].copy_from_slice(&name(section).to_le_bytes());
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[0x18..0x20].copy_from_slice(&(out.len() as u64).to_le_bytes());
        header[0x20..0x28].copy_from_slice(&(data.len() as u64).to_le_bytes());
        header[0x28..0x2c].copy_from_slice(&link.to_le_bytes());
        header[0x38] = if kind == 2 { 24 } else { 0 };
        headers.extend(header);
        out.extend(data);
    }
    let start = out.len() as u64;
    out.extend(headers);
    out[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    out[0x10] = 2;
    out[0x12] = 190;
    out[0x28..0x30].copy_from_slice(&start.to_le_bytes());
    out[0x34] = 64;
    out[0x3a] = 64;
    out[0x3c] = 7;
    out[0x3e] = 4;
    out
}

/// An entry of a container: kind, flags, data, uncompressed size.
fn entry(kind: u16, flags: u64, data: &[u8], size: usize) -> Vec<u8> {
    let mut out = kind.to_le_bytes().to_vec();
    out.extend([1, 1, 64, 0, 0, 0]);
    out.extend((data.len() as u64).to_le_bytes());
    out.extend((data.len() as u64).to_le_bytes());
    out.extend([0; 16]);
    out.extend(flags.to_le_bytes());
    out.extend([0; 8]);
    out.extend((size as u64).to_le_bytes());
    out.extend(data);
    out
}

fn container() -> Vec<u8> {
    let cubin = cubin();
    let zstd =
        ruzstd::encoding::compress_to_vec(&cubin[..], ruzstd::encoding::CompressionLevel::Fastest);
    let body = [
        entry(2, 0x11, &cubin, 0),
        entry(2, 0x2011, &lz4_flex::compress(&cubin), cubin.len()),
        entry(2, 0x8011, &zstd, cubin.len()),
        entry(1, 0x11, PTX.as_bytes(), 0),
        entry(1, 0x2011, &lz4_flex::compress(PTX.as_bytes()), PTX.len()),
        entry(64, 0x11, b"something newer", 0),
    ]
    .concat();
    let mut out = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
    out.extend((body.len() as u64).to_le_bytes());
    out.extend(body);
    out
}

/// Memory that ends: what lies behind it cannot be read.
struct Bytes<'a>(&'a [u8]);

const START: u64 = 0x10_0000;

impl Memory for Bytes<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let found = address
            .checked_sub(START)
            .and_then(|at| self.0.get(at as usize..)?.get(..into.len()));
        found.is_some_and(|bytes| {
            into.copy_from_slice(bytes);
            true
        })
    }
    fn text_length(&self, address: u64, limit: usize) -> usize {
        let rest = &self.0[(address - START) as usize..];
        let end = rest.iter().position(|&byte| byte == 0);
        end.unwrap_or(rest.len()).min(limit)
    }
}

/// Reads all of it, and checks what it took.
fn read(image: &[u8]) -> usize {
    let _ = locate(START, &Bytes(image));
    let mut reader = Reader::default();
    let mut parts = 0;
    while let Some(part) = reader.next(image) {
        parts += 1;
        assert!(parts <= image.len() + 1, "each part comes once");
        let length = match &part {
            Part::Cubin(bytes) => bytes.len(),
            Part::Ptx(text) => text.len(),
        };
        assert!(length <= LARGEST);
        let bound = 8 * length + 64;
        let kernels = part.kernels();
        let taken: usize = kernels
            .iter()
            .map(|(name, params)| name.len() + 8 * params.as_ref().map_or(0, Vec::len))
            .sum();
        assert!(taken <= bound, "{taken} from {length}");
        for params in kernels.values().flatten() {
            assert!(
                params
                    .iter()
                    .all(|param| param.offset + param.size <= 32_764)
            );
        }
        let taken: usize = part
            .globals()
            .iter()
            .map(|(name, global)| name.len() + global.init.len())
            .sum();
        assert!(taken <= bound, "{taken} from {length}");
    }
    parts
}

#[test]
fn the_whole_image_is_read() {
    let image = container();
    assert_eq!(read(&image), 5);
    let length = image.len();
    let whole = Found::Image {
        address: START,
        length,
    };
    assert_eq!(locate(START, &Bytes(&image)), Some(whole));
    let cubin = cubin();
    let length = cubin.len();
    let whole = Found::Image {
        address: START,
        length,
    };
    assert_eq!(locate(START, &Bytes(&cubin)), Some(whole));

    let layout = [
        Param { offset: 0, size: 8 },
        Param {
            offset: 8,
            size: 24,
        },
    ];
    let mut reader = Reader::default();
    while let Some(part) = reader.next(&image) {
        assert_eq!(
            part.kernels()["k"].as_deref(),
            Some(&layout[..]),
            "{part:?}"
        );
        let global = &part.globals()["g"];
        match part {
            Part::Cubin(_) => assert_eq!(global.init, [5, 6, 7, 8]),
            Part::Ptx(_) => assert_eq!(global.size, 64),
        }
    }
}

#[test]
fn every_shorter_image_is_read_as_far_as_it_goes() {
    for image in [container(), cubin(), PTX.as_bytes().to_vec()] {
        for length in 0..image.len() {
            read(&image[..length]);
        }
    }
}

/// Many sections that share one large one.
#[test]
fn an_image_that_repeats_itself_is_not_read_again_and_again() {
    let cubin = cubin();
    let mut image = cubin.clone();
    let headers = u64::from_le_bytes(cubin[0x28..0x30].try_into().expect("eight bytes")) as usize;
    let text = cubin[headers + 64..headers + 128].to_vec();
    let info = cubin[headers + 128..headers + 192].to_vec();
    let start = image.len() as u64;
    image.extend(&cubin[headers..]);
    for _ in 0..5000 {
        let mut whole = info.clone();
        whole[0x18..0x20].fill(0);
        whole[0x20..0x28].copy_from_slice(&start.to_le_bytes());
        image.extend(whole);
        image.extend(&text);
    }
    image[0x28..0x30].copy_from_slice(&start.to_le_bytes());
    image[0x3c..0x3e].copy_from_slice(&10_007u16.to_le_bytes());
    let begin = std::time::Instant::now();
    assert_eq!(read(&image), 1);
    assert!(begin.elapsed().as_secs() < 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes(kind in 0usize..4, mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let start: &[u8] = [
            &[0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0][..],
            b"\x7fELF\x02\x01\x01",
            b".version 8.0\n.entry k(",
            b"",
        ][kind];
        bytes.splice(0..0, start.iter().copied());
        read(&bytes);
    }

    #[test]
    fn random_words_of_ptx(words in prop::collection::vec(
        prop::sample::select(vec![
            ".entry", "k", "(", ")", "{", "}", ";", ",", ".param", ".align", "8", ".b8", "p[", "16]",
            "]", "99999999999999999999", "9223372036854775807", ".u64", ".global", "=", "/*", "*/", "//", "\n", "ü",
        ]), 0..80)) {
        read(format!(".version {}", words.join(" ")).as_bytes());
    }

    #[test]
    fn damaged_images(
        kind in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut image = [container(), cubin(), PTX.as_bytes().to_vec()][kind].clone();
        for (place, byte) in changes {
            let place = place.index(image.len());
            image[place] = byte;
        }
        read(&image);
        read(&image[..cut.index(image.len())]);
    }
}
