//! OAuth 2 logins, the storage of secrets, and their redaction.
//!
//! [`LoginManager`] logs in to the configured providers ([`PendingLogin`]: with a browser and a callback on this machine,
//! or with a device code), stores the tokens in a [`SecretStore`] and renews them. [`ResourceLogin`] does the same for an MCP
//! server, which tells itself how to log in. [`Redactor`] removes the known secrets
//! from any text. `docs/auth.md` is the page for users.
//!
//! Deliberately absent: built-in providers (endpoints and client ids come from the configuration), opening a browser,
//! reading settings and environment variables, and the use of the tokens.

mod account;
mod callback;
mod error;
mod flow;
mod http;
mod login_manager;
mod logout;
mod provider;
mod record;
mod redact;
mod refresh;
mod resource;
mod secret;
mod store;
#[cfg(test)]
mod tests;
mod time;
mod tokens;

pub use account::Account;
pub use callback::{
    AdmitsPeer, CALLBACK_EVICT_AFTER, CALLBACK_HEADER_BYTES, CALLBACK_PORT_TRIES, CALLBACK_READ_WAIT,
    MAX_CALLBACK_CONNECTIONS, MAX_CALLBACK_REFUSED,
};
pub use error::{AccessError, LoginError, MAX_REASON_CHARS};
pub use flow::device::{DEFAULT_INTERVAL, DEFAULT_LIFETIME, MAX_INTERVAL, SLOW_DOWN_STEP};
pub use flow::{
    DeviceCode, LoginFlow, LoginPreference, LoginProgress, LoginRequest, MAX_FLOWS, PROGRESS_QUEUE,
    PendingLogin,
};
pub use http::{CONNECT_WAIT, HTTP_WAIT, RESPONSE_BYTES};
pub use login_manager::{LoginDeps, LoginManager, LoginOutcome, LoginState, LoginStatus, LogoutOutcome};
pub use provider::{
    CANCEL_PATH, DEFAULT_LOGIN_WAIT, DEFAULT_REDIRECT_PATH, DeviceEndpoints, DeviceExchange, LoginProvider,
    MAX_NAME_CHARS, ProviderConfigError, ProviderDraft,
};
pub use redact::{
    MAX_FORMS, MAX_INVISIBLE_BYTES, MAX_LOGIN_SECRETS, MAX_REDACTED, MIN_REDACTED_BYTES, REDACTED, Redactor,
    WORK_PER_BYTE, WORK_PER_TEXT,
};
pub use refresh::{MIN_RENEWAL_INTERVAL, REFRESH_MARGIN};
pub use resource::{Challenge, DISCOVERY_WAIT, MAX_SCOPE_BYTES, ResourceDeps, ResourceLogin, ResourceServer};
pub use secret::Secret;
pub use store::{
    KEYRING_RETRY_WAIT, KEYRING_WAIT, LOCK_WAIT, SECRET_BYTES, SecretName, SecretStore, SecretStoreError,
    UNLOCK_WAIT,
};
pub use tokens::MAX_TOKEN_BYTES;
