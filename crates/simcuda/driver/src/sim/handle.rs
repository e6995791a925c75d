//! Opaque handles. As on a real GPU, the value of a destroyed object is the next one handed out.

/// Far from where Linux places anything, so that a handle is never mistaken for memory.
const REGION: u64 = 0x5eed_0000_0000;
/// Room between the kinds.
const KIND: u64 = 1 << 32;
/// As much as a real driver's objects take, so that handles look like theirs.
const STRIDE: u64 = 0x80;

/// The live objects of one kind, by handle.
pub(crate) struct Table<T> {
    base: u64,
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Table<T> {
    /// `kind` keeps the handles of different tables apart, so that a wrong kind of handle is never found.
    pub(crate) fn new(kind: u64) -> Self {
        Self {
            base: REGION + kind * KIND,
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[index] = Some(value);
        self.base + index as u64 * STRIDE
    }

    fn index(&self, handle: u64) -> Option<usize> {
        let offset = handle.checked_sub(self.base)?;
        (offset.is_multiple_of(STRIDE)).then_some((offset / STRIDE) as usize)
    }

    pub(crate) fn get(&self, handle: u64) -> Option<&T> {
        self.slots.get(self.index(handle)?)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        let index = self.index(handle)?;
        self.slots.get_mut(index)?.as_mut()
    }

    pub(crate) fn remove(&mut self, handle: u64) -> Option<T> {
        let index = self.index(handle)?;
        let value = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, slot)| Some((self.base + i as u64 * STRIDE, slot.as_ref()?)))
    }

    /// Does something to every object.
    pub(crate) fn change(&mut self, act: impl FnMut(&mut T)) {
        self.slots.iter_mut().flatten().for_each(act);
    }

    /// Removes every object that `doomed` picks.
    pub(crate) fn remove_where(&mut self, doomed: impl Fn(&T) -> bool) -> Vec<T> {
        let handles: Vec<u64> = self
            .iter()
            .filter(|(_, value)| doomed(value))
            .map(|(handle, _)| handle)
            .collect();
        handles
            .into_iter()
            .filter_map(|handle| self.remove(handle))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_destroyed_is_first_reused() {
        let mut table = Table::new(1);
        let (a, b, c) = (table.insert('a'), table.insert('b'), table.insert('c'));
        assert_eq!(table.remove(a), Some('a'));
        assert_eq!(table.remove(b), Some('b'));
        assert_eq!(table.remove(b), None, "destroyed twice");
        assert_eq!(table.get(a), None);
        assert_eq!(table.insert('d'), b);
        assert_eq!(table.insert('e'), a);
        assert_eq!((table.get(b), table.get(c)), (Some(&'d'), Some(&'c')));
        assert_eq!(table.get(c + 1), None);
    }

    #[test]
    fn a_handle_of_another_kind_is_unknown() {
        let mut streams = Table::new(1);
        let mut events = Table::new(2);
        let stream = streams.insert(());
        events.insert(());
        assert!(events.get(stream).is_none());
    }
}
