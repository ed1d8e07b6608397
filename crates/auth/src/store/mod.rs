//! The secret store: the system's keyring if there is one, else files that only the user can read.
//!
//! Each secret is stored in one of the two. For a secret in the keyring, the folder contains a marker file, so that the
//! keyring is asked only for what it has. If a file exists as well, the file is newer: it was written when the keyring
//! failed.
//!
//! Deliberately absent: the content of secrets, and encryption of the files. A program that can read the files of the user
//! could read the decryption key as well.

mod error;
mod files;
mod keyring;
mod lock;
mod secret_service;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

pub use error::SecretStoreError;
pub use files::SECRET_BYTES;
pub use keyring::{KEYRING_RETRY_WAIT, KEYRING_WAIT, UNLOCK_WAIT};
pub use lock::LOCK_WAIT;

use crate::{MAX_NAME_CHARS, Secret};
use files::Files;
use keyring::{Keyring, KeyringBackend};
pub(crate) use lock::{LOCK_STEP, SecretLock};
use secret_service::SecretServiceBackend;

/// The name of the folder with the files, inside of the state folder.
const FOLDER: &str = "secrets";

/// The name of a secret, which is also a valid file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretName(String);

impl SecretName {
    /// The name for the login to a provider. `None` if the provider's name is invalid.
    pub fn login(provider: &str) -> Option<Self> {
        Self::new("login", provider)
    }

    /// The name for an API key, such as that of a model provider. `None` if `name` is invalid.
    pub fn key(name: &str) -> Option<Self> {
        Self::new("key", name)
    }

    /// The name for the login to an MCP server. `None` if the server's name is invalid.
    pub fn server(name: &str) -> Option<Self> {
        Self::new("mcp", name)
    }

    /// Whether this is the name of a login, to a provider or to an MCP server.
    pub(crate) fn is_login(&self) -> bool {
        self.login_name().is_some()
    }

    /// The provider or the MCP server, if this is the name of a login.
    pub(crate) fn login_name(&self) -> Option<&str> {
        self.provider().or_else(|| self.0.strip_prefix("mcp-"))
    }

    /// The provider, if this is the name of a login.
    pub fn provider(&self) -> Option<&str> {
        self.0.strip_prefix("login-")
    }

    /// The service of an API key, if this is the name of one.
    pub fn service(&self) -> Option<&str> {
        self.0.strip_prefix("key-")
    }

    fn new(kind: &str, name: &str) -> Option<Self> {
        is_name(name).then(|| Self(format!("{kind}-{name}")))
    }

