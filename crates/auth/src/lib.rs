//! Logins by OAuth 2, and the secrets that come of them.
//!
//! [`LoginManager`] knows the providers that are configured, logs in to them ([`PendingLogin`]: a browser and a
//! callback on this machine, or a device code), keeps the tokens in a [`SecretStore`] and renews
//! them. [`Redactor`] takes live secrets out of any text. `docs/auth.md` is the page for users.
//!
//! Deliberately absent: any provider (each endpoint and client id is somebody's configuration), the
//! opening of browsers, the reading of settings and variables, and what a token is used for.

mod account;
mod callback;
mod error;
mod flow;
mod http;
mod logins;
mod logout;
mod provider;
mod record;
mod redact;
mod refresh;
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
pub use logins::{LoginDeps, LoginManager, LoginOutcome, LoginState, LoginStatus, LogoutOutcome};
pub use provider::{
    CANCEL_PATH, DEFAULT_LOGIN_WAIT, DEFAULT_REDIRECT_PATH, DeviceEndpoints, DeviceExchange, LoginProvider,
    MAX_NAME_CHARS, ProviderConfigError, ProviderDraft,
};
pub use redact::{MAX_FORMS, MAX_INVISIBLE_BYTES, MAX_REDACTED, MIN_REDACTED_BYTES, REDACTED, Redactor};
pub use refresh::REFRESH_MARGIN;
pub use secret::Secret;
pub use store::{
    KEYRING_RETRY_WAIT, KEYRING_WAIT, LOCK_WAIT, SECRET_BYTES, SecretName, SecretStore, SecretStoreError,
    UNLOCK_WAIT,
};
