//! Why a login or a token cannot be had. All texts are without secrets and without control characters.

use std::time::Duration;

use crate::{LoginFlow, Redactor};

/// How much of what a provider says is passed on.
pub const MAX_REASON_CHARS: usize = 300;

/// Why a login came to nothing. Nothing was stored, and what was stored before is still there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// No provider of this name is configured.
    #[error("no login is configured for {name:?}{}; [auth.NAME] in parlor.toml describes one", known_in_words(.known))]
    UnknownProvider {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The provider is not configured for this way.
    #[error("{provider} has no {} in parlor.toml, which this way to log in needs", setting_of(*.way))]
    FlowNotConfigured {
        /// The provider.
        provider: String,
        /// Which way was asked for.
        way: LoginFlow,
    },
    /// As many logins are under way as may be.
    #[error("{limit} logins are under way, which is the limit; wait for one to end")]
    TooMany {
        /// How many may be.
        limit: usize,
    },
    /// What came back belongs to another login: somebody may have tried to slip in their own.
    #[error("what the browser brought back belongs to another login; begin again")]
    StateMismatch,
    /// The user or the provider said no.
    #[error("the provider refused: {}", .description.as_ref().unwrap_or(.code))]
    Denied {
        /// The error code of OAuth.
        code: String,
        /// What the provider says about it.
        description: Option<String>,
    },
    /// The browser came back without a code.
    #[error("the browser came back without a code; begin again")]
    NoCode,
    /// Somebody cancelled it.
    #[error("the login was cancelled")]
    Cancelled,
    /// It took too long.
    #[error("the login was not completed within {} seconds; begin again", .0.as_secs())]
    TimedOut(Duration),
    /// The code was not entered in time.
    #[error("the code was not entered in time; begin again")]
    CodeExpired,
    /// The provider does not know device codes.
    #[error("the provider offers no device code; log in with a browser")]
    DeviceUnsupported,
    /// The provider gave no device code.
    #[error("no device code was given{}: {reason}", status_in_words(.status))]
    DeviceRequest {
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// What the provider says.
        reason: String,
    },
    /// The provider does not say whether the code was entered.
    #[error("asking for the device code failed{}: {reason}", status_in_words(.status))]
    DevicePoll {
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// What the provider says.
        reason: String,
    },
    /// The provider gave no tokens for the code.
    #[error("the provider gave no token{}: {reason}", status_in_words(.status))]
    Exchange {
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// What the provider says.
        reason: String,
    },
    /// This machine refused something that the login needs.
    #[error("{0}")]
    Local(String),
}

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No provider of this name is configured.
    #[error("no login is configured for {name:?}{}; [auth.NAME] in parlor.toml describes one", known_in_words(.known))]
    UnknownProvider {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Nobody logged in.
    #[error("not logged in to {provider}; run: parlor login {provider}")]
    LoggedOut {
        /// The provider.
        provider: String,
    },
    /// The provider does not renew the login any more.
    #[error("the login to {provider} has ended: {reason}; run: parlor login {provider}")]
    Ended {
        /// The provider.
        provider: String,
        /// Why.
        reason: String,
    },
    /// The provider could not be asked. Later it may be.
    #[error("the login to {provider} cannot be renewed now{}: {reason}; try again", status_in_words(.status))]
    Unavailable {
        /// The provider.
        provider: String,
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// What went wrong.
        reason: String,
    },
    /// This machine refused something that is needed.
    #[error("{0}")]
    Local(String),
}

/// What a stranger says, fit to be shown.
pub(crate) fn clean(redactor: &Redactor, text: &str) -> String {
    let visible: String = redactor
        .redact(text)
        .chars()
        .map(|letter| if letter.is_control() || is_unseen(letter) { ' ' } else { letter })
        .collect();
    let mut letters = visible.trim().chars();
    let cut: String = letters.by_ref().take(MAX_REASON_CHARS).collect();
    if letters.next().is_some() { cut + "…" } else { cut }
}

/// Marks that reorder or hide the text around them.
fn is_unseen(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn known_in_words(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!("; there are: {}", known.join(", ")) }
}

fn status_in_words(status: &Option<u16>) -> String {
    status.map_or_else(String::new, |status| format!(" (status {status})"))
}

fn setting_of(way: LoginFlow) -> &'static str {
    match way {
        LoginFlow::Browser => "authorize_url",
        LoginFlow::Device => "device_url",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    #[test]
    fn what_strangers_say_is_cut_cleaned_and_without_secrets() {
        let redactor = Redactor::new();
        redactor.learn(&Secret::new("s3cret-token"));
        assert_eq!(clean(&redactor, " no \x1b[31m s3cret-token\n\u{202e}x "), "no  [31m [secret]  x");
        let long = clean(&redactor, &"é".repeat(MAX_REASON_CHARS + 1));
        assert_eq!(long, format!("{}…", "é".repeat(MAX_REASON_CHARS)));
        assert_eq!(clean(&redactor, &"é".repeat(MAX_REASON_CHARS)).chars().count(), MAX_REASON_CHARS);
    }

    #[test]
    fn errors_say_what_to_do() {
        let ended = AccessError::Ended { provider: "x".to_owned(), reason: "gone".to_owned() };
        assert_eq!(ended.to_string(), "the login to x has ended: gone; run: parlor login x");
        let missing = LoginError::FlowNotConfigured { provider: "x".to_owned(), way: LoginFlow::Device };
        assert!(missing.to_string().contains("device_url"));
        let unknown = LoginError::UnknownProvider { name: "y".to_owned(), known: vec!["x".to_owned()] };
        assert!(unknown.to_string().contains("there are: x;"), "{unknown}");
    }
}
