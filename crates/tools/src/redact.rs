//! Removes secrets from the output of tools, before any of it is truncated: a later check would not recognize the
//! part of a secret that a cut leaves behind.
//!
//! The [`Redact`] implementation knows the secrets; whoever makes the [`ToolContext`](crate::ToolContext) chooses it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// How many bytes of streamed text are held back at most, because they may be the beginning of a secret. More than
/// the longest secret in its longest encoding.
pub const MAX_HELD_BYTES: usize = 256 << 10;

/// What a stream shows in place of the rest of its text, if more than [`MAX_HELD_BYTES`] may be the beginning of a secret.
/// No secret is that long, so somebody wrote the text to confuse the redactor, and a secret may be at any place in it.
pub const WITHHELD: &str = "[withheld: parlor cannot tell this text from a secret]";

/// Up to this many bytes that are held back are checked again with each piece. If more are held back, the check waits
/// until half as much text has been added, so that the work for a stream in tiny pieces does not grow with what is held
/// back.
pub const MAX_RECHECKED_BYTES: usize = 1 << 10;

/// The longest text that is redacted at once on an async thread. Longer ones are redacted in slices of this size, with
/// other tasks in between, or on a blocking thread.
pub const REDACT_SLICE_BYTES: usize = 64 << 10;

/// From how many bytes on the beginning of a secret is removed at the end of truncated text. Shorter matches are
/// mostly coincidence.
pub const MIN_CUT_BYTES: usize = 4;

/// Removes secrets from text.
pub trait Redact: Send + Sync {
    /// `text` with each secret replaced by a placeholder.
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str>;

    /// Redacts the part of `text` that cannot change any more, and counts the bytes after that part: they may be the
    /// beginning of a secret, depending on the text that follows.
    ///
    /// The part never ends within a secret, whichever of the known secrets that is.
    fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize);

    /// Whether `bytes` contain a secret. For images and other content from which a secret cannot be removed.
    fn contains_secret(&self, bytes: &[u8]) -> bool;

    /// Redacts text whose end was cut off, and removes what may be the beginning of a secret at that end.
    fn redact_truncated<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.redact_prefix(text) {
            (_, held) if held < MIN_CUT_BYTES => self.redact(text),
            (_, held) => self.redact(text.split_at(text.len() - held).0),
        }
    }
}

impl fmt::Debug for dyn Redact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redact(…)")
    }
}

/// Redacts nothing: for tests and servers that know no secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

impl Redact for NoSecrets {
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }

    fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
        (Cow::Borrowed(text), 0)
    }

    fn contains_secret(&self, _: &[u8]) -> bool {
        false
    }
}

/// Redacts text that arrives in pieces. Holds back what may be the beginning of a secret until more text decides it.
#[derive(Debug)]
pub struct StreamRedactor {
    redact: Arc<dyn Redact>,
    held: String,
    /// How many bytes at the start of `held` were checked before.
    checked: usize,
    /// Whether the rest of the text is dropped: see [`WITHHELD`].
    is_withheld: bool,
}

impl StreamRedactor {
    /// A stream that removes the secrets that `redact` knows.
    pub fn new(redact: &Arc<dyn Redact>) -> Self {
        Self { redact: Arc::clone(redact), held: String::new(), checked: 0, is_withheld: false }
    }

