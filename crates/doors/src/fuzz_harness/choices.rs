//! The choices of a fake backend, read from a string of bytes.

/// Takes one byte for each decision.
pub(super) struct Choices<'a>(std::slice::Iter<'a, u8>);

impl<'a> Choices<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    /// The next choice; 0 if none is left.
    pub(super) fn next(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    /// How many actions the backend takes before the next frame.
    pub(super) fn burst(&mut self) -> u8 {
        [1, 0, 2, 5][usize::from(self.next() % 4)]
    }

    /// An index below `count`; `None` if `count` is 0.
    pub(super) fn index(&mut self, count: usize) -> Option<usize> {
        usize::from(self.next()).checked_rem(count)
    }
}
