//! Takes secrets out of what tools bring back, before any of it is cut: a part of a secret at the edge of a cut would be
//! no secret to whoever looks at it later.
//!
//! Which secrets there are is known to whoever makes the [`ToolContext`](crate::Context).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// How much of a text that is being written is held back at most, because it may be the beginning of a secret. More
/// than the longest secret in any of its forms.
pub const MAX_HELD_BYTES: usize = 256 << 10;

/// How much of the beginning of a secret may stand where a text is cut. Less than that is told by chance.
pub const MIN_CUT_BYTES: usize = 4;

/// Takes secrets out of texts.
pub trait Redact: Send + Sync {
    /// `text` without secrets.
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str>;

    /// The part of `text` that is decided, without secrets, and how many bytes at the end are not in it, because they may
    /// be the beginning of a secret if more text follows.
    ///
    /// One decision for all secrets that are known: where it divides the text, it divides none of them.
    fn sift<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize);

    /// Whether a secret is in `bytes`, such as those of an image, from which it cannot be taken out.
    fn finds(&self, bytes: &[u8]) -> bool;

    /// `text`, whose end was cut off, without secrets and without what may be the beginning of one there.
    fn redact_cut<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.sift(text) {
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

/// Where there are no secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

impl Redact for NoSecrets {
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }

    fn sift<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
        (Cow::Borrowed(text), 0)
    }

    fn finds(&self, _: &[u8]) -> bool {
        false
    }
}

/// A text that comes in pieces. What may be the beginning of a secret is held back until that is known.
#[derive(Debug)]
pub struct StreamRedactor {
    redact: Arc<dyn Redact>,
    held: String,
}

impl StreamRedactor {
    /// One that takes out what `redact` knows.
    pub fn new(redact: &Arc<dyn Redact>) -> Self {
        Self { redact: Arc::clone(redact), held: String::new() }
    }

    /// Takes a piece, and gives what can be shown.
    pub fn push<'t>(&mut self, piece: &'t str) -> Cow<'t, str> {
        if self.held.is_empty() {
            return match self.redact.sift(piece) {
                (_, held) if held > MAX_HELD_BYTES => self.redact.redact(piece),
                (shown, held) => {
                    piece.split_at(piece.len() - held).1.clone_into(&mut self.held);
                    shown
                }
            };
        }
        self.held.push_str(piece);
        let (shown, held) = match self.redact.sift(&self.held) {
            (_, held) if held > MAX_HELD_BYTES => return Cow::Owned(self.rest()),
            (shown, held) => (shown.into_owned(), held),
        };
        self.held.drain(..self.held.len() - held);
        Cow::Owned(shown)
    }

    /// Forgets what was held back, and says how many bytes that is.
    pub fn forget(&mut self) -> usize {
        std::mem::take(&mut self.held).len()
    }

    /// Gives what was held back: nothing more follows.
    pub fn rest(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        clean(&*self.redact, held)
    }

    /// Gives what was held back of a text that was cut off here, without the beginning of a secret.
    pub fn rest_of_cut(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        self.redact.redact_cut(&held).into_owned()
    }
}

/// A text without secrets.
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
    struct One(&'static str);

    impl Redact for One {
        fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
            if text.contains(self.0) {
                Cow::Owned(text.replace(self.0, "[secret]"))
            } else {
                Cow::Borrowed(text)
            }
        }

        fn sift<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
            let mut lengths = (1..self.0.len()).rev();
            let held = lengths.find(|length| text.ends_with(self.0.split_at(*length).0)).unwrap_or(0);
            (self.redact(text.split_at(text.len() - held).0), held)
        }

        fn finds(&self, bytes: &[u8]) -> bool {
            bytes.windows(self.0.len()).any(|part| part == self.0.as_bytes())
        }
    }

    fn sieve(secret: &'static str) -> StreamRedactor {
        StreamRedactor::new(&(Arc::new(One(secret)) as Arc<dyn Redact>))
    }

    #[test]
    fn a_secret_in_pieces_is_held_back_and_taken_out() {
        let mut sieve = sieve("s3cret");
        let shown: Vec<String> = ["a s3", "cr", "et and ", "s3c", "ond", " s"]
            .map(|piece| sieve.push(piece).into_owned())
            .to_vec();
        assert_eq!(shown, ["a ", "", "[secret] and ", "", "s3cond", " "]);
        assert_eq!(sieve.rest(), "s");
        assert_eq!(sieve.rest(), "");
        assert_eq!(sieve.push("cut s3cre"), "cut ");
        assert_eq!(sieve.rest_of_cut(), "");
        assert_eq!(
            (sieve.push("s3c"), sieve.rest_of_cut()),
            ("".into(), "s3c".to_owned()),
            "too little to matter"
        );
    }

    #[test]
    fn text_without_secrets_passes_as_it_is() {
        assert!(matches!(sieve("s3cret").push("nothing"), Cow::Borrowed("nothing")));
    }

    #[test]
    fn no_more_is_held_back_than_is_allowed() {
        let long: &'static str = Box::leak("x".repeat(MAX_HELD_BYTES + 2).into_boxed_str());
        let mut sieve = sieve(long);
        let most = "x".repeat(MAX_HELD_BYTES);
        assert_eq!(sieve.push(&most), "");
        assert_eq!(sieve.push("x").len(), MAX_HELD_BYTES + 1);
        assert_eq!(sieve.rest(), "");
    }
}
