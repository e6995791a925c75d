//! Small helpers for text that people read.

use std::borrow::Cow;

/// `text` made safe for a terminal: control characters (escape sequences in a
/// symbol's name, say) become U+FFFD, and what goes beyond `most` characters
/// becomes an ellipsis. Tabs stay.
#[must_use]
pub fn clean(text: &str, most: usize) -> Cow<'_, str> {
    let odd = |c: char| {
        (c.is_control() && c != '\t')
            // Marks that reorder the text around them.
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.len() <= most && !text.contains(odd) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for (place, c) in text.chars().enumerate() {
        if place == most {
            out.push('…');
            break;
        }
        out.push(if odd(c) { '\u{fffd}' } else { c });
    }
    Cow::Owned(out)
}

/// A number with its thousands set apart: `1,204`.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 copy`, `2 copies`.
#[must_use]
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        thousands(number),
        if number == 1 { one } else { many }
    )
}

/// The candidate nearest to `given`, if it's near enough to be meant.
#[must_use]
pub fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(given, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 5)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(clean("a\tb", 10), "a\tb");
        assert_eq!(clean("a\x1b[31mb\n", 20), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(clean("x\u{202e}y", 20), "x\u{fffd}y");
        assert_eq!(clean("abcdef", 3), "abc…");
        assert_eq!(clean("ééé", 3), "ééé");
    }

    #[test]
    fn thousands_are_set_apart() {
        let all = [0, 12, 999, 1204, 100_000, 1_000_000].map(thousands);
        assert_eq!(all, ["0", "12", "999", "1,204", "100,000", "1,000,000"]);
        assert_eq!(count(1, "copy", "copies"), "1 copy");
        assert_eq!(count(0, "copy", "copies"), "0 copies");
    }

    #[test]
    fn only_near_names_are_offered() {
        let names = ["fail-on", "exit-code", "halt"];
        assert_eq!(nearest("fail-one", names), Some("fail-on"));
        assert_eq!(nearest("exitcode", names), Some("exit-code"));
        assert_eq!(nearest("verbosity", names), None);
    }
}