    /// Adds a piece and returns the redacted text that is decided by now.
    pub fn push<'t>(&mut self, piece: &'t str) -> Cow<'t, str> {
        if self.is_withheld {
            return Cow::Borrowed("");
        }
        if self.held.is_empty() {
            let (shown, held) = self.redact.redact_prefix(piece);
            if held > MAX_HELD_BYTES {
                return Cow::Owned(self.withhold(shown.into_owned()));
            }
            piece.split_at(piece.len() - held).1.clone_into(&mut self.held);
            self.checked = held;
            return shown;
        }
        self.held.push_str(piece);
        if self.checked > MAX_RECHECKED_BYTES && self.held.len() - self.checked < self.checked / 2 {
            return Cow::Borrowed("");
        }
        let (shown, held) = self.redact.redact_prefix(&self.held);
        let shown = shown.into_owned();
        if held > MAX_HELD_BYTES {
            return Cow::Owned(self.withhold(shown));
        }
        self.held.drain(..self.held.len() - held);
        self.checked = held;
        Cow::Owned(shown)
    }

    /// Adds a piece of any length, and passes the redacted text that is decided by now to `show`. Lets other tasks run
    /// between slices of [`REDACT_SLICE_BYTES`].
    pub async fn push_in_slices(&mut self, piece: &str, mut show: impl FnMut(&str) + Send) {
        let mut rest = piece;
        loop {
            let (slice, later) = rest.split_at(rest.floor_char_boundary(REDACT_SLICE_BYTES));
            show(&self.push(slice));
            if later.is_empty() {
                return;
            }
            rest = later;
            tokio::task::yield_now().await;
        }
    }

    /// Discards the text that is held back and returns its length in bytes.
    pub fn discard(&mut self) -> usize {
        self.take_held().len()
    }

    /// Returns the text that was held back, redacted. Call this when no text follows.
    pub fn finish(&mut self) -> String {
        let held = self.take_held();
        clean(&*self.redact, held)
    }

    /// Like [`finish`](Self::finish), for text that was cut off here: removes the beginning of a secret at its end.
    pub fn finish_truncated(&mut self) -> String {
        let held = self.take_held();
        self.redact.redact_truncated(&held).into_owned()
    }

    /// Drops the text that is held back and all that follows; `shown` is the text before it.
    fn withhold(&mut self, shown: String) -> String {
        self.take_held();
        self.is_withheld = true;
        shown + WITHHELD
    }

    /// Takes the text that is held back. The next piece begins a new text.
    fn take_held(&mut self) -> String {
        (self.checked, self.is_withheld) = (0, false);
        std::mem::take(&mut self.held)
    }
}

/// Redacts `text`, without a copy if it has no secrets.
pub fn clean(redact: &dyn Redact, text: String) -> String {
    match redact.redact(&text) {
        Cow::Owned(clean) => clean,
        Cow::Borrowed(_) => text,
    }
}

