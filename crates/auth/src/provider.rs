//! The checked configuration of a login provider.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use url::{Host, Url};

use crate::resource::DiscoveredClient;
use crate::store::is_name;
use crate::{Secret, SecretName};

/// The longest name of a provider, in characters.
pub const MAX_NAME_CHARS: usize = 40;

/// How long a login may take, unless the configuration sets another time: 15 minutes.
pub const DEFAULT_LOGIN_WAIT: Duration = Duration::from_secs(15 * 60);

/// The path of the callback, unless the configuration sets another one.
pub const DEFAULT_REDIRECT_PATH: &str = "/callback";

/// The path on the callback server that cancels a login.
pub const CANCEL_PATH: &str = "/cancel";

/// A provider to which users can log in. Made by [`ProviderDraft::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginProvider {
    pub(crate) name: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<Secret>,
    /// How to set the client secret, if it is configured and missing. Requests fail with this text.
    pub(crate) missing_secret: Option<String>,
    pub(crate) authorize_url: Option<Url>,
    pub(crate) token_url: Url,
    pub(crate) revoke_url: Option<Url>,
    pub(crate) device: Option<DeviceEndpoints>,
    pub(crate) scopes: Vec<String>,
    pub(crate) redirect: Redirect,
    pub(crate) authorize_params: Vec<(String, String)>,
    pub(crate) account_claim: Vec<String>,
    pub(crate) login_wait: Duration,
    /// What the server of the login said, if it is not configured in `[auth.NAME]`.
    pub(crate) discovered: Option<DiscoveredClient>,
}

impl LoginProvider {
    /// The name from `[auth.NAME]` of the settings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the login in the store.
    pub(crate) fn secret_name(&self) -> SecretName {
        let name = match &self.discovered {
            Some(_) => SecretName::server(&self.name),
            None => SecretName::login(&self.name),
        };
        name.expect("the configuration check allows only valid provider names")
    }

    /// What tokens are for, in requests to the token endpoint.
    pub(crate) fn resource(&self) -> Option<&str> {
        self.discovered.as_ref().map(|client| client.resource.as_str())
    }

    /// Whether the browser flow is configured.
    pub fn has_browser(&self) -> bool {
        self.authorize_url.is_some()
    }

    /// Whether the device flow is configured.
    pub fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// Sets the client secret.
    pub fn with_client_secret(mut self, secret: Secret) -> Self {
        self.client_secret = Some(secret);
        self
    }

    /// Marks the client secret as missing. Requests to the provider fail with the text `fix`.
    pub fn without_client_secret(mut self, fix: impl Into<String>) -> Self {
        self.missing_secret = Some(fix.into());
        self
    }
}

/// The endpoints of the device flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEndpoints {
    /// Issues device codes.
    pub(crate) url: Url,
    /// Is polled until the user has entered the code.
    pub(crate) poll_url: Url,
    /// What the poll returns.
    pub(crate) exchange: DeviceExchange,
}

/// What the poll of a device flow returns after the user has entered the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceExchange {
    /// The tokens (RFC 8628).
    Tokens,
    /// An authorization code and its verifier, which are exchanged for tokens. Requests are JSON.
    Code {
        /// The page for entering the code; the provider does not send it.
        verification_url: Url,
        /// The `redirect_uri` of the exchange.
        redirect_url: Url,
    },
}

/// The redirect target of the browser flow: our callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) host: String,
    /// `None` means any free port.
    pub(crate) port: Option<u16>,
    pub(crate) path: String,
}

/// The unchecked configuration of a provider. Empty texts and lists mean that the value is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderDraft {
    /// The OAuth client id.
    pub client_id: String,
    /// The authorize endpoint, for the browser flow.
    pub authorize_url: String,
    /// The token endpoint.
    pub token_url: String,
    /// The revocation endpoint (RFC 7009).
    pub revoke_url: String,
    /// The endpoint that issues device codes.
    pub device_url: String,
    /// Whether the poll returns an authorization code instead of tokens.
    pub device_yields_code: bool,
    /// The endpoint for polling; the token endpoint if it is empty.
    pub device_token_url: String,
    /// The page for entering the code. Needed with `device_yields_code`.
    pub device_verification_url: String,
    /// The `redirect_uri` of the exchange. Needed with `device_yields_code`.
    pub device_redirect_url: String,
    /// The OAuth scopes.
    pub scopes: Vec<String>,
    /// The host of the callback as registered at the provider: `127.0.0.1` (the default) or `localhost`.
    pub redirect_host: String,
    /// The port of the callback; any free port if it is 0 or in use.
    pub redirect_port: u16,
    /// The path of the callback; [`DEFAULT_REDIRECT_PATH`] if it is empty.
    pub redirect_path: String,
    /// Additional query parameters for the authorize endpoint.
    pub authorize_params: Vec<(String, String)>,
    /// The path of the ID token's claim with the account id; `sub` if it is empty.
    pub account_claim: Vec<String>,
    /// How long a login may take; [`DEFAULT_LOGIN_WAIT`] by default.
    pub login_wait: Option<Duration>,
}

/// What is wrong with a [`ProviderDraft`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderConfigError {
    /// The invalid member; `None` if the name of the provider is invalid.
    pub member: Option<&'static str>,
    /// What is wrong, and which values are valid.
    pub problem: String,
}

