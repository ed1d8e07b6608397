//! Limits the work for one text, so that it is linear in the text whatever the secrets are.
//!
//! A hostile provider chooses its token: `AAAA…AB` would be compared to its end at every position of `AAAA…`, and a token
//! of escapes can be read in many ways. Ordinary secrets and texts differ after a few bytes, which are free.

/// How many bytes may be compared for each byte of a text, beside `FREE_WORK`.
pub const WORK_PER_BYTE: usize = 64;

/// How many bytes more may be compared for each text, so that short texts are never too much work.
pub const WORK_PER_TEXT: usize = 64 << 10;

/// How many bytes of each comparison are not counted. With many secrets, each position of an ordinary text has many
/// comparisons that end after a few bytes.
pub(super) const FREE_WORK: usize = 16;

/// The work that may still be done for a text.
pub(super) struct Work {
    left: usize,
    /// What is left of [`FREE_WORK`] for the present comparison.
    free: usize,
    /// All work so far, for the test that it is linear.
    #[cfg(test)]
    pub(super) spent: usize,
}

impl Work {
    pub(super) fn new(text_length: usize) -> Self {
        Self {
            left: WORK_PER_TEXT.saturating_add(text_length.saturating_mul(WORK_PER_BYTE)),
            free: FREE_WORK,
            #[cfg(test)]
            spent: 0,
        }
    }

    /// Begins another comparison.
    pub(super) fn begin(&mut self) {
        self.free = FREE_WORK;
    }

    /// How many bytes the present comparison may still compare.
    pub(super) fn available(&self) -> usize {
        self.left + self.free
    }

    /// Counts `bytes` of work. Returns false if it is more than the limit: the comparison must end.
    #[must_use]
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        #[cfg(test)]
        {
            self.spent += bytes;
        }
        let counted = bytes.saturating_sub(self.free);
        self.free = self.free.saturating_sub(bytes);
        let is_within = counted <= self.left;
        self.left = self.left.saturating_sub(counted);
        is_within
    }
}
