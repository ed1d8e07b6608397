//! What somebody configured about a login, checked.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use url::{Host, Url};

use crate::Secret;
use crate::store::is_name;

/// How many letters the name of a provider has at most.
pub const MAX_NAME_CHARS: usize = 40;

/// How long a login may take in all, unless it is said otherwise: 15 minutes.
pub const DEFAULT_LOGIN_WAIT: Duration = Duration::from_secs(15 * 60);

/// The path of the callback, unless it is said otherwise.
pub const DEFAULT_REDIRECT_PATH: &str = "/callback";

/// The path beside the callback that cancels a login.
pub const CANCEL_PATH: &str = "/cancel";

/// A provider that one can log in to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginProvider {
    pub(crate) name: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<Secret>,
    /// Why nothing can be asked of it, if its client secret should be there and is not.
    pub(crate) lacks: Option<String>,
    pub(crate) authorize_url: Option<Url>,
    pub(crate) token_url: Url,
    pub(crate) revoke_url: Option<Url>,
    pub(crate) device: Option<DeviceEndpoints>,
    pub(crate) scopes: Vec<String>,
    pub(crate) redirect: Redirect,
    pub(crate) authorize_params: Vec<(String, String)>,
    pub(crate) account_claim: Vec<String>,
    pub(crate) login_wait: Duration,
}

impl LoginProvider {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether one can log in with a browser on this machine.
    pub fn has_browser(&self) -> bool {
        self.authorize_url.is_some()
    }

    /// Whether one can log in with a code, on any device.
    pub fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// The same, with the secret by which the provider knows this client.
    pub fn with_client_secret(mut self, secret: Secret) -> Self {
        self.client_secret = Some(secret);
        self
    }

    /// The same, without the secret that it needs. Whoever wants something of it is told `what` to do.
    pub fn without_client_secret(mut self, what: impl Into<String>) -> Self {
        self.lacks = Some(what.into());
        self
    }
}

/// How one logs in with a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEndpoints {
    /// Where a code is asked for.
    pub(crate) url: Url,
    /// Where it is asked whether the code was entered.
    pub(crate) poll_url: Url,
    /// How it goes on from there.
    pub(crate) exchange: DeviceExchange,
}

/// What a provider answers once the code was entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceExchange {
    /// The tokens: RFC 8628.
    Tokens,
    /// An authorization code and its verifier, which are exchanged for the tokens; requests are JSON.
    Code {
        /// Where people enter the code, since the provider does not say.
        verification_url: Url,
        /// The redirect address that the exchange must name.
        redirect_url: Url,
    },
}

/// Where a browser is sent when the user has agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) host: String,
    /// `None` is any free port.
    pub(crate) port: Option<u16>,
    pub(crate) path: String,
}

/// A provider as it is written down. Empty texts and lists are as good as none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderDraft {
    /// By what the provider knows this client.
    pub client_id: String,
    /// Where a browser is sent to.
    pub authorize_url: String,
    /// Where codes and refresh tokens are exchanged.
    pub token_url: String,
    /// Where tokens are revoked.
    pub revoke_url: String,
    /// Where a device code is asked for.
    pub device_url: String,
    /// Whether entering the code yields an authorization code and not the tokens.
    pub device_yields_code: bool,
    /// Where it is asked whether the code was entered; the token URL if it is empty.
    pub device_token_url: String,
    /// Where people enter the code, if it yields an authorization code.
    pub device_verification_url: String,
    /// The redirect address of the exchange, if it yields an authorization code.
    pub device_redirect_url: String,
    /// What is asked for.
    pub scopes: Vec<String>,
    /// `127.0.0.1` or `localhost`, as the provider knows the callback; the former if it is empty.
    pub redirect_host: String,
    /// The port of the callback; any free one if it is 0 or taken.
    pub redirect_port: u16,
    /// The path of the callback; [`DEFAULT_REDIRECT_PATH`] if it is empty.
    pub redirect_path: String,
    /// Added to the address that a browser is sent to.
    pub authorize_params: Vec<(String, String)>,
    /// Where in the ID token the account is named; `sub` if it is empty.
    pub account_claim: Vec<String>,
    /// How long a login may take in all; [`DEFAULT_LOGIN_WAIT`] if there is none.
    pub login_wait: Option<Duration>,
}

/// What is wrong with a [`ProviderDraft`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderConfigError {
    /// Which member, if it is one of them.
    pub member: Option<&'static str>,
    /// What is wrong with it, and what would be right.
    pub what: String,
}

