//! Ids are types: one kind cannot pass for another, and text becomes an id only by [`parse`].
//!
//! [`parse`]: ProcessId::parse

use std::fmt;
use std::sync::Arc;

use crate::UniqueNumber;

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

/// Defines an id type: cheap to clone, ordered, printable, and made only by `parse`. With a prefix
/// it is also made by `generate`, for bearers that get their id from parlor.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        id!($(#[$doc])* $name);

        impl $name {
            /// A new id, which sorts after those of earlier numbers.
            pub fn generate(number: UniqueNumber) -> Self {
                Self(format!(concat!($prefix, "{}"), number).into())
            }
        }
    };
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

id!(
    /// One conversation, whichever door it came through.
    SessionId
);

id!(
    /// One turn of work in a session.
    RunId,
    "run_"
);

id!(
    /// One event of the log, unique everywhere.
    EventId,
    "evt_"
);

id!(
    /// One message of a conversation, unique everywhere.
    MessageId,
    "msg_"
);

id!(
    /// One step of a run, unique within the run.
    StepId
);

id!(
    /// One call of a tool, unique everywhere.
    ToolCallId,
    "call_"
);

id!(
    /// One agent, under its configured name.
    AgentId
);

id!(
    /// The content of one stored file, by its hash.
    MediaId
);

impl SessionId {
    /// A new id in the form of a UUID, which sorts after those of earlier numbers.
    pub fn generate(number: UniqueNumber) -> Self {
        let [time, middle, version, variant, node] = [
            number.0 >> 96,
            number.0 >> 80 & 0xffff,
            number.0 >> 64 & 0xffff,
            number.0 >> 48 & 0xffff,
            number.0 & 0xffff_ffff_ffff,
        ];
        Self(format!("{time:08x}-{middle:04x}-{version:04x}-{variant:04x}-{node:012x}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_id_says_what_it_is_of_and_sorts_by_its_number() {
        let number = UniqueNumber(0x0123_4567_89ab_7cde_8f01_2345_6789_abcd);
        assert_eq!(RunId::generate(number).as_str(), "run_0123456789ab7cde8f0123456789abcd");
        assert_eq!(SessionId::generate(number).as_str(), "01234567-89ab-7cde-8f01-23456789abcd");
        let later = UniqueNumber(number.0 + 1);
        assert!(SessionId::generate(number) < SessionId::generate(later));
        assert!(MessageId::generate(number) < MessageId::generate(later));
    }

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
