//! The login to a protected resource, such as an MCP server: parlor finds out from the server how to log in.
//!
//! The server names its authorization server (RFC 9728), that one describes itself (RFC 8414 or OpenID Connect Discovery),
//! and parlor registers there (RFC 7591) unless a client id is configured. Then it is a login with a browser like any other,
//! with `resource` (RFC 8707) in its requests and `iss` (RFC 9207) in the answer. What was found is stored with the tokens,
//! so that tokens of one authorization server never reach another one.

mod challenge;
mod client;
mod discovery;
mod metadata;
mod registration;

use std::sync::{Arc, Mutex, PoisonError};

use parlor_vocab::Clock;

pub use challenge::Challenge;
pub(crate) use client::{DiscoveredClient, TokenAuth};
pub use discovery::DISCOVERY_WAIT;
pub use metadata::MAX_SCOPE_BYTES;

use crate::http::Http;
use crate::record::Login;
use crate::{
    AccessError, AdmitsPeer, LoginDeps, LoginError, LoginFlow, LoginManager, LoginPreference, LoginRequest,
    PendingLogin, Redactor, Secret, SecretName, SecretStore, SecretStoreError,
};

/// A server that may want a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceServer {
    /// The name under which the login is stored.
    pub name: String,
    /// The address of the server. A login counts for this address only.
    pub url: String,
    /// Headers that every request to the server has. They may be secrets.
    pub headers: Vec<(String, Secret)>,
    /// The client id, if the user has one. Without it, parlor registers itself.
    pub client_id: Option<String>,
    /// The secret of that client id, if it has one.
    pub client_secret: Option<Secret>,
    /// Scopes to ask for beside those that the server names.
    pub scopes: Vec<String>,
}

/// What logins to servers need.
#[derive(Clone)]
pub struct ResourceDeps {
    /// Stores the tokens.
    pub store: SecretStore,
    /// The clock that decides whether a token has expired.
    pub clock: Arc<dyn Clock>,
    /// Learns every secret that a login brings.
    pub redactor: Redactor,
    /// Decides who may deliver the code to the callback of a login.
    pub admits_peer: AdmitsPeer,
}

/// The login to one server.
pub struct ResourceLogin {
    server: ResourceServer,
    deps: ResourceDeps,
    http: Http,
    /// The manager of the login that was stored when a token was last needed.
    manager: Mutex<Option<(DiscoveredClient, LoginManager)>>,
}

impl ResourceLogin {
    /// The login to `server`, whose name must be valid. Reads nothing yet.
    pub fn new(server: ResourceServer, deps: ResourceDeps) -> Self {
        server.client_secret.iter().for_each(|secret| deps.redactor.learn(secret));
        Self { server, deps, http: Http::new(), manager: Mutex::new(None) }
    }

    /// Finds out how to log in, and starts it. The previous login stays until the new one is completed.
    pub async fn start(&self) -> Result<PendingLogin, LoginError> {
        let found = discovery::discover(&self.http, &self.server, &self.deps.redactor);
        let found = tokio::time::timeout(DISCOVERY_WAIT, found).await;
        let client = found.map_err(|_| LoginError::TimedOut(DISCOVERY_WAIT))??;
        let manager = self.manager(&client)?;
        let preference = LoginPreference::Only(LoginFlow::Browser);
        manager.start(&self.server.name, LoginRequest { preference, ..LoginRequest::default() })
    }

    /// A valid access token, or `None` if nobody has logged in to this address.
    pub async fn access_token(&self) -> Result<Option<Secret>, AccessError> {
        match self.stored_manager().await? {
            Some(manager) => manager.access_token(&self.server.name).await.map(Some),
            None => Ok(None),
        }
    }

    /// Another access token, after the server refused `refused`. `None` if nobody has logged in to this address.
    pub async fn replacement_token(&self, refused: &Secret) -> Result<Option<Secret>, AccessError> {
        match self.stored_manager().await? {
            Some(manager) => manager.replacement_token(&self.server.name, refused).await.map(Some),
            None => Ok(None),
        }
    }

    /// Deletes the stored login. Returns whether there was one.
    pub async fn logout(&self) -> Result<bool, AccessError> {
        let name = self.secret_name()?;
        let removed = self.with_store(move |store| store.remove(&name)).await;
        removed.map_err(|error| AccessError::Local(error.to_string()))
    }

    fn secret_name(&self) -> Result<SecretName, AccessError> {
        let invalid =
            || AccessError::Local(format!("{:?} is not a valid name of a server", self.server.name));
        SecretName::server(&self.server.name).ok_or_else(invalid)
    }

    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SecretStore) -> Result<T, SecretStoreError> + Send + 'static,
    ) -> Result<T, SecretStoreError> {
        let store = self.deps.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.expect("the store does not panic, and the runtime does not cancel blocking tasks")
    }

    /// The manager of the stored login, if that is one to this address.
    async fn stored_manager(&self) -> Result<Option<LoginManager>, AccessError> {
        let name = self.secret_name()?;
        let stored = self.with_store(move |store| store.read(&name)).await;
        let stored = stored.map_err(|error| AccessError::Local(error.to_string()))?;
        let client = stored.and_then(|text| Login::parse(&text)).and_then(|login| login.client);
        let Some(client) = client.filter(|client| client.server_url == self.server.url) else {
            return Ok(None);
        };
        self.manager(&client).map(Some).map_err(|error| AccessError::Local(error.to_string()))
    }

    fn manager(&self, client: &DiscoveredClient) -> Result<LoginManager, LoginError> {
        let mut last = self.manager.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, manager)) = &*last
            && of == client
        {
            return Ok(manager.clone());
        }
        let provider = client.provider(&self.server.name)?;
        let ResourceDeps { store, clock, redactor, admits_peer } = self.deps.clone();
        let manager =
            LoginManager::new(LoginDeps { providers: vec![provider], store, clock, redactor, admits_peer });
        *last = Some((client.clone(), manager.clone()));
        Ok(manager)
    }
}
