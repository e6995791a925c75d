//! From a thread's state to its Python frames, and from those to files, functions and
//! lines.
//!
//! While a thread is inside of a native call its frames stand still. What is followed
//! is checked on the way: a code object must be of the type that the interpreter
//! exports under that name, a text of that of texts.

use std::path::Path;

use streamcheck_report::Frame;

use super::layout::{Layout, Place};
use super::lines;
use super::memory::Memory;

/// Python frames kept of a stack.
pub(crate) const MOST_FRAMES: usize = 64;
/// Frames looked at for those, some of which run no Python code.
const MOST_STEPS: usize = 4 * MOST_FRAMES;
/// Characters of a name or path at most.
const LONGEST_TEXT: u64 = 4096;
/// Bytes of a table of lines that is looked at: a function of a hundred thousand lines
/// has one as long.
const LONGEST_TABLE: u64 = 1 << 20;
/// Objects lie at multiples of eight: the bits below mark references.
const MARKS: u64 = 7;

/// The addresses that objects are told by.
#[derive(Clone, Debug)]
pub(super) struct Types {
    pub(super) code: u64,
    pub(super) text: u64,
    pub(super) bytes: u64,
}

/// A place in Python code, as the interpreter has it. Beside the code object's
/// address it holds what another object there is told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spot {
    code: u64,
    /// The instruction's offset in bytes.
    offset: u64,
    name: u64,
    file: u64,
    lines: u64,
    first_line: u32,
}

impl Spot {
    /// All that it is told by.
    #[inline]
    pub(super) fn words(&self) -> [u64; 6] {
        [
            self.code,
            self.offset,
            self.name,
            self.file,
            self.lines,
            self.first_line.into(),
        ]
    }

    /// One with these for the tests.
    #[cfg(test)]
    pub(super) fn of(words: [u64; 6]) -> Self {
        Self {
            code: words[0],
            offset: words[1],
            name: words[2],
            file: words[3],
            lines: words[4],
            first_line: words[5] as u32,
        }
    }
}

impl Layout {
    /// Gives the spots of a thread's frames to `each`, the innermost first, at most `most`.
    /// `None` if what was met cannot be such frames.
    pub(super) fn spots(
        &self,
        types: &Types,
        memory: &mut impl Memory,
        thread: u64,
        most: usize,
        mut each: impl FnMut(Spot),
    ) -> Option<()> {
        let mut seen = 0;
        let mut frame = memory.word(thread.checked_add(self.frames.newest)?)?;
        if let Some(newest) = self.frames.through {
            frame = memory.word(frame.checked_add(newest)?)?;
        }
        let mut steps = 0;
        while frame != 0 && seen < most {
            steps += 1;
            if steps > MOST_STEPS || frame > u64::MAX / 2 {
                return None;
            }
            let has_code = match self.frames.owner {
                Some(owner) => memory.byte(frame + owner)? < self.frames.no_code,
                None => true,
            };
            if has_code {
                each(self.spot(types, memory, frame)?);
                seen += 1;
            }
            frame = memory.word(frame + self.frames.previous)?;
        }
        Some(())
    }

    fn spot(&self, types: &Types, memory: &mut impl Memory, frame: u64) -> Option<Spot> {
        let code = memory.word(frame + self.frames.code)? & !MARKS;
        if code > u64::MAX / 2 || memory.word(code + self.objects.kind)? != types.code {
            return None;
        }
        let offset = match self.frames.place {
            Place::Index { at, unit } => {
                // Before the first instruction it is -1.
                let index = memory.half(frame + at)? as i32;
                index.max(0) as u64 * unit
            }
            Place::Address { at, start } => {
                let place = memory.word(frame + at)?;
                place.saturating_sub(code + start)
            }
            Place::CopyAddress { at, copy, copies } => {
                let place = memory.word(frame + at)?;
                let copy = u64::from(memory.half(frame + copy)?);
                let copies = memory.word(code + copies)?;
                // The first word is how many there are.
                if copy >= memory.word(copies)? {
                    return None;
                }
                place.saturating_sub(memory.word(copies.checked_add(8 + 8 * copy)?)?)
            }
        };
        Some(Spot {
            code,
            offset,
            name: memory.word(code + self.code.name)?,
            file: memory.word(code + self.code.file)?,
            lines: memory.word(code + self.code.lines)?,
            first_line: memory.half(code + self.code.first_line)?,
        })
    }

