//! The string interner.

use std::collections::HashMap;
use std::sync::Arc;

use crate::NameId;

/// Strings by number, so that an operation carries four bytes for a name.
#[derive(Clone, Debug)]
pub struct Names {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, NameId>,
}

impl Default for Names {
    fn default() -> Self {
        let empty: Arc<str> = Arc::from("");
        Self {
            texts: vec![empty.clone()],
            numbers: HashMap::from([(empty, NameId(0))]),
        }
    }
}

impl Names {
    /// The number of `text`, given on first sight.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.numbers.get(text) {
            return id;
        }
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
