//! Why a model does not answer, by what can be done about it.

use std::time::Duration;

use parlor_vocab::{Failure, FailureCode};

use crate::quote::cut;

/// How much of what a provider says about an error is passed on.
pub const MAX_ERROR_CHARS: usize = 600;

/// Why a model does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// Too much was asked of it at once, or of this account.
    #[error("the provider is busy or the account is at its limit: {said}")]
    Busy {
        /// What the provider says.
        said: String,
        /// How long to wait, if it says so.
        retry_after: Option<Duration>,
    },
    /// It could not be reached, broke off, or failed on its side.
    #[error("the provider does not answer as it should: {said}")]
    Broken {
        /// What happened.
        said: String,
        /// How long to wait, if it says so.
        retry_after: Option<Duration>,
    },
    /// The conversation is longer than the model can read.
    #[error("the conversation is too long for the model: {said}")]
    Overflow {
        /// What the provider says.
        said: String,
    },
    /// The key is missing, wrong, or not for this.
    #[error("{said}")]
    Auth {
        /// What the provider says, or what is missing.
        said: String,
    },
    /// Something is set in a way in which nobody can be asked.
    #[error("{said}")]
    Settings {
        /// What, and how it would be right.
        said: String,
    },
    /// It will not answer this, also not later.
    #[error("the provider refuses: {said}")]
    Refused {
        /// What the provider says.
        said: String,
    },
}

impl ProviderError {
    /// Whether the same question may be answered later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Broken { .. } => true,
            Self::Overflow { .. } | Self::Auth { .. } | Self::Settings { .. } | Self::Refused { .. } => false,
        }
    }

    /// How long the provider wants us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } | Self::Broken { retry_after, .. } => *retry_after,
            Self::Overflow { .. } | Self::Auth { .. } | Self::Settings { .. } | Self::Refused { .. } => None,
        }
    }

    /// The word for programs.
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

    /// As the end of a run, of the model that people know as `model`.
    pub fn failure(&self, model: &str) -> Failure {
        let message = format!("{model}: {self}");
        Failure { code: self.code(), message, retryable: self.is_retryable() }
    }

    pub(super) fn broken(said: impl AsRef<str>) -> Self {
        Self::Broken { said: short(said.as_ref()), retry_after: None }
    }
}

/// What is passed on of what a provider says.
pub(super) fn short(said: &str) -> String {
    let words: Vec<&str> = said.split_whitespace().collect();
    cut(&words.join(" "), MAX_ERROR_CHARS).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_provider_says_is_cut_and_on_one_line() {
        assert_eq!(short(" a\n b "), "a b");
        assert_eq!(short(&"x".repeat(2 * MAX_ERROR_CHARS)).chars().count(), MAX_ERROR_CHARS + 1);
    }

    #[test]
    fn what_may_pass_is_retryable_and_nothing_else() {
        let said = String::new;
        let after = Some(Duration::from_secs(3));
        assert!(ProviderError::Busy { said: said(), retry_after: after }.is_retryable());
        assert!(ProviderError::broken("x").failure("m").retryable);
        assert!(!ProviderError::Auth { said: said() }.is_retryable());
        assert!(!ProviderError::Overflow { said: said() }.is_retryable());
        assert_eq!(ProviderError::Refused { said: said() }.retry_after(), None);
    }
}
