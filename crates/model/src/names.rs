//! The string interner.

use std::collections::HashMap;
use std::sync::Arc;

use crate::NameId;

/// Strings by number, so that an operation carries four bytes for a name.
#[derive(Clone, Debug)]
pub struct Names {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, NameId>,
    bytes: usize,
}

/// Bytes of text kept. A program may name its streams anew at every step.
const MOST_BYTES: usize = 16 << 20;

/// What stands for the names that are too many.
const TOO_MANY: &str = "(one of too many names)";

impl Default for Names {
    fn default() -> Self {
        let empty: Arc<str> = Arc::from("");
        Self {
            texts: vec![empty.clone()],
            numbers: HashMap::from([(empty, NameId(0))]),
            bytes: 0,
        }
    }
}

impl Names {
    /// The number of `text`, given on first sight. Past 16 MiB of text new ones all get
    /// the number of one text that says so.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.numbers.get(text) {
            return id;
        }
        if self.bytes > MOST_BYTES && text != TOO_MANY {
            return self.intern(TOO_MANY);
        }
        self.bytes += text.len() + size_of::<Arc<str>>() * 2;
        let id = NameId(u32::try_from(self.texts.len()).expect("fewer than 2^32 names"));
        let text: Arc<str> = Arc::from(text);
        self.texts.push(text.clone());
        self.numbers.insert(text, id);
        id
    }

    /// The text behind `id`; empty for a number never given out.
    #[must_use]
    pub fn text(&self, id: NameId) -> &str {
        self.texts.get(id.0 as usize).map_or("", |text| text)
    }

    /// All texts in the order of their numbers, from 0.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NameId, &str)> {
        self.texts
            .iter()
            .enumerate()
            .map(|(i, text)| (NameId(i as u32), &**text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_end_take_no_room_without_end() {
        let mut names = Names::default();
        let long = "x".repeat(1 << 16);
        for n in 0..1000 {
            names.intern(&format!("{long}{n}"));
        }
        let known = names.iter().len();
        let other = names.intern("another");
        assert_eq!(names.text(other), TOO_MANY);
        assert_eq!(names.iter().len(), known);
        assert_eq!(
            names.text(names.numbers[&*format!("{long}3")]),
            format!("{long}3")
        );
    }

    #[test]
    fn a_text_keeps_its_number() {
        let mut names = Names::default();
        let a = names.intern("cudaMallocAsync");
        let b = names.intern("saxpy");
        assert_ne!(a, b);
        assert_eq!(names.intern("cudaMallocAsync"), a);
        assert_eq!(names.text(b), "saxpy");
        assert_eq!(names.intern(""), NameId(0));
        assert_eq!(names.text(NameId(99)), "");
    }
}
