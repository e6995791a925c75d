//! Code objects' tables of lines, in the three forms that CPython has had. A table
//! never changes once its code object is made.

/// The form of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `co_lnotab`: steps of the offset and of the line (3.9; lnotab_notes.txt).
    Steps,
    /// `co_linetable` as in PEP 626: lengths of ranges and steps of the line (3.10).
    Ranges,
    /// `co_linetable` with columns: variable-length entries (from 3.11;
    /// locations.md, before that code_objects.md).
    Locations,
}

/// The line of the instruction at `offset` bytes in a code object whose first line is
/// `first`. `None` where the table gives that place no line, or is none.
pub(super) fn line(form: Form, table: &[u8], first: u32, offset: u64) -> Option<u32> {
    let line = match form {
        Form::Steps => steps(table, first.into(), offset),
        Form::Ranges => ranges(table, first.into(), offset)?,
        Form::Locations => locations(table, first.into(), offset)?,
    };
    u32::try_from(line).ok().filter(|line| *line > 0)
}

fn steps(table: &[u8], mut line: i64, offset: u64) -> i64 {
    let mut at = 0;
    for &[bytes, lines] in table.as_chunks::<2>().0 {
        at += u64::from(bytes);
        if at > offset {
            break;
        }
        line += i64::from(lines as i8);
    }
    line
}

fn ranges(table: &[u8], mut line: i64, offset: u64) -> Option<i64> {
    const NONE: i8 = -128;
    let mut end = 0;
    for &[bytes, lines] in table.as_chunks::<2>().0 {
        end += u64::from(bytes);
        let lines = lines as i8;
        if lines != NONE {
            line += i64::from(lines);
        }
        if offset < end {
            return (lines != NONE).then_some(line);
        }
    }
    None
}

fn locations(table: &[u8], mut line: i64, offset: u64) -> Option<i64> {
    const NONE: u8 = 15;
    const LONG: u8 = 14;
    const NO_COLUMNS: u8 = 13;
    const ONE_LINE_0: u8 = 10;
    let mut end = 0;
    let mut rest = table;
    while let Some((&head, after)) = rest.split_first() {
        // Every entry begins with a byte whose highest bit is set, and no other has it.
        let kind = (head >> 3) & 15;
        end += (u64::from(head & 7) + 1) * 2;
        line += match kind {
            LONG | NO_COLUMNS => signed(after),
            ONE_LINE_0.. if kind < NO_COLUMNS => i64::from(kind - ONE_LINE_0),
            _ => 0,
        };
        if offset < end {
            return (kind != NONE).then_some(line);
        }
        let next = after.iter().position(|byte| byte & 0x80 != 0)?;
        rest = &after[next..];
    }
    None
}

/// A number of six bits a byte, the lowest first, whose lowest bit is its sign.
fn signed(bytes: &[u8]) -> i64 {
    let mut value: u64 = 0;
    for (place, &byte) in bytes.iter().enumerate().take(8) {
        value |= u64::from(byte & 63) << (6 * place);
        if byte & 64 == 0 {
            break;
        }
    }
    let size = (value >> 1) as i64;
    if value & 1 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up() {
        // Two instructions, a line back, a jump of 300 bytes and 200 lines.
        let table = [4, 1, 4, 0xff, 255, 0, 45, 127, 0, 73];
        let lines = |offset| line(Form::Steps, &table, 10, offset);
        assert_eq!(lines(0), Some(10));
        assert_eq!(lines(3), Some(10));
        assert_eq!(lines(4), Some(11));
        assert_eq!(lines(8), Some(10));
        assert_eq!(lines(307), Some(10));
        assert_eq!(lines(308), Some(210));
        assert_eq!(lines(9999), Some(210));
        assert_eq!(line(Form::Steps, &[], 3, 8), Some(3));
        assert_eq!(line(Form::Steps, &[0], 3, 8), Some(3));
    }

    #[test]
    fn ranges_may_have_no_line() {
        let table = [4, 1, 2, 0x80, 6, 0xfe, 0, 5, 2, 0];
        let lines = |offset| line(Form::Ranges, &table, 10, offset);
        assert_eq!(lines(0), Some(11));
        assert_eq!(lines(4), None);
        assert_eq!(lines(6), Some(9));
        assert_eq!(lines(10), Some(9));
        assert_eq!(lines(12), Some(14));
        assert_eq!(lines(14), None);
    }

    #[test]
    fn locations_have_five_kinds() {
        let entry = |kind: u8, units: u8| 0x80 | kind << 3 | (units - 1);
        let table = [
            // Short: the line stays.
            &[entry(0, 2), 0x12][..],
            // One line, two on.
            &[entry(12, 1), 3, 9],
            // Without columns, -70.
            &[entry(13, 1), 64 | ((141) & 63), 141 >> 6],
            // Without a line.
            &[entry(15, 8)],
            // Long: +3, then three numbers.
            &[entry(14, 1), 6, 0, 1, 2],
        ]
        .concat();
        let lines = |offset| line(Form::Locations, &table, 100, offset);
        assert_eq!(lines(0), Some(100));
        assert_eq!(lines(3), Some(100));
        assert_eq!(lines(4), Some(102));
        assert_eq!(lines(6), Some(32));
        assert_eq!(lines(8), None);
        assert_eq!(lines(24), Some(35));
        assert_eq!(lines(26), None);
    }

    #[test]
    fn any_bytes_end() {
        let mut state = 1_u64;
        for _ in 0..2000 {
            let table: Vec<u8> = (0..40)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            for form in [Form::Steps, Form::Ranges, Form::Locations] {
                line(form, &table, u32::MAX, state >> 58);
            }
        }
    }
}