impl fmt::Display for ProviderConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.member {
            Some(member) => write!(f, "{member} {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

impl std::error::Error for ProviderConfigError {}

impl ProviderDraft {
    /// Checks the configuration and gives the provider this name.
    pub fn check(self, name: &str) -> Result<LoginProvider, ProviderConfigError> {
        if !is_name(name) {
            let problem = format!("has an invalid name: use up to {MAX_NAME_CHARS} letters, digits, - and _");
            return Err(ProviderConfigError { member: None, problem });
        }
        let path = Some(self.redirect_path.as_str()).filter(|path| !path.is_empty());
        let path = path.unwrap_or(DEFAULT_REDIRECT_PATH).to_owned();
        if !path.starts_with('/') || path == CANCEL_PATH || path.contains(['?', '#', ' ']) {
            return Err(invalid("redirect_path", "must be a path such as \"/callback\""));
        }
        let host = if self.redirect_host.is_empty() { "127.0.0.1" } else { &self.redirect_host };
        if !["127.0.0.1", "localhost"].contains(&host) {
            return Err(invalid("redirect_host", "must be \"127.0.0.1\" or \"localhost\""));
        }
        let token_url =
            endpoint("token_url", &self.token_url)?.ok_or_else(|| invalid("token_url", "is needed"))?;
        let device = self.device(&token_url)?;
        let authorize_url = endpoint("authorize_url", &self.authorize_url)?;
        if authorize_url.is_none() && device.is_none() {
            return Err(invalid("authorize_url", "is needed, or device_url, or both"));
        }
        if self.client_id.is_empty() {
            return Err(invalid("client_id", "is needed: the provider gives one to those who register"));
        }
        Ok(LoginProvider {
            name: name.to_owned(),
            client_secret: None,
            missing_secret: None,
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
            discovered: None,
        })
    }

    fn device(&self, token_url: &Url) -> Result<Option<DeviceEndpoints>, ProviderConfigError> {
        let poll_url = endpoint("device_token_url", &self.device_token_url)?;
        let verification_url = endpoint("device_verification_url", &self.device_verification_url)?;
        let redirect_url = endpoint("device_redirect_url", &self.device_redirect_url)?;
        let needed = |member| move || invalid(member, "is needed for this device_flow");
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

/// Parses a URL to which secrets are sent: https, or http on this machine. `None` if `text` is empty.
fn endpoint(member: &'static str, text: &str) -> Result<Option<Url>, ProviderConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = Url::parse(text).map_err(|error| invalid(member, &format!("is no address: {error}")))?;
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
    if !is_safe {
        return Err(invalid(member, "must begin with https://; http:// is for this machine only"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(invalid(member, "must not hold a user, a password or a #"));
    }
    Ok(Some(url))
}

/// Whether a URL points to this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

fn invalid(member: &'static str, problem: &str) -> ProviderConfigError {
    ProviderConfigError { member: Some(member), problem: problem.to_owned() }
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

    fn error(change: impl FnOnce(&mut ProviderDraft)) -> String {
        let mut draft = draft();
        change(&mut draft);
        draft.check("x").unwrap_err().to_string()
    }

    #[test]
    fn a_minimal_configuration_has_defaults() {
        let provider = draft().check("x").unwrap();
        assert_eq!(
            (provider.redirect.host.as_str(), provider.redirect.path.as_str()),
            ("127.0.0.1", "/callback")
        );
        assert_eq!((provider.redirect.port, provider.login_wait), (None, DEFAULT_LOGIN_WAIT));
        assert!(provider.has_browser() && !provider.has_device());
    }

    #[test]
    fn a_missing_member_is_named() {
        assert!(error(|draft| draft.client_id.clear()).starts_with("client_id is needed"));
        assert!(error(|draft| draft.token_url.clear()).starts_with("token_url is needed"));
        assert!(
            error(|draft| draft.authorize_url.clear()).starts_with("authorize_url is needed, or device_url")
        );
        let yields_code = |draft: &mut ProviderDraft| {
            draft.device_url = "https://example.org/device".to_owned();
            draft.device_yields_code = true;
        };
        assert!(error(yields_code).starts_with("device_token_url is needed"));
        assert!(draft().check("../x").unwrap_err().to_string().starts_with("has an invalid name"));
    }

    #[test]
    fn endpoints_need_https_except_on_loopback() {
        for bad in [
            "http://example.org/token",
            "ftp://127.0.0.1/",
            "https://u:p@example.org/",
            "nonsense",
            "https://a/#b",
        ] {
            let text = error(|draft| draft.token_url = bad.to_owned());
            assert!(text.starts_with("token_url "), "{bad}: {text}");
        }
        for good in ["http://127.0.0.1:1/token", "http://localhost/token", "http://[::1]/token"] {
            let draft = ProviderDraft { token_url: good.to_owned(), ..draft() };
            assert!(draft.check("x").is_ok(), "{good}");
        }
    }

    #[test]
    fn the_callback_needs_a_loopback_host_and_a_path() {
        assert!(error(|draft| draft.redirect_host = "0.0.0.0".to_owned()).starts_with("redirect_host"));
        for bad in ["callback", "/cancel", "/a?b", "/a b"] {
            assert!(
                error(|draft| draft.redirect_path = bad.to_owned()).starts_with("redirect_path"),
                "{bad}"
            );
        }
    }

    #[test]
    fn the_device_flow_polls_the_token_url_by_default() {
        let draft = ProviderDraft { device_url: "https://example.org/device".to_owned(), ..draft() };
        let provider = draft.check("x").unwrap();
        assert_eq!(provider.device.as_ref().unwrap().poll_url, provider.token_url);
    }
}
