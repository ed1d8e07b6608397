//! Ids are types: one kind cannot pass for another, and text becomes an id only by [`parse`].
//!
//! [`parse`]: ProcessId::parse

use std::fmt;
use std::sync::Arc;

/// The longest id that a peer may choose. An id is repeated in every frame about its bearer, so
/// its length is a cost that others pay.
pub const MAX_ID_BYTES: usize = 1024;

/// Why a text is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id of {bytes} bytes is longer than the limit of {MAX_ID_BYTES}")]
pub struct IdError {
    /// How long the text was.
    pub bytes: usize,
}

/// Defines an id type: cheap to clone, ordered, printable, and made only by `parse`.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes `text` as an id, if it is not longer than [`MAX_ID_BYTES`].
            pub fn parse(text: &str) -> Result<Self, IdError> {
                if text.len() > MAX_ID_BYTES {
                    return Err(IdError { bytes: text.len() });
                }
                Ok(Self(text.into()))
            }

            /// The id as its bearer spelled it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.as_str())
            }
        }
    };
}

id!(
    /// One child process, under the name that the client chose for it. Not an operating system pid.
    ProcessId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_id_is_accepted_and_one_byte_more_is_not() {
        assert!(ProcessId::parse(&"x".repeat(MAX_ID_BYTES)).is_ok());
        let error = ProcessId::parse(&"x".repeat(MAX_ID_BYTES + 1)).unwrap_err();
        assert_eq!(error, IdError { bytes: MAX_ID_BYTES + 1 });
    }

    #[test]
    fn an_empty_id_is_an_id() {
        assert_eq!(ProcessId::parse("").unwrap().as_str(), "");
    }
}
