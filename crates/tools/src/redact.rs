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
}

impl StreamRedactor {
    /// A stream that removes the secrets that `redact` knows.
    pub fn new(redact: &Arc<dyn Redact>) -> Self {
        Self { redact: Arc::clone(redact), held: String::new() }
    }

    /// Adds a piece and returns the redacted text that is decided by now.
    pub fn push<'t>(&mut self, piece: &'t str) -> Cow<'t, str> {
        if self.held.is_empty() {
            return match self.redact.redact_prefix(piece) {
                (_, held) if held > MAX_HELD_BYTES => self.redact.redact(piece),
                (shown, held) => {
                    piece.split_at(piece.len() - held).1.clone_into(&mut self.held);
                    shown
                }
            };
        }
        self.held.push_str(piece);
        let (shown, held) = match self.redact.redact_prefix(&self.held) {
            (_, held) if held > MAX_HELD_BYTES => return Cow::Owned(self.finish()),
            (shown, held) => (shown.into_owned(), held),
        };
        self.held.drain(..self.held.len() - held);
        Cow::Owned(shown)
    }

    /// Discards the text that is held back and returns its length in bytes.
    pub fn discard(&mut self) -> usize {
        std::mem::take(&mut self.held).len()
    }

    /// Returns the text that was held back, redacted. Call this when no text follows.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        clean(&*self.redact, held)
    }

    /// Like [`finish`](Self::finish), for text that was cut off here: removes the beginning of a secret at its end.
    pub fn finish_truncated(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        self.redact.redact_truncated(&held).into_owned()
    }
}

/// Redacts `text`, without a copy if it has no secrets.
pub fn clean(redact: &dyn Redact, text: String) -> String {
    match redact.redact(&text) {
        Cow::Owned(clean) => clean,
        Cow::Borrowed(_) => text,
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn at_most_the_limit_is_held_back() {
        let long: &'static str = Box::leak("x".repeat(MAX_HELD_BYTES + 2).into_boxed_str());
        let mut stream = stream(long);
        let most = "x".repeat(MAX_HELD_BYTES);
        assert_eq!(stream.push(&most), "");
        assert_eq!(stream.push("x").len(), MAX_HELD_BYTES + 1);
        assert_eq!(stream.finish(), "");
    }
}
