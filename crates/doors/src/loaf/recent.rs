//! What a session tells again: its newest messages. A conversation may be as long as it likes; all of it is in the
//! saved chat.

use std::collections::VecDeque;

use super::{MAX_TOLD_BYTES, MAX_TOLD_MESSAGES};

/// Something with a text.
pub(super) trait TextBytes {
    /// How many bytes the text has.
    fn weight(&self) -> usize;
}

/// The newest of all that were ever added. The last one is always there, however large it is.
#[derive(Debug)]
pub(super) struct Recent<T> {
    items: VecDeque<T>,
    bytes: usize,
    count: usize,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), bytes: 0, count: 0 }
    }
}

impl<T: TextBytes> Recent<T> {
    pub(super) fn push(&mut self, item: T) {
        self.count += 1;
        self.bytes += item.weight();
        self.items.push_back(item);
        while self.items.len() > MAX_TOLD_MESSAGES || (self.bytes > MAX_TOLD_BYTES && self.items.len() > 1) {
            let Some(oldest) = self.items.pop_front() else { return };
            self.bytes -= oldest.weight();
        }
    }

    /// How many were added, with those that are not here any more.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Those that are here, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    /// The same, to change what is not their text.
    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.items.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl TextBytes for String {
        fn weight(&self) -> usize {
            self.len()
        }
    }

    #[test]
    fn the_newest_are_there_up_to_a_number_and_a_size() {
        let mut recent = Recent::default();
        (0..MAX_TOLD_MESSAGES + 2).for_each(|number| recent.push(number.to_string()));
        assert_eq!(recent.count(), MAX_TOLD_MESSAGES + 2);
        assert_eq!(recent.iter().count(), MAX_TOLD_MESSAGES);
        assert_eq!(recent.iter().next().map(String::as_str), Some("2"));
        recent.push("x".repeat(MAX_TOLD_BYTES - 1));
        recent.push("y".to_owned());
        assert_eq!(recent.iter().count(), 2);
        recent.push("z".repeat(2 * MAX_TOLD_BYTES));
        assert_eq!((recent.iter().count(), recent.bytes), (1, 2 * MAX_TOLD_BYTES));
    }
}
