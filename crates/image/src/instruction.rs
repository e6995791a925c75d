//! The instructions in a kernel's PTX, as far as its text tells.

/// An instruction: its name without modifiers, the whole, and its operands.
pub(crate) struct Instruction<'a> {
    pub(crate) name: &'a str,
    pub(crate) full: &'a str,
    pub(crate) operands: Vec<&'a str>,
    /// The predicate under which alone it is executed.
    pub(crate) guard: Option<&'a str>,
    /// The labels before it.
    pub(crate) labels: Vec<&'a str>,
}

/// The instructions of a kernel's body, in the order of the text.
pub(crate) fn instructions(body: &str) -> impl Iterator<Item = Instruction<'_>> {
    let mut labels = Vec::new();
    body.split(';').filter_map(move |statement| {
        let mut text = statement;
        let mut guard = None;
        loop {
            text = text.trim_start_matches(|letter: char| {
                letter.is_whitespace() || matches!(letter, '{' | '}')
            });
            if text.starts_with(".loc") || text.starts_with(".file") {
                text = text.split_once('\n')?.1;
            } else if let Some(rest) = text.strip_prefix('@') {
                let (predicate, rest) = rest.split_once(char::is_whitespace)?;
                guard = Some(predicate);
                text = rest;
            } else if let Some((label, rest)) = text.split_once(':')
                && label
                    .chars()
                    .all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '$' | '%'))
            {
                labels.push(label);
                text = rest;
            } else {
                break;
            }
        }
        let (full, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let name = full.split('.').next().unwrap_or_default();
        // Directives begin with a dot.
        (!name.is_empty()).then(|| Instruction {
            name,
            full,
            operands: split_operands(operands),
            guard,
            labels: std::mem::take(&mut labels),
        })
    })
}

/// The operands between commas outside of braces, brackets and parentheses.
fn split_operands(text: &str) -> Vec<&str> {
    let (mut operands, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                operands.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        operands.push(last);
    }
    operands
}

/// The registers and symbols in an operand.
pub(crate) fn names(operand: &str) -> impl Iterator<Item = &str> {
    operand
        .split(|letter: char| {
            letter.is_whitespace()
                || matches!(
                    letter,
                    ',' | '{' | '}' | '[' | ']' | '(' | ')' | '+' | '!' | '|'
                )
        })
        .filter(|name| {
            name.starts_with(|first: char| {
                first.is_alphabetic() || matches!(first, '%' | '_' | '$')
            })
        })
}

/// Symbol and offset of `[symbol+8]`; no offset where it is not a number.
pub(crate) fn place(operand: &str) -> (&str, Option<usize>) {
    let inner = operand.trim_start_matches('[').trim_end_matches(']').trim();
    match inner.split_once('+') {
        Some((name, offset)) => (name.trim(), offset.trim().parse().ok()),
        None => (inner, Some(0)),
    }
}

/// Bytes of one element, from the type at the end of `ld.param.v2.u64`.
pub(crate) fn size_of(full: &str) -> Option<usize> {
    let bits = full.rsplit('.').next()?.get(1..)?.parse::<usize>().ok()?;
    (bits % 8 == 0).then_some(bits / 8)
}

/// Whether an operand is a negative number.
pub(crate) fn is_negative(operand: &str) -> bool {
    operand
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// Whether a load or store is *strong*: made to meet others at the same time (PTX ISA,
/// "Memory Consistency Model").
pub(crate) fn is_strong(instruction: &Instruction<'_>) -> bool {
    let strong = ["volatile", "relaxed", "acquire", "release", "mmio"];
    let mut modifiers = instruction.full.split('.');
    modifiers.any(|modifier| strong.contains(&modifier))
}

/// Register or symbol and offset of `[register+-4]`; no offset where it is not a number.
pub(crate) fn displacement(operand: &str) -> (&str, Option<i64>) {
    let inner = operand.trim_start_matches('[').trim_end_matches(']').trim();
    match inner.split_once('+') {
        Some((name, offset)) => (name.trim(), number(offset.trim())),
        None => (inner, Some(0)),
    }
}

/// What an operand is that is a whole number.
pub(crate) fn number(operand: &str) -> Option<i64> {
    let (negative, digits) = match operand.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, operand),
    };
    let digits = digits.trim_end_matches('U');
    let number = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    // Hexadecimal floats begin with 0f or 0d.
    number
        .ok()
        .map(|number| if negative { -number } else { number })
}
