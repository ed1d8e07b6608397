//! The errors of logins and of access tokens. Their texts contain no secrets and no control characters.

use std::time::Duration;

use parlor_vocab::truncate_chars;

use crate::{LoginFlow, Redactor};

/// How many characters of a provider's error text are kept.
pub const MAX_REASON_CHARS: usize = 300;

/// Why a login failed. A failed login stores nothing and keeps the previous login.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// No provider of this name is configured.
    #[error("no login is configured for {name:?}{}; [auth.NAME] in parlor.toml describes one", known_providers(.known))]
    UnknownProvider {
        /// The requested name.
        name: String,
        /// The names of the configured providers.
        known: Vec<String>,
    },
    /// The provider is not configured for this flow.
    #[error("{provider} has no {} in parlor.toml, which this way to log in needs", needed_setting(*.flow))]
    FlowNotConfigured {
        /// The name of the provider.
        provider: String,
        /// The requested flow.
        flow: LoginFlow,
    },
    /// The maximum number of logins is pending.
    #[error("{limit} logins are under way, which is the limit; wait for one to end")]
    TooMany {
        /// The maximum.
        limit: usize,
    },
    /// The callback had another `state`. An attacker may have tried to substitute a login of their own.
    #[error("what the browser brought back belongs to another login; begin again")]
    StateMismatch,
    /// The callback named another authorization server, or none though one was promised. It may be an attack on the login.
    #[error(
        "what the browser brought back does not come from the authorization server that was asked; begin again"
    )]
    IssuerMismatch,
    /// A server did not say how to log in to it, or said something that cannot be used.
    #[error("parlor does not learn from the server how to log in: {0}")]
    Discovery(String),
    /// The user or the provider refused.
    #[error("the provider refused: {}", .description.as_ref().unwrap_or(.code))]
    Denied {
        /// The OAuth error code.
        code: String,
        /// The provider's description of the error.
        description: Option<String>,
    },
    /// The callback had neither a code nor an error.
    #[error("the browser came back without a code; begin again")]
    NoCode,
    /// The user or a client cancelled the login.
    #[error("the login was cancelled")]
    Cancelled,
    /// The login took longer than this.
    #[error("the login was not completed within {} seconds; begin again", .0.as_secs())]
    TimedOut(Duration),
    /// The user did not enter the device code before it expired.
    #[error("the code was not entered in time; begin again")]
    CodeExpired,
    /// The provider does not support device codes.
    #[error("the provider offers no device code; log in with a browser")]
    DeviceUnsupported,
    /// The request for a device code failed.
    #[error("no device code was given{}: {reason}", status_suffix(.status))]
    DeviceRequest {
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// The sanitized text of the provider, or the network error.
        reason: String,
    },
    /// Polling for the tokens of a device code failed.
    #[error("asking for the device code failed{}: {reason}", status_suffix(.status))]
    DevicePoll {
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// The sanitized text of the provider, or the network error.
        reason: String,
    },
    /// The exchange of the code for tokens failed.
    #[error("the provider gave no token{}: {reason}", status_suffix(.status))]
    Exchange {
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// The sanitized text of the provider, or the network error.
        reason: String,
    },
    /// Something on this machine failed, such as the store or the listener. The text is complete.
    #[error("{0}")]
    Local(String),
}

/// Why no access token is available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No provider of this name is configured.
    #[error("no login is configured for {name:?}{}; [auth.NAME] in parlor.toml describes one", known_providers(.known))]
    UnknownProvider {
        /// The requested name.
        name: String,
        /// The names of the configured providers.
        known: Vec<String>,
    },
    /// No login is stored for the provider.
    #[error("not logged in to {provider}; run: parlor login {provider}")]
    LoggedOut {
        /// The name of the provider.
        provider: String,
    },
    /// The login has ended: the provider refused to renew it, or it cannot be renewed.
    #[error("the login to {provider} has ended: {reason}; run: parlor login {provider}")]
    Ended {
        /// The name of the provider.
        provider: String,
        /// The provider's reason, or ours.
        reason: String,
    },
    /// The renewal failed for a reason that may be temporary.
    #[error("the login to {provider} cannot be renewed now{}: {reason}; try again", status_suffix(.status))]
    Unavailable {
        /// The name of the provider.
        provider: String,
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// The sanitized text of the provider, or the network error.
        reason: String,
    },
    /// Something on this machine failed, such as the store. The text is complete.
    #[error("{0}")]
    Local(String),
}

/// Makes text of a provider safe to display: without secrets and control characters, and at most [`MAX_REASON_CHARS`]
/// long.
pub(crate) fn sanitize(redactor: &Redactor, text: &str) -> String {
    let visible: String = redactor
        .redact(text)
        .chars()
        .map(|c| if c.is_control() || is_format_character(c) { ' ' } else { c })
        .collect();
    truncate_chars(visible.trim(), MAX_REASON_CHARS).into_owned()
}

/// Whether a character is invisible and may reorder or hide the text around it.
fn is_format_character(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn known_providers(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!("; there are: {}", known.join(", ")) }
}

fn status_suffix(status: &Option<u16>) -> String {
    status.map_or_else(String::new, |status| format!(" (status {status})"))
}

fn needed_setting(flow: LoginFlow) -> &'static str {
    match flow {
        LoginFlow::Browser => "authorize_url",
        LoginFlow::Device => "device_url",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    #[test]
    fn provider_texts_are_truncated_and_contain_no_secrets() {
        let redactor = Redactor::new();
        redactor.learn(&Secret::new("s3cret-token"));
        assert_eq!(sanitize(&redactor, " no \x1b[31m s3cret-token\n\u{202e}x "), "no  [31m [secret]  x");
        let long = sanitize(&redactor, &"é".repeat(MAX_REASON_CHARS + 1));
        assert_eq!(long, format!("{}…", "é".repeat(MAX_REASON_CHARS)));
        assert_eq!(sanitize(&redactor, &"é".repeat(MAX_REASON_CHARS)).chars().count(), MAX_REASON_CHARS);
    }

    #[test]
    fn errors_name_the_fix() {
        let ended = AccessError::Ended { provider: "x".to_owned(), reason: "gone".to_owned() };
        assert_eq!(ended.to_string(), "the login to x has ended: gone; run: parlor login x");
        let missing = LoginError::FlowNotConfigured { provider: "x".to_owned(), flow: LoginFlow::Device };
        assert!(missing.to_string().contains("device_url"));
        let unknown = LoginError::UnknownProvider { name: "y".to_owned(), known: vec!["x".to_owned()] };
        assert!(unknown.to_string().contains("there are: x;"), "{unknown}");
    }
}