    /// Parses the text of [`as_str`](Self::as_str).
    fn parse(text: &str) -> Option<Self> {
        text.split_once('-').and_then(|(kind, name)| match kind {
            "login" => Self::login(name),
            "key" => Self::key(name),
            "mcp" => Self::server(name),
            _ => None,
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether `name` is a valid provider name: letters, digits, `-` and `_`, starting with a letter or digit.
pub(crate) fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name.bytes().all(is_part)
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

/// The secrets of one state folder. Cheap to clone; several processes may use one folder.
///
/// The methods block on the disk and on the keyring.
#[derive(Clone, Debug)]
pub struct SecretStore {
    files: Arc<Files>,
    keyring: Arc<Keyring>,
    /// Why the last write went to a file instead of the keyring, if it did.
    keyring_error: Arc<Mutex<Option<String>>>,
}

impl SecretStore {
    /// The store of the state folder `home`, without a keyring. Creates nothing: the first secret creates the folder.
    pub fn open(home: &Path) -> Result<Self, SecretStoreError> {
        Self::open_with(home, Err("it is not used here".to_owned()))
    }

    /// The same with the keyring on the user's session bus. `availability` is the reason if there is none. No request
    /// is sent before the keyring is needed.
    pub fn with_keyring(home: &Path, availability: Result<(), String>) -> Result<Self, SecretStoreError> {
        Self::open_with(home, availability.map(|()| Arc::new(SecretServiceBackend) as _))
    }

    fn open_with(
        home: &Path,
        keyring: Result<Arc<dyn KeyringBackend>, String>,
    ) -> Result<Self, SecretStoreError> {
        let home = std::path::absolute(home).map_err(SecretStoreError::io("find", home))?;
        Ok(Self {
            keyring: Arc::new(Keyring::new(&home, keyring)),
            files: Arc::new(Files::new(home.clone(), home.join(FOLDER))),
            keyring_error: Arc::default(),
        })
    }

    /// Reads a secret. `None` if none is stored under this name.
    pub fn read(&self, name: &SecretName) -> Result<Option<Secret>, SecretStoreError> {
        match self.files.read(name)? {
            Some(secret) => Ok(Some(secret)),
            None if self.files.is_marked(name) => self.keyring.read(name).map_err(keyring_failed(name)),
            None => Ok(None),
        }
    }

    /// Stores a secret and replaces the previous one. Returns when it is durable.
    pub fn write(&self, name: &SecretName, secret: &Secret) -> Result<(), SecretStoreError> {
        if secret.expose().len() > SECRET_BYTES {
            return Err(SecretStoreError::TooLarge);
        }
        let in_keyring =
            if self.keyring.is_available() { Some(self.write_to_keyring(name, secret)?) } else { None };
        match in_keyring {
            Some(Ok(())) => drop(self.files.remove(name)?),
            Some(Err(_)) | None => self.files.write(name, secret)?,
        }
        *self.keyring_error.lock().unwrap_or_else(PoisonError::into_inner) = in_keyring.and_then(Result::err);
        Ok(())
    }

    /// The inner result is the keyring's; the outer one is that of the marker file.
    fn write_to_keyring(
        &self,
        name: &SecretName,
        secret: &Secret,
    ) -> Result<Result<(), String>, SecretStoreError> {
        let was_marked = self.files.is_marked(name);
        // The marker comes first: without it, a secret in the keyring could never be removed.
        self.files.mark(name)?;
        let written = self.keyring.write(name, secret);
        if written.is_err() && !was_marked {
            self.files.unmark(name)?;
        }
        Ok(written)
    }

    /// Deletes a secret. Returns whether it existed.
    pub fn remove(&self, name: &SecretName) -> Result<bool, SecretStoreError> {
        let in_files = self.files.remove(name)?;
        if !self.files.is_marked(name) {
            return Ok(in_files);
        }
        let in_keyring = self.keyring.remove(name).map_err(keyring_failed(name))?;
        self.files.unmark(name)?;
        Ok(in_keyring || in_files)
    }

    /// Whether a secret with this name is stored. Does not ask the keyring.
    pub fn has(&self, name: &SecretName) -> bool {
        // An unreadable file counts as stored. `read` reports what is wrong with it.
        self.files.is_marked(name) || self.files.read(name).map_or(true, |secret| secret.is_some())
    }

    /// The names of all stored secrets, sorted.
    pub fn names(&self) -> Result<Vec<SecretName>, SecretStoreError> {
        let mut names = self.files.names()?;
        names.extend(self.files.marked()?);
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// The names of the secrets in files, sorted.
    pub(crate) fn names_in_files(&self) -> Result<Vec<SecretName>, SecretStoreError> {
        self.files.names()
    }

    /// Where a secret with this name is stored, or would be: a path, or the keyring. For people.
    pub fn location(&self, name: &SecretName) -> String {
        let file = self.files.path_of(name);
        let is_in_keyring = self.files.is_marked(name) || self.keyring.is_available();
        if is_in_keyring && !file.exists() && self.keyring_error().is_none() {
            return "the system's keyring".to_owned();
        }
        file.display().to_string()
    }

    /// Why the last written secret is in a file although a keyring seems to be available.
    pub fn keyring_error(&self) -> Option<String> {
        self.keyring_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Locks the name across all processes. `None` if it is locked already.
    pub(crate) fn try_lock(&self, name: &SecretName) -> Result<Option<SecretLock>, SecretStoreError> {
        self.files.try_lock(name)
    }
}

/// For `map_err`: the keyring has the secret and failed.
fn keyring_failed(name: &SecretName) -> impl FnOnce(String) -> SecretStoreError {
    let name = name.as_str().to_owned();
    move |reason| SecretStoreError::Keyring { name, reason }
}

#[cfg(test)]
mod tests {
    use super::keyring::tests::FakeKeyring;
    use super::*;

    #[test]
    fn names_are_valid_file_names() {
        assert_eq!(SecretName::login("open-ai_2").unwrap().as_str(), "login-open-ai_2");
        assert_eq!(SecretName::key("exa").unwrap().provider(), None);
        assert_eq!(SecretName::key("exa").unwrap().service(), Some("exa"));
        assert!(SecretName::login(&"x".repeat(MAX_NAME_CHARS)).is_some());
        let long = "x".repeat(MAX_NAME_CHARS + 1);
        for bad in ["", ".", "..", "../x", "a/b", "a b", "-a", "_a", "é", "a\0", "a.lock", &long] {
            assert_eq!(SecretName::login(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_secret_is_written_read_and_removed() {
        let home = tempfile::tempdir().unwrap();
        let store = SecretStore::open(home.path()).unwrap();
        let name = SecretName::key("test").unwrap();
        assert_eq!(store.read(&name).unwrap(), None);
        for text in ["first", "second"] {
            store.write(&name, &Secret::new(text)).unwrap();
            assert_eq!(store.read(&name).unwrap(), Some(Secret::new(text)));
        }
        assert!(store.location(&name).ends_with("secrets/key-test"));
        assert!(matches!(
            store.write(&name, &Secret::new("x".repeat(SECRET_BYTES + 1))),
            Err(SecretStoreError::TooLarge)
        ));
        let another = tempfile::tempdir().unwrap();
        assert_eq!(
            SecretStore::open(another.path()).unwrap().read(&name).unwrap(),
            None,
            "each state folder has its own secrets"
        );
        assert!(store.remove(&name).unwrap());
        assert!(!store.remove(&name).unwrap());
        assert_eq!(store.read(&name).unwrap(), None);
    }

    fn with_fake(home: &Path) -> (SecretStore, Arc<FakeKeyring>) {
        let fake = Arc::new(FakeKeyring::default());
        (SecretStore::open_with(home, Ok(Arc::clone(&fake) as _)).unwrap(), fake)
    }

    #[test]
    fn a_write_moves_a_secret_from_its_file_to_the_keyring() {
        let home = tempfile::tempdir().unwrap();
        let (name, file) = (SecretName::key("test").unwrap(), home.path().join("secrets/key-test"));
        SecretStore::open(home.path()).unwrap().write(&name, &Secret::new("before")).unwrap();
        let (store, fake) = with_fake(home.path());
        assert_eq!(store.read(&name).unwrap(), Some(Secret::new("before")), "the file is still read");
        store.write(&name, &Secret::new("after")).unwrap();
        assert!(!file.exists() && store.has(&name));
        assert_eq!(fake.secrets.lock().unwrap().get("key-test"), Some(&Secret::new("after")));
        assert_eq!((store.location(&name).as_str(), store.keyring_error()), ("the system's keyring", None));
        assert_eq!(store.names().unwrap(), std::slice::from_ref(&name));
        assert!(store.names_in_files().unwrap().is_empty());
        assert_eq!(store.read(&name).unwrap(), Some(Secret::new("after")));
        assert!(store.remove(&name).unwrap() && !store.has(&name));
        assert!(fake.secrets.lock().unwrap().is_empty());
        assert_eq!(store.read(&name).unwrap(), None);
    }

    #[test]
    fn a_write_falls_back_to_a_file_if_the_keyring_fails() {
        let home = tempfile::tempdir().unwrap();
        let name = SecretName::key("test").unwrap();
        let (store, fake) = with_fake(home.path());
        store.write(&name, &Secret::new("first")).unwrap();
        *fake.error.lock().unwrap() = Some("it is locked".to_owned());
        let error = store.read(&name).unwrap_err().to_string();
        assert!(error.contains("it is locked") && error.contains("unlock"), "{error}");
        store.write(&name, &Secret::new("second")).unwrap();
        assert_eq!(store.keyring_error().as_deref(), Some("it is locked"));
        assert!(store.location(&name).ends_with("secrets/key-test"));
        assert_eq!(store.read(&name).unwrap(), Some(Secret::new("second")));
        assert!(store.remove(&name).is_err(), "the secret is still in the keyring");
        *fake.error.lock().unwrap() = None;
        assert!(store.remove(&name).unwrap());
        assert!(fake.secrets.lock().unwrap().is_empty());
    }

    #[test]
    fn a_keyring_that_never_worked_is_not_asked_to_remove() {
        let home = tempfile::tempdir().unwrap();
        let (store, fake) = with_fake(home.path());
        *fake.error.lock().unwrap() = Some("there is none".to_owned());
        let name = SecretName::key("test").unwrap();
        store.write(&name, &Secret::new("s3cret")).unwrap();
        assert_eq!(store.keyring_error().as_deref(), Some("there is none"));
        assert!(store.remove(&name).unwrap() && !store.has(&name));
    }

    #[test]
    fn a_keyring_is_not_asked_for_unmarked_secrets() {
        let home = tempfile::tempdir().unwrap();
        let (store, fake) = with_fake(home.path());
        *fake.error.lock().unwrap() = Some("it was asked".to_owned());
        let name = SecretName::key("test").unwrap();
        assert_eq!(store.read(&name).unwrap(), None);
        assert!(!store.has(&name) && !store.remove(&name).unwrap());
    }

    #[test]
    fn only_valid_names_are_parsed() {
        for name in [SecretName::login("a-b").unwrap(), SecretName::key("c").unwrap()] {
            assert_eq!(SecretName::parse(name.as_str()), Some(name));
        }
        for foreign in ["login", "login-", "other-a", ".login-a.lock", "login-a.tmp"] {
            assert_eq!(SecretName::parse(foreign), None, "{foreign}");
        }
    }
}