impl fmt::Display for ProviderConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.member {
            Some(member) => write!(f, "{member} {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for ProviderConfigError {}

impl ProviderDraft {
    /// The provider of that name.
    pub fn check(self, name: &str) -> Result<LoginProvider, ProviderConfigError> {
        if !is_name(name) {
            let what =
                format!("has a name that is none: use up to {MAX_NAME_CHARS} letters, digits, - and _");
            return Err(ProviderConfigError { member: None, what });
        }
        let path = Some(self.redirect_path.as_str()).filter(|path| !path.is_empty());
        let path = path.unwrap_or(DEFAULT_REDIRECT_PATH).to_owned();
        if !path.starts_with('/') || path == CANCEL_PATH || path.contains(['?', '#', ' ']) {
            return Err(flaw("redirect_path", "must be a path such as \"/callback\""));
        }
        let host = if self.redirect_host.is_empty() { "127.0.0.1" } else { &self.redirect_host };
        if !["127.0.0.1", "localhost"].contains(&host) {
            return Err(flaw("redirect_host", "must be \"127.0.0.1\" or \"localhost\""));
        }
        let token_url =
            endpoint("token_url", &self.token_url)?.ok_or_else(|| flaw("token_url", "is needed"))?;
        let device = self.device(&token_url)?;
        let authorize_url = endpoint("authorize_url", &self.authorize_url)?;
        if authorize_url.is_none() && device.is_none() {
            return Err(flaw("authorize_url", "is needed, or device_url, or both"));
        }
        if self.client_id.is_empty() {
            return Err(flaw("client_id", "is needed: the provider gives one to those who register"));
        }
        Ok(LoginProvider {
            name: name.to_owned(),
            client_secret: None,
            lacks: None,
            authorize_url,
            token_url,
            revoke_url: endpoint("revoke_url", &self.revoke_url)?,
            device,
            redirect: Redirect {
                host: host.to_owned(),
                port: Some(self.redirect_port).filter(|port| *port > 0),
                path,
            },
            client_id: self.client_id,
            scopes: self.scopes,
            authorize_params: self.authorize_params,
            account_claim: self.account_claim,
            login_wait: self.login_wait.unwrap_or(DEFAULT_LOGIN_WAIT),
        })
    }

    fn device(&self, token_url: &Url) -> Result<Option<DeviceEndpoints>, ProviderConfigError> {
        let poll_url = endpoint("device_token_url", &self.device_token_url)?;
        let verification_url = endpoint("device_verification_url", &self.device_verification_url)?;
        let redirect_url = endpoint("device_redirect_url", &self.device_redirect_url)?;
        let needed = |member| move || flaw(member, "is needed for this device_flow");
        let Some(url) = endpoint("device_url", &self.device_url)? else { return Ok(None) };
        let exchange = if self.device_yields_code {
            if poll_url.is_none() {
                return Err(needed("device_token_url")());
            }
            DeviceExchange::Code {
                verification_url: verification_url.ok_or_else(needed("device_verification_url"))?,
                redirect_url: redirect_url.ok_or_else(needed("device_redirect_url"))?,
            }
        } else {
            DeviceExchange::Tokens
        };
        Ok(Some(DeviceEndpoints { url, poll_url: poll_url.unwrap_or_else(|| token_url.clone()), exchange }))
    }
}

/// An address that secrets may be sent to, if there is one.
fn endpoint(member: &'static str, text: &str) -> Result<Option<Url>, ProviderConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = Url::parse(text).map_err(|error| flaw(member, &format!("is no address: {error}")))?;
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
    if !is_safe {
        return Err(flaw(member, "must begin with https://; http:// is for this machine only"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(flaw(member, "must not hold a user, a password or a #"));
    }
    Ok(Some(url))
}

/// Whether an address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

fn flaw(member: &'static str, what: &str) -> ProviderConfigError {
    ProviderConfigError { member: Some(member), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> ProviderDraft {
        ProviderDraft {
            client_id: "us".to_owned(),
            authorize_url: "https://example.org/auth".to_owned(),
            token_url: "https://example.org/token".to_owned(),
            ..ProviderDraft::default()
        }
    }

    fn refused(change: impl FnOnce(&mut ProviderDraft)) -> String {
        let mut draft = draft();
        change(&mut draft);
        draft.check("x").unwrap_err().to_string()
    }

    #[test]
    fn the_least_that_is_needed_is_enough() {
        let provider = draft().check("x").unwrap();
        assert_eq!(
            (provider.redirect.host.as_str(), provider.redirect.path.as_str()),
            ("127.0.0.1", "/callback")
        );
        assert_eq!((provider.redirect.port, provider.login_wait), (None, DEFAULT_LOGIN_WAIT));
        assert!(provider.has_browser() && !provider.has_device());
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(refused(|draft| draft.client_id.clear()).starts_with("client_id is needed"));
        assert!(refused(|draft| draft.token_url.clear()).starts_with("token_url is needed"));
        assert!(
            refused(|draft| draft.authorize_url.clear())
                .starts_with("authorize_url is needed, or device_url")
        );
        let variant = |draft: &mut ProviderDraft| {
            draft.device_url = "https://example.org/device".to_owned();
            draft.device_yields_code = true;
        };
        assert!(refused(variant).starts_with("device_token_url is needed"));
        assert!(draft().check("../x").unwrap_err().to_string().starts_with("has a name that is none"));
    }

    #[test]
    fn secrets_go_nowhere_in_the_clear() {
        for bad in [
            "http://example.org/token",
            "ftp://127.0.0.1/",
            "https://u:p@example.org/",
            "nonsense",
            "https://a/#b",
        ] {
            let said = refused(|draft| draft.token_url = bad.to_owned());
            assert!(said.starts_with("token_url "), "{bad}: {said}");
        }
        for good in ["http://127.0.0.1:1/token", "http://localhost/token", "http://[::1]/token"] {
            let draft = ProviderDraft { token_url: good.to_owned(), ..draft() };
            assert!(draft.check("x").is_ok(), "{good}");
        }
    }

    #[test]
    fn the_callback_is_on_this_machine_and_has_a_path() {
        assert!(refused(|draft| draft.redirect_host = "0.0.0.0".to_owned()).starts_with("redirect_host"));
        for bad in ["callback", "/cancel", "/a?b", "/a b"] {
            assert!(
                refused(|draft| draft.redirect_path = bad.to_owned()).starts_with("redirect_path"),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_standard_device_login_polls_at_the_token_url() {
        let draft = ProviderDraft { device_url: "https://example.org/device".to_owned(), ..draft() };
        let provider = draft.check("x").unwrap();
        assert_eq!(provider.device.as_ref().unwrap().poll_url, provider.token_url);
    }
}
