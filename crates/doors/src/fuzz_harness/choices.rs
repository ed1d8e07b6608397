//! Where an imagined engine takes its decisions from.

pub(super) struct Choices<'a>(std::slice::Iter<'a, u8>);

impl<'a> Choices<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    /// The next choice; without any left, the plainest of all.
    pub(super) fn next(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    /// How many things are to happen before the next frame.
    pub(super) fn burst(&mut self) -> u8 {
        [1, 0, 2, 5][usize::from(self.next() % 4)]
    }

    /// One of `count` things, if there are any.
    pub(super) fn index(&mut self, count: usize) -> Option<usize> {
        usize::from(self.next()).checked_rem(count)
    }
}
