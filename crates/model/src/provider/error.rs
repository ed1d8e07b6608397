//! The errors of a provider, sorted by what can be done about them.

use std::time::Duration;

use parlor_vocab::{Failure, FailureCode, truncate_chars};

/// How many characters of an error message are kept.
pub const MAX_ERROR_CHARS: usize = 600;

/// Why a request to a model failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The provider is overloaded, or the account has reached its rate limit.
    #[error("the provider is busy or the account is at its limit: {message}")]
    Busy {
        /// The message of the provider.
        message: String,
        /// How long to wait, if the provider said so.
        retry_after: Option<Duration>,
    },
    /// The provider could not be reached, the answer was interrupted, or the server failed.
    #[error("the provider does not answer as it should: {message}")]
    Broken {
        /// The error, with the status and the text of the server if there was a response.
        message: String,
        /// How long to wait, if the provider said so.
        retry_after: Option<Duration>,
    },
    /// The conversation exceeds the context window of the model.
    #[error("the conversation is too long for the model: {message}")]
    Overflow {
        /// The message of the provider.
        message: String,
    },
    /// The key is missing, invalid, or not allowed for the model.
    #[error("{message}")]
    Auth {
        /// The provider's message, or which key is missing.
        message: String,
    },
    /// A setting makes requests impossible.
    #[error("{message}")]
    Settings {
        /// Which setting, and which values are valid.
        message: String,
    },
    /// The provider refuses this request permanently.
    #[error("the provider refuses: {message}")]
    Refused {
        /// The message of the provider.
        message: String,
    },
}

impl ProviderError {
    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Broken { .. } => true,
            Self::Overflow { .. } | Self::Auth { .. } | Self::Settings { .. } | Self::Refused { .. } => false,
        }
    }

    /// How long the provider asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } | Self::Broken { retry_after, .. } => *retry_after,
            Self::Overflow { .. } | Self::Auth { .. } | Self::Settings { .. } | Self::Refused { .. } => None,
        }
    }

    /// The failure code.
    pub fn code(&self) -> FailureCode {
        match self {
            Self::Busy { .. } => FailureCode::ModelBusy,
            Self::Broken { .. } => FailureCode::ModelUnavailable,
            Self::Overflow { .. } => FailureCode::ContextOverflow,
            Self::Auth { .. } => FailureCode::ModelAuth,
            Self::Settings { .. } => FailureCode::ModelSettings,
            Self::Refused { .. } => FailureCode::ModelRefused,
        }
    }

    /// The failure of a run that used the model with the name `model`.
    pub fn failure(&self, model: &str) -> Failure {
        let message = format!("{model}: {self}");
        Failure { code: self.code(), message, retryable: self.is_retryable() }
    }

    pub(super) fn broken(message: impl AsRef<str>) -> Self {
        Self::Broken { message: truncate_message(message.as_ref()), retry_after: None }
    }
}

/// An error message on one line, with at most [`MAX_ERROR_CHARS`] characters.
pub(super) fn truncate_message(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    truncate_chars(&words.join(" "), MAX_ERROR_CHARS).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_truncated_and_on_one_line() {
        assert_eq!(truncate_message(" a\n b "), "a b");
        assert_eq!(truncate_message(&"x".repeat(2 * MAX_ERROR_CHARS)).chars().count(), MAX_ERROR_CHARS + 1);
    }

    #[test]
    fn only_temporary_errors_are_retryable() {
        let message = String::new;
        let after = Some(Duration::from_secs(3));
        assert!(ProviderError::Busy { message: message(), retry_after: after }.is_retryable());
        assert!(ProviderError::broken("x").failure("m").retryable);
        assert!(!ProviderError::Auth { message: message() }.is_retryable());
        assert!(!ProviderError::Overflow { message: message() }.is_retryable());
        assert_eq!(ProviderError::Refused { message: message() }.retry_after(), None);
    }
}