/// Like [`clean`], for a text of any length: one above [`REDACT_SLICE_BYTES`] does not occupy an async thread.
pub async fn clean_long(redact: &Arc<dyn Redact>, text: String) -> String {
    if text.len() <= REDACT_SLICE_BYTES {
        return clean(&**redact, text);
    }
    let redact = Arc::clone(redact);
    // If the task fails, the program is ending, and nobody needs the text.
    tokio::task::spawn_blocking(move || clean(&*redact, text)).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Knows one secret.
    struct OneSecret(&'static str);

    impl Redact for OneSecret {
        fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
            if text.contains(self.0) {
                Cow::Owned(text.replace(self.0, "[secret]"))
            } else {
                Cow::Borrowed(text)
            }
        }

        fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
            let mut lengths = (1..self.0.len()).rev();
            let held = lengths.find(|length| text.ends_with(self.0.split_at(*length).0)).unwrap_or(0);
            (self.redact(text.split_at(text.len() - held).0), held)
        }

        fn contains_secret(&self, bytes: &[u8]) -> bool {
            bytes.windows(self.0.len()).any(|part| part == self.0.as_bytes())
        }
    }

    fn stream(secret: &'static str) -> StreamRedactor {
        StreamRedactor::new(&(Arc::new(OneSecret(secret)) as Arc<dyn Redact>))
    }

    #[test]
    fn a_secret_in_pieces_is_held_back_and_removed() {
        let mut stream = stream("s3cret");
        let shown: Vec<String> = ["a s3", "cr", "et and ", "s3c", "ond", " s"]
            .map(|piece| stream.push(piece).into_owned())
            .to_vec();
        assert_eq!(shown, ["a ", "", "[secret] and ", "", "s3cond", " "]);
        assert_eq!(stream.finish(), "s");
        assert_eq!(stream.finish(), "");
        assert_eq!(stream.push("cut s3cre"), "cut ");
        assert_eq!(stream.finish_truncated(), "");
        assert_eq!(
            (stream.push("s3c"), stream.finish_truncated()),
            ("".into(), "s3c".to_owned()),
            "too little to matter"
        );
    }

    #[test]
    fn text_without_secrets_is_not_copied() {
        assert!(matches!(stream("s3cret").push("nothing"), Cow::Borrowed("nothing")));
    }

    /// Knows no secret, but the whole text may be the beginning of one. Counts the bytes that it checks.
    #[derive(Default)]
    struct Suspicious(AtomicUsize);

    impl Redact for Suspicious {
        fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
            self.0.fetch_add(text.len(), Ordering::Relaxed);
            Cow::Borrowed(text)
        }

        fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
            self.0.fetch_add(text.len(), Ordering::Relaxed);
            (Cow::Borrowed(""), text.len())
        }

        fn contains_secret(&self, _: &[u8]) -> bool {
            false
        }
    }

    #[test]
    fn the_work_for_a_stream_in_tiny_pieces_is_linear() {
        let redact = Arc::new(Suspicious::default());
        let mut stream = StreamRedactor::new(&(Arc::clone(&redact) as Arc<dyn Redact>));
        let count = 100_000;
        (0..count).for_each(|_| drop(stream.push("x")));
        assert_eq!(stream.finish().len(), count);
        let checked = redact.0.load(Ordering::Relaxed);
        assert!(checked <= 4 * count + MAX_RECHECKED_BYTES * MAX_RECHECKED_BYTES, "{checked} bytes");
    }

    #[tokio::test]
    async fn a_long_piece_is_redacted_in_slices_and_other_tasks_run_in_between() {
        let mut stream = stream("s3cret");
        let filler = "\u{e9}".repeat(REDACT_SLICE_BYTES / 2 - 1);
        // The secret is across the edge of the first slice.
        let text = format!("{filler}s3cret{filler}{filler}");
        let turns = Arc::new(AtomicUsize::new(0));
        let other = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        });
        let mut shown = Vec::new();
        stream.push_in_slices(&text, |part| shown.push(part.to_owned())).await;
        other.abort();
        assert!(shown.concat() == format!("{filler}[secret]{filler}{filler}"));
        assert!(shown.len() >= 3 && shown.iter().all(|part| part.len() <= REDACT_SLICE_BYTES + 8));
        assert!(turns.load(Ordering::Relaxed) >= 2);
    }

    #[tokio::test]
    async fn a_long_text_is_redacted_on_another_thread() {
        /// Replaces each text by the name of the thread.
        struct ThreadName;

        impl Redact for ThreadName {
            fn redact<'t>(&self, _: &'t str) -> Cow<'t, str> {
                Cow::Owned(format!("{:?}", std::thread::current().id()))
            }

            fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
                (self.redact(text), 0)
            }

            fn contains_secret(&self, _: &[u8]) -> bool {
                false
            }
        }

        let (redact, here) = (Arc::new(ThreadName) as Arc<dyn Redact>, ThreadName.redact("").into_owned());
        assert_eq!(clean_long(&redact, "x".repeat(REDACT_SLICE_BYTES)).await, here);
        assert_ne!(clean_long(&redact, "x".repeat(REDACT_SLICE_BYTES + 1)).await, here);
    }

    #[test]
    fn at_most_the_limit_is_held_back() {
        let long: &'static str = Box::leak("x".repeat(4 * MAX_HELD_BYTES).into_boxed_str());
        let mut stream = stream(long);
        let most = "x".repeat(MAX_HELD_BYTES);
        assert!(stream.push(&most).is_empty());
        assert!(stream.push("x").is_empty(), "checked again when there is half as much more");
        assert!(stream.push(&most) == WITHHELD);
        assert!(stream.push("nothing").is_empty(), "the cut may be within a secret");
        assert_eq!(stream.finish(), "");
        assert_eq!(stream.push("nothing"), "nothing", "another text");
        assert!(stream.push(&format!("a {most}x")) == format!("a {WITHHELD}"));
    }
}
