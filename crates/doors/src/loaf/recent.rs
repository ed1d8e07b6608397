//! The newest messages of a session, for `session.get`. The saved chat has all messages.

use std::collections::VecDeque;

use super::{MAX_SHOWN_BYTES, MAX_SHOWN_MESSAGES};

/// An item with a text.
pub(super) trait TextBytes {
    /// The bytes of the text.
    fn text_bytes(&self) -> usize;
}

/// The newest of all items that were added. The last one is always there, even if it is above the limit.
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
        self.bytes += item.text_bytes();
        self.items.push_back(item);
        while self.items.len() > MAX_SHOWN_MESSAGES || (self.bytes > MAX_SHOWN_BYTES && self.items.len() > 1)
        {
            let Some(oldest) = self.items.pop_front() else { return };
            self.bytes -= oldest.text_bytes();
        }
    }

    /// How many items were added, including those that were dropped.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The stored items, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    /// The stored items, to change anything except their texts.
    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.items.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl TextBytes for String {
        fn text_bytes(&self) -> usize {
            self.len()
        }
    }

    #[test]
    fn the_oldest_items_are_dropped_above_the_limits() {
        let mut recent = Recent::default();
        (0..MAX_SHOWN_MESSAGES + 2).for_each(|number| recent.push(number.to_string()));
        assert_eq!(recent.count(), MAX_SHOWN_MESSAGES + 2);
        assert_eq!(recent.iter().count(), MAX_SHOWN_MESSAGES);
        assert_eq!(recent.iter().next().map(String::as_str), Some("2"));
        recent.push("x".repeat(MAX_SHOWN_BYTES - 1));
        recent.push("y".to_owned());
        assert_eq!(recent.iter().count(), 2);
        recent.push("z".repeat(2 * MAX_SHOWN_BYTES));
        assert_eq!((recent.iter().count(), recent.bytes), (1, 2 * MAX_SHOWN_BYTES));
    }
}
