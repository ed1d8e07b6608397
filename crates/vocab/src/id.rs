//! Id types. Each kind of id is a type of its own, so that the compiler rejects a message id where a run id is expected.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::UniqueNumber;

/// The longest id that a client may choose. Every frame about a thing repeats its id, so other clients pay for the
/// length.
pub const MAX_ID_BYTES: usize = 1024;

/// The text is too long to be an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id of {bytes} bytes is longer than the limit of {MAX_ID_BYTES}")]
pub struct IdError {
    /// The length of the text.
    pub bytes: usize,
}

/// Defines an id type that is cheap to clone. Only `parse` makes such an id; with a prefix, `generate` does so too.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        id!($(#[$doc])* $name);

        impl $name {
            /// Makes a new id. Ids sort in the order of their numbers.
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
            /// Accepts any text of at most [`MAX_ID_BYTES`] as an id, even an empty one.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                if text.len() > MAX_ID_BYTES {
                    return Err(IdError { bytes: text.len() });
                }
                Ok(Self(text.into()))
            }

            /// The text that the id was made from.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            /// The same as [`parse`](Self::parse).
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::parse(text)
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
    /// A child process. The client chooses the id; it is not the operating system's pid.
    ProcessId
);

id!(
    /// A session: one conversation, through whichever door it was created.
    SessionId
);

id!(
    /// A run: the work on one input of a session.
    RunId,
    "run_"
);

id!(
    /// An event in the log. Globally unique.
    EventId,
    "evt_"
);

id!(
    /// A message of a session. Globally unique.
    MessageId,
    "msg_"
);

id!(
    /// A step of a run. Unique within the run.
    StepId
);

id!(
    /// A tool call. Globally unique.
    ToolCallId,
    "call_"
);

id!(
    /// A question to a person. Globally unique.
    QuestionId,
    "qst_"
);

id!(
    /// An agent, by its configured name.
    AgentId
);

id!(
    /// A stored file, by the hash of its content.
    MediaId
);

impl SessionId {
    /// Makes a new id in the form of a UUID. Ids sort in the order of their numbers.
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
    fn a_generated_id_has_the_prefix_of_its_type_and_sorts_by_its_number() {
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
    fn an_empty_id_is_accepted() {
        assert_eq!(ProcessId::parse("").unwrap().as_str(), "");
    }
}
