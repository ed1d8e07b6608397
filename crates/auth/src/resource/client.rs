//! What parlor knows of the authorization server of one server, and who parlor is there. Stored with the tokens.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{LoginError, LoginProvider, ProviderDraft, Secret};

/// How parlor proves to a token endpoint who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TokenAuth {
    /// It only says so.
    #[serde(rename = "none")]
    None,
    /// With its secret in a header.
    #[serde(rename = "client_secret_basic")]
    Basic,
    /// With its secret in the body.
    #[serde(rename = "client_secret_post")]
    Post,
}

impl TokenAuth {
    /// The method of this name, if parlor knows it.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "client_secret_basic" => Some(Self::Basic),
            "client_secret_post" => Some(Self::Post),
            _ => None,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
        }
    }
}

/// Parlor as the client of the authorization server of one server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiscoveredClient {
    /// The configured address of the server.
    pub(crate) server_url: String,
    /// What tokens are for, in the server's own words.
    pub(crate) resource: String,
    pub(crate) issuer: String,
    /// Whether the authorization server promises to name itself in its answer.
    pub(crate) names_issuer: bool,
    pub(crate) authorize_url: String,
    pub(crate) token_url: String,
    pub(crate) client_id: String,
    /// The secret that the registration gave, or the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_secret: Option<Zeroizing<String>>,
    pub(crate) token_auth: TokenAuth,
    pub(crate) scopes: Vec<String>,
    /// The port of the callback that was registered.
    pub(crate) redirect_port: u16,
}

impl std::fmt::Debug for DiscoveredClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiscoveredClient").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl DiscoveredClient {
    /// The provider of a login to the server `name`.
    pub(crate) fn provider(&self, name: &str) -> Result<LoginProvider, LoginError> {
        let draft = ProviderDraft {
            client_id: self.client_id.clone(),
            authorize_url: self.authorize_url.clone(),
            token_url: self.token_url.clone(),
            scopes: self.scopes.clone(),
            redirect_port: self.redirect_port,
            authorize_params: vec![("resource".to_owned(), self.resource.clone())],
            ..ProviderDraft::default()
        };
        let invalid = |error| LoginError::Local(format!("the authorization server cannot be used: {error}"));
        let provider = draft.check(name).map_err(invalid)?;
        let client_secret = self.client_secret.as_ref().filter(|_| self.token_auth != TokenAuth::None);
        let client_secret = client_secret.map(|secret| Secret::new(secret.as_str()));
        Ok(LoginProvider { client_secret, discovered: Some(self.clone()), ..provider })
    }
}
