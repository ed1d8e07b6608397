//! The stored form of a login: JSON, whose members `docs/auth.md` describes.

use parlor_vocab::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::resource::DiscoveredClient;
use crate::{Account, Secret};

/// The version of the stored form. Other versions are not read.
const VERSION: u32 = 1;

/// A stored login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Login {
    /// The access token; `None` once the login has ended.
    pub(crate) access: Option<Secret>,
    /// The refresh token, if the provider sent one.
    pub(crate) refresh: Option<Secret>,
    /// When the access token expires, if it does.
    pub(crate) expires_at: Option<Timestamp>,
    /// When the provider issued the access token.
    pub(crate) obtained_at: Timestamp,
    /// The account, if the provider sent an ID token.
    pub(crate) account: Option<Account>,
    /// The reason for which the login has ended, if it has.
    pub(crate) ended: Option<String>,
    /// Where the login came from, if the server of the login said that.
    pub(crate) client: Option<DiscoveredClient>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    access_token: Option<Zeroizing<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<Zeroizing<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<i64>,
    obtained_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<Account>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<DiscoveredClient>,
}

impl Login {
    /// What must not be shown.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        let client = self.client.as_ref().and_then(|client| client.client_secret.as_ref());
        let client = client.map(|secret| Secret::new(secret.as_str()));
        self.access.iter().chain(&self.refresh).cloned().chain(client).collect()
    }

    /// Serializes the login.
    pub(crate) fn to_text(&self) -> Secret {
        let text = |secret: &Option<Secret>| {
            secret.as_ref().map(|secret| Zeroizing::new(secret.expose().to_owned()))
        };
        let stored = Stored {
            version: VERSION,
            access_token: text(&self.access),
            refresh_token: text(&self.refresh),
            expires_at: self.expires_at.map(|at| at.0),
            obtained_at: self.obtained_at.0,
            account: self.account.clone(),
            ended: self.ended.clone(),
            client: self.client.clone(),
        };
        Secret::new(serde_json::to_string(&stored).expect("strings and numbers are valid JSON"))
    }

    /// Parses a stored login. `None` if the text is not one.
    pub(crate) fn parse(text: &Secret) -> Option<Self> {
        let stored: Stored = serde_json::from_str(text.expose()).ok()?;
        (stored.version == VERSION).then(|| Self {
            access: stored.access_token.map(Secret::from),
            refresh: stored.refresh_token.map(Secret::from),
            expires_at: stored.expires_at.map(Timestamp),
            obtained_at: Timestamp(stored.obtained_at),
            account: stored.account,
            ended: stored.ended,
            client: stored.client,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_survives_serialization() {
        let full = Login {
            access: Some(Secret::new("a")),
            refresh: Some(Secret::new("r")),
            expires_at: Some(Timestamp(2)),
            obtained_at: Timestamp(1),
            account: Some(Account { id: Some("7".to_owned()), ..Account::default() }),
            ended: None,
            client: None,
        };
        let ended = Login {
            access: None,
            refresh: None,
            expires_at: None,
            ended: Some("revoked".to_owned()),
            ..full.clone()
        };
        for login in [full, ended] {
            assert_eq!(Login::parse(&login.to_text()), Some(login));
        }
    }

    #[test]
    fn other_versions_and_texts_are_refused() {
        for bad in ["", "{}", r#"{"version":2,"obtained_at":1}"#, r#"{"version":1}"#] {
            assert_eq!(Login::parse(&Secret::new(bad)), None, "{bad}");
        }
    }
}