    /// What a spot means.
    pub(super) fn frame(
        &self,
        types: &Types,
        memory: &mut impl Memory,
        spot: &Spot,
    ) -> Option<Frame> {
        let function = self.text(types, memory, spot.name)?;
        let file = absolute(self.text(types, memory, spot.file)?);
        let table = self.bytes(types, memory, spot.lines)?;
        let line = lines::line(self.code.form, &table, spot.first_line, spot.offset)
            .or((spot.first_line > 0).then_some(spot.first_line));
        Some(Frame::python(function, file, line))
    }

    /// The bytes of a `bytes`; of one that is too long to be copied, none.
    fn bytes(&self, types: &Types, memory: &mut impl Memory, object: u64) -> Option<Vec<u8>> {
        if memory.word(object.checked_add(self.objects.kind)?)? != types.bytes {
            return None;
        }
        let length = memory.word(object + self.objects.bytes_length)?;
        if length > LONGEST_TABLE {
            return Some(Vec::new());
        }
        memory.bytes(object + self.objects.bytes, length.try_into().ok()?)
    }

    /// The characters of a `str`.
    fn text(&self, types: &Types, memory: &mut impl Memory, object: u64) -> Option<String> {
        const COMPACT: u32 = 1 << 5;
        const ASCII: u32 = 1 << 6;
        if memory.word(object.checked_add(self.objects.kind)?)? != types.text {
            return None;
        }
        let length = memory.word(object + self.objects.length)?;
        let length = length.min(LONGEST_TEXT) as usize;
        let state = memory.half(object + self.objects.state)? >> self.objects.state_shift;
        if state & COMPACT == 0 {
            return None;
        }
        if state & ASCII != 0 {
            let bytes = memory.bytes(object + self.objects.ascii, length)?;
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        let size = match (state >> 2) & 7 {
            size @ (1 | 2 | 4) => size as usize,
            _ => return None,
        };
        let bytes = memory.bytes(object + self.objects.text, length * size)?;
        let characters = bytes.chunks_exact(size).map(|bytes| {
            let mut number = [0; 4];
            number[..size].copy_from_slice(bytes);
            char::from_u32(u32::from_le_bytes(number)).unwrap_or(char::REPLACEMENT_CHARACTER)
        });
        Some(characters.collect())
    }
}

/// A file's path from the root. What stands for a file, as `<string>`, stays.
fn absolute(file: String) -> String {
    if file.starts_with(['/', '<']) || file.is_empty() {
        return file;
    }
    match std::env::current_dir() {
        Ok(directory) => {
            let below = Path::new(&file);
            let below = below.strip_prefix(".").unwrap_or(below);
            directory.join(below).display().to_string()
        }
        Err(_) => file,
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Guarded;
    use super::*;

    const TYPES: Types = Types {
        code: 0x1000,
        text: 0x2000,
        bytes: 0x3000,
    };

    fn layout() -> Layout {
        Layout::of(12, 0, 0, &mut Guarded::new()).unwrap()
    }

    /// A `str` of 3.12 of ASCII characters, or of wider ones.
    fn text(characters: &str, size: usize) -> Vec<u64> {
        let mut words = vec![1, TYPES.text, characters.chars().count() as u64, 0];
        let ascii = size == 1 && characters.is_ascii();
        words.push(1 << 5 | (size as u64) << 2 | u64::from(ascii) << 6);
        if !ascii {
            words.extend([0, 0]);
        }
        let mut bytes: Vec<u8> = characters
            .chars()
            .flat_map(|c| (c as u32).to_le_bytes()[..size].to_vec())
            .collect();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        words.extend(
            bytes
                .chunks(8)
                .map(|word| u64::from_le_bytes(word.try_into().unwrap())),
        );
        words
    }

    /// A code object at line 40 with these texts.
    fn code(name: &[u64], file: &[u64], lines: &[u64]) -> Vec<u64> {
        let mut words = vec![0; 32];
        words[1] = TYPES.code;
        words[68 / 8] = 40 << 32;
        words[112 / 8] = file.as_ptr() as u64;
        words[128 / 8] = name.as_ptr() as u64;
        words[136 / 8] = lines.as_ptr() as u64;
        words
    }

    /// A frame in that code, two bytes into it.
    fn frame(code: &[u64], previous: u64, owner: u8) -> Vec<u64> {
        let at = code.as_ptr() as u64;
        let owner = u64::from(owner) << 48;
        vec![at, previous, 0, 0, 0, 0, 0, at + 192 + 2, owner, 0]
    }

    /// A thread's state with that frame.
    fn thread(frame: &[u64]) -> (Vec<u64>, Box<u64>) {
        let through = Box::new(frame.as_ptr() as u64);
        let mut words = vec![0; 8];
        words[7] = &raw const *through as u64;
        (words, through)
    }

    fn spots(state: &[u64], most: usize) -> Option<Vec<Spot>> {
        let (mut memory, mut spots) = (Guarded::new(), Vec::new());
        let thread = state.as_ptr() as u64;
        layout().spots(&TYPES, &mut memory, thread, most, |spot| spots.push(spot))?;
        Some(spots)
    }

    #[test]
    fn frames_are_followed_outwards() {
        let names = [text("Trainer.step", 1), text("größe", 1), text("шаг", 2)];
        let file = text("/home/me/train.py", 1);
        // Two bytes at line 41, two at line 43.
        let lines = vec![
            1,
            TYPES.bytes,
            6,
            0,
            u64::from_le_bytes([0xd8, 0, 0, 0xe0, 0, 0, 0, 0]),
        ];
        let codes = names.each_ref().map(|name| code(name, &file, &lines));
        let outer = frame(&codes[2], 0, 0);
        let word = [0];
        let between = frame(&word, outer.as_ptr() as u64, 3);
        let middle = frame(&codes[1], between.as_ptr() as u64, 1);
        let inner = frame(&codes[0], middle.as_ptr() as u64, 0);
        let (state, _through) = thread(&inner);
        let seen = spots(&state, MOST_FRAMES).unwrap();
        let frames: Vec<_> = seen
            .iter()
            .map(|spot| layout().frame(&TYPES, &mut Guarded::new(), spot).unwrap())
            .collect();
        let functions: Vec<_> = frames.iter().map(|f| f.function.clone().unwrap()).collect();
        assert_eq!(functions, ["Trainer.step", "größe", "шаг"]);
        assert_eq!(frames[0].file.as_deref(), Some("/home/me/train.py"));
        assert_eq!(frames[0].line, Some(43));
        assert_eq!(spots(&state, 1).unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_frame_ends_the_look() {
        let name = text("f", 1);
        let mut no_code = code(&name, &name, &name);
        no_code[1] = TYPES.text;
        let innermost = frame(&no_code, 0, 0);
        let (state, _through) = thread(&innermost);
        assert_eq!(spots(&state, MOST_FRAMES), None);
        // Its type is all that it lacks.
        no_code[1] = TYPES.code;
        assert_eq!(spots(&state, MOST_FRAMES).map(|spots| spots.len()), Some(1));

        // A chain that comes back to itself, of frames without code.
        let word = [0];
        let mut circle = frame(&word, 0, 3);
        circle[1] = circle.as_ptr() as u64;
        let (state, _through) = thread(&circle);
        assert_eq!(spots(&state, MOST_FRAMES), None);

        for wild in [8, 0x1234_5678, u64::MAX, (u64::MAX / 2) & !7] {
            let frame = [wild, wild, 0, 0, 0, 0, 0, wild, 0, 0];
            let (state, _through) = thread(&frame);
            assert_eq!(spots(&state, MOST_FRAMES), None);
            let state = [0, 0, 0, 0, 0, 0, 0, wild];
            assert_eq!(spots(&state, MOST_FRAMES), None);
        }
        // Nothing runs.
        let nothing = Box::new(0_u64);
        let state = [0, 0, 0, 0, 0, 0, 0, &raw const *nothing as u64];
        assert_eq!(spots(&state, MOST_FRAMES).map(|spots| spots.len()), Some(0));
    }

    #[test]
    fn a_table_that_is_too_long_costs_the_line_alone() {
        let name = text("generated", 1);
        let lines = vec![1, TYPES.bytes, LONGEST_TABLE + 1, 0, 0];
        let code = code(&name, &name, &lines);
        let innermost = frame(&code, 0, 0);
        let (state, _through) = thread(&innermost);
        let spot = spots(&state, 1).unwrap()[0];
        let frame = layout().frame(&TYPES, &mut Guarded::new(), &spot).unwrap();
        assert_eq!(frame.function.as_deref(), Some("generated"));
        assert_eq!(frame.line, Some(40));
    }

    #[test]
    fn paths_begin_at_the_root() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute("/a/b.py".to_owned()), "/a/b.py");
        assert_eq!(absolute("<string>".to_owned()), "<string>");
        assert_eq!(
            absolute("./b.py".to_owned()),
            here.join("b.py").display().to_string()
        );
    }
}
