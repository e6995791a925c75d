//! Where CPython keeps what a look at frames needs, version by version.
//!
//! From 3.13 on the interpreter describes itself (`_Py_DebugOffsets`, which its
//! runtime state begins with). Before, the offsets are those of its headers for a
//! 64-bit Linux, which did not change within a minor version.

use super::lines::Form;
use super::memory::Memory;

/// Offsets in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) objects: Objects,
    pub(super) code: Code,
    pub(super) frames: Frames,
}

/// Objects of every kind, and of those kinds that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Objects {
    /// The type, in every object.
    pub(super) kind: u64,
    /// The number of bytes in a `bytes`, and the first of them.
    pub(super) bytes_length: u64,
    pub(super) bytes: u64,
    /// The number of characters in a `str`, and the word that says how they lie.
    pub(super) length: u64,
    pub(super) state: u64,
    /// By how many bits the state's fields come later than in 3.9.
    pub(super) state_shift: u32,
    /// The first character, of ASCII texts and of others.
    pub(super) ascii: u64,
    pub(super) text: u64,
}

/// A code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) file: u64,
    /// The qualified name, or before 3.11 the plain one.
    pub(super) name: u64,
    pub(super) first_line: u64,
    pub(super) lines: u64,
    pub(super) form: Form,
}

/// Frames and how a thread's innermost one is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frames {
    /// In the thread's state: the innermost frame, or what leads there.
    pub(super) newest: u64,
    /// In what leads there: the innermost frame.
    pub(super) through: Option<u64>,
    pub(super) previous: u64,
    pub(super) code: u64,
    pub(super) place: Place,
    /// A byte of the frame; from `no_code` on the frame runs no Python code.
    pub(super) owner: Option<u64>,
    pub(super) no_code: u8,
}

/// How a frame tells its newest instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// As a number of units of this many bytes.
    Index { at: u64, unit: u64 },
    /// As an address in the code object, where the instructions begin at `start`.
    Address { at: u64, start: u64 },
    /// As an address in one of several copies of the instructions: which one the frame
    /// says at `copy`, where they are the code object at `copies`.
    CopyAddress { at: u64, copy: u64, copies: u64 },
}

/// Objects before 3.12, whose texts had one field more.
const OBJECTS: Objects = Objects {
    kind: 8,
    bytes_length: 16,
    bytes: 32,
    length: 16,
    state: 32,
    state_shift: 0,
    ascii: 48,
    text: 72,
};

/// Objects of 3.12.
const SLIM_OBJECTS: Objects = Objects {
    ascii: 40,
    text: 56,
    ..OBJECTS
};

/// What `_Py_DebugOffsets` begins with.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// Where in `_Py_DebugOffsets` the offsets are.
struct Description {
    newest: u64,
    previous: u64,
    code: u64,
    place: u64,
    owner: u64,
    file: u64,
    name: u64,
    lines: u64,
    first_line: u64,
    start: u64,
    kind: u64,
    size: u64,
    state: u64,
    length: u64,
    ascii: u64,
    /// Of the copies, in a build without the global lock.
    copies: Option<(u64, u64)>,
}

const DESCRIPTION_3_13: Description = Description {
    newest: 184,
    previous: 232,
    code: 240,
    place: 248,
    owner: 264,
    file: 280,
    name: 296,
    lines: 304,
    first_line: 312,
    start: 344,
    kind: 360,
    size: 416,
    state: 544,
    length: 552,
    ascii: 560,
    copies: None,
};

const DESCRIPTION_3_14: Description = Description {
    newest: 208,
    previous: 256,
    code: 264,
    place: 272,
    owner: 288,
    file: 320,
    name: 336,
    lines: 344,
    first_line: 352,
    start: 384,
    kind: 408,
    size: 464,
    state: 624,
    length: 632,
    ascii: 640,
    copies: Some((304, 392)),
};

impl Layout {
    /// The layout of CPython 3.`minor`, 9 to 14; `runtime` is where its `_PyRuntime`
    /// is, `version` the whole version as `PY_VERSION_HEX`. `None` if it is not known.
    pub(super) fn of(
        minor: u32,
        version: u32,
        runtime: u64,
        memory: &mut impl Memory,
    ) -> Option<Self> {
        match minor {
            9 | 10 => Some(Self::with_frame_objects(minor)),
            11 => Some(Self {
                objects: OBJECTS,
                code: Code {
                    first_line: 72,
                    ..CODE
                },
                frames: Frames {
                    newest: 56,
                    through: Some(8),
                    previous: 48,
                    code: 32,
                    place: Place::Address { at: 56, start: 184 },
                    owner: Some(69),
                    no_code: 3,
                },
            }),
            12 => Some(Self {
                objects: SLIM_OBJECTS,
                code: CODE,
                frames: Frames {
                    newest: 56,
                    through: Some(0),
                    previous: 8,
                    code: 0,
                    place: Place::Address { at: 56, start: 192 },
                    owner: Some(70),
                    no_code: 3,
                },
            }),
            13 => Self::described(&DESCRIPTION_3_13, version, runtime, memory),
            14 => Self::described(&DESCRIPTION_3_14, version, runtime, memory),
            _ => None,
        }
    }

