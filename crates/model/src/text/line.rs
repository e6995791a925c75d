//! One line of a program: its words and where they stand.

use super::ParseError;

/// The words of a line, with their columns.
pub(super) struct Line<'a> {
    pub(super) number: u32,
    pub(super) words: Vec<(u32, &'a str)>,
    pub(super) next: usize,
    pub(super) width: u32,
}

impl<'a> Line<'a> {
    pub(super) fn new(number: u32, code: &'a str) -> Self {
        let words = code
            .split_whitespace()
            .map(|word| {
                let bytes = word.as_ptr().addr() - code.as_ptr().addr();
                (1 + code[..bytes].chars().count() as u32, word)
            })
            .collect();
        let width = 1 + code.trim_end().chars().count() as u32;
        Self {
            number,
            words,
            next: 0,
            width,
        }
    }

    pub(super) fn error(&self, column: u32, message: impl Into<String>) -> ParseError {
        ParseError {
            line: self.number,
            column,
            message: message.into(),
        }
    }

    /// An error at the word read last.
    pub(super) fn wrong(&self, expected: &str) -> ParseError {
        let (column, word) = self.words[self.next - 1];
        self.error(column, format!("expected {expected}, found `{word}`"))
    }

    pub(super) fn word(&mut self, expected: &str) -> Result<&'a str, ParseError> {
        let Some(&(_, word)) = self.words.get(self.next) else {
            return Err(self.error(
                self.width,
                format!("expected {expected}, found the line's end"),
            ));
        };
        self.next += 1;
        Ok(word)
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|&(_, word)| word)
    }

    /// Takes the next word if it is this one.
    pub(super) fn eat(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(word);
        self.next += usize::from(is);
        is
    }

    /// Takes the comma off the next word, if it ends in one.
    pub(super) fn drop_comma(&mut self) -> bool {
        let Some((_, word)) = self.words.get_mut(self.next) else {
            return false;
        };
        let bare = word.strip_suffix(',');
        *word = bare.unwrap_or(word);
        bare.is_some()
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self, expected: &str) -> Result<T, ParseError> {
        self.word(expected)?
            .parse()
            .map_err(|_| self.wrong(expected))
    }

    pub(super) fn end(&mut self) -> Result<(), ParseError> {
        if self.peek().is_some() {
            self.next += 1;
            return Err(self.wrong("the line's end"));
        }
        Ok(())
    }
}