    /// 3.9 and 3.10, whose frames were objects.
    fn with_frame_objects(minor: u32) -> Self {
        Self {
            objects: OBJECTS,
            code: Code {
                file: 104,
                name: 112,
                first_line: 40,
                lines: 120,
                form: if minor == 9 {
                    Form::Steps
                } else {
                    Form::Ranges
                },
            },
            frames: Frames {
                newest: 24,
                through: None,
                previous: 24,
                code: 32,
                place: if minor == 9 {
                    Place::Index { at: 104, unit: 1 }
                } else {
                    Place::Index { at: 96, unit: 2 }
                },
                owner: None,
                no_code: 0,
            },
        }
    }

    /// As the interpreter describes itself.
    fn described(
        table: &Description,
        version: u32,
        runtime: u64,
        memory: &mut impl Memory,
    ) -> Option<Self> {
        if memory.word(runtime)? != COOKIE || memory.word(runtime + 8)? != u64::from(version) {
            return None;
        }
        let without_lock = match memory.word(runtime + 16)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let mut offset = |place: u64, unit: u64| {
            let offset = memory.word(runtime + place)?;
            (offset < 4096 && offset.is_multiple_of(unit)).then_some(offset)
        };
        let at = offset(table.place, 8)?;
        let place = match table.copies.filter(|_| without_lock) {
            Some((copy, copies)) => Place::CopyAddress {
                at,
                copy: offset(copy, 4)?,
                copies: offset(copies, 8)?,
            },
            None => Place::Address {
                at,
                start: offset(table.start, 8)?,
            },
        };
        let size = offset(table.size, 8)?;
        let ascii = offset(table.ascii, 8)?;
        Some(Self {
            objects: Objects {
                kind: offset(table.kind, 8)?,
                bytes_length: size,
                // After the length a hash comes first.
                bytes: size + 16,
                length: offset(table.length, 8)?,
                state: offset(table.state, 4)?,
                // Without the lock a whole byte tells whether a text is interned.
                state_shift: if place_has_copies(&place) { 6 } else { 0 },
                ascii,
                // The UTF-8 form and its length come between.
                text: ascii + 16,
            },
            code: Code {
                file: offset(table.file, 8)?,
                name: offset(table.name, 8)?,
                first_line: offset(table.first_line, 4)?,
                lines: offset(table.lines, 8)?,
                form: Form::Locations,
            },
            frames: Frames {
                newest: offset(table.newest, 8)?,
                through: None,
                previous: offset(table.previous, 8)?,
                code: offset(table.code, 8)?,
                place,
                owner: Some(offset(table.owner, 1)?),
                no_code: 3,
            },
        })
    }
}

/// A code object from 3.12 on.
const CODE: Code = Code {
    file: 112,
    name: 128,
    first_line: 68,
    lines: 136,
    form: Form::Locations,
};

fn place_has_copies(place: &Place) -> bool {
    matches!(place, Place::CopyAddress { .. })
}

#[cfg(test)]
mod tests {
    use super::super::memory::Guarded;
    use super::*;

    /// A `_Py_DebugOffsets` of 3.14 with these values.
    fn described(without_lock: u64, change: impl FnOnce(&mut [u64; 90])) -> Option<Layout> {
        let mut words = Box::new([0_u64; 90]);
        words[0] = COOKIE;
        words[1] = 0x030e_0af0;
        words[2] = without_lock;
        for (place, value) in [
            (208, 72),
            (256, 8),
            (272, 56),
            (288, 74),
            (304, 72),
            (320, 112),
            (336, 128),
            (344, 136),
            (352, 68),
            (384, 208),
            (392, 224),
            (408, 8),
            (464, 16),
            (624, 32),
            (632, 16),
            (640, 40),
        ] {
            words[place / 8] = value;
        }
        change(&mut words);
        Layout::of(14, 0x030e_0af0, words.as_ptr() as u64, &mut Guarded::new())
    }

    #[test]
    fn an_interpreter_describes_itself() {
        let layout = described(0, |_| {}).unwrap();
        assert_eq!(layout.code, CODE);
        assert_eq!(layout.objects, SLIM_OBJECTS);
        assert_eq!(layout.frames.place, Place::Address { at: 56, start: 208 });
        let layout = described(1, |_| {}).unwrap();
        assert_eq!(
            layout.frames.place,
            Place::CopyAddress {
                at: 56,
                copy: 72,
                copies: 224
            }
        );
    }

    #[test]
    fn a_description_that_cannot_be_is_not_believed() {
        assert_eq!(described(0, |words| words[0] += 1), None);
        assert_eq!(described(0, |words| words[1] += 1), None);
        assert_eq!(described(2, |_| {}), None);
        assert_eq!(described(0, |words| words[408 / 8] = 1 << 20), None);
        assert_eq!(described(0, |words| words[408 / 8] = 9), None);
        let mut memory = Guarded::new();
        for minor in [8, 15, 99] {
            assert_eq!(Layout::of(minor, 0, 0, &mut memory), None);
        }
    }
}
