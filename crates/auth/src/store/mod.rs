//! Where secrets are kept: in the system's keyring if parlor was built with it and there is one,
//! else in files that nobody else can read.
//!
//! Deliberately absent: what is inside of a secret, and encryption of the files. Whoever can read
//! the files of the user can read the program that would decrypt them.

mod error;
mod files;
#[cfg(feature = "keyring")]
mod keyring;
mod lock;

use std::path::Path;
use std::sync::Arc;

pub use error::StoreError;
pub use files::SECRET_BYTES;
pub use lock::LOCK_WAIT;

use crate::{MAX_NAME_CHARS, Secret};
use files::Files;
pub(crate) use lock::{LOCK_STEP, Lock};

/// The folder inside of the state folder.
const FOLDER: &str = "secrets";

/// What a secret is called: harmless as the name of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretName(String);

impl SecretName {
    /// The login to a provider. `None` if the provider's name is not one.
    pub fn login(provider: &str) -> Option<Self> {
        Self::new("login", provider)
    }

    /// A key that the user was given, such as that of a model provider. `None` if the name is not one.
    pub fn key(name: &str) -> Option<Self> {
        Self::new("key", name)
    }

    /// The provider, if it is the name of a login.
    pub fn provider(&self) -> Option<&str> {
        self.0.strip_prefix("login-")
    }

    fn new(kind: &str, name: &str) -> Option<Self> {
        is_name(name).then(|| Self(format!("{kind}-{name}")))
    }

    /// A name that was given out before.
    fn parse(text: &str) -> Option<Self> {
        text.split_once('-').and_then(|(kind, name)| match kind {
            "login" => Self::login(name),
            "key" => Self::key(name),
            _ => None,
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether providers may be called so: letters, digits, `-` and `_`, beginning with a letter or digit.
pub(crate) fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name.bytes().all(is_part)
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

/// The secrets of one state folder. Cheap to clone; several processes may use one folder.
///
/// Its methods block for as long as a disk or a keyring takes.
#[derive(Clone, Debug)]
pub struct SecretStore {
    files: Arc<Files>,
    #[cfg(feature = "keyring")]
    keyring: Option<Arc<keyring::Keyring>>,
}

impl SecretStore {
    /// The store in the state folder `home`. Makes nothing: there is no folder before the first secret.
    pub fn open(home: &Path) -> Result<Self, StoreError> {
        let home = std::path::absolute(home).map_err(StoreError::io("find", home))?;
        Ok(Self {
            #[cfg(feature = "keyring")]
            keyring: keyring::Keyring::open(&home).map(Arc::new),
            files: Arc::new(Files::new(home.clone(), home.join(FOLDER))),
        })
    }

    /// The secret of that name, if there is one.
    pub fn read(&self, name: &SecretName) -> Result<Option<Secret>, StoreError> {
        #[cfg(feature = "keyring")]
        if let Some(found) = self.keyring.as_ref().map(|keyring| keyring.read(name)).transpose()?.flatten() {
            return Ok(Some(found));
        }
        self.files.read(name)
    }

    /// Keeps a secret, in the place of the one that had its name. Returns when it is durable.
    pub fn write(&self, name: &SecretName, secret: &Secret) -> Result<(), StoreError> {
        if secret.expose().len() > SECRET_BYTES {
            return Err(StoreError::TooLarge);
        }
        #[cfg(feature = "keyring")]
        if let Some(keyring) = &self.keyring {
            keyring.write(name, secret)?;
            // One from the time before there was a keyring would be stale from now on.
            self.files.remove(name)?;
            return Ok(());
        }
        self.files.write(name, secret)
    }

    /// Forgets a secret. Says whether there was one.
    pub fn remove(&self, name: &SecretName) -> Result<bool, StoreError> {
        let in_files = self.files.remove(name)?;
        #[cfg(feature = "keyring")]
        if let Some(keyring) = &self.keyring {
            return Ok(keyring.remove(name)? || in_files);
        }
        Ok(in_files)
    }

    /// The names of the secrets that are kept in files, sorted. A keyring is not searched.
    pub fn names(&self) -> Result<Vec<SecretName>, StoreError> {
        self.files.names()
    }

    /// Where a secret of that name is, or would be: for people.
    pub fn place(&self, name: &SecretName) -> String {
        #[cfg(feature = "keyring")]
        if self.keyring.is_some() && !self.files.path_of(name).exists() {
            return "the system's keyring".to_owned();
        }
        self.files.path_of(name).display().to_string()
    }

    /// Has the name for itself, among all processes, if nobody else has it now.
    pub(crate) fn try_lock(&self, name: &SecretName) -> Result<Option<Lock>, StoreError> {
        self.files.try_lock(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_harmless() {
        assert_eq!(SecretName::login("open-ai_2").unwrap().as_str(), "login-open-ai_2");
        assert_eq!(SecretName::key("exa").unwrap().provider(), None);
        assert!(SecretName::login(&"x".repeat(MAX_NAME_CHARS)).is_some());
        let long = "x".repeat(MAX_NAME_CHARS + 1);
        for bad in ["", ".", "..", "../x", "a/b", "a b", "-a", "_a", "é", "a\0", "a.lock", &long] {
            assert_eq!(SecretName::login(bad), None, "{bad:?}");
        }
    }

    /// With the feature `keyring` on a desktop this is the keyring, else files.
    #[test]
    fn a_secret_is_found_where_it_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let store = SecretStore::open(home.path()).unwrap();
        let name = SecretName::key("test").unwrap();
        assert_eq!(store.read(&name).unwrap(), None);
        for text in ["first", "second"] {
            store.write(&name, &Secret::new(text)).unwrap();
            assert_eq!(store.read(&name).unwrap(), Some(Secret::new(text)));
        }
        assert_eq!(store.place(&name).contains("keyring"), !home.path().join("secrets/key-test").exists());
        assert!(matches!(
            store.write(&name, &Secret::new("x".repeat(SECRET_BYTES + 1))),
            Err(StoreError::TooLarge)
        ));
        let another = tempfile::tempdir().unwrap();
        assert_eq!(
            SecretStore::open(another.path()).unwrap().read(&name).unwrap(),
            None,
            "each home has its own"
        );
        assert!(store.remove(&name).unwrap());
        assert!(!store.remove(&name).unwrap());
        assert_eq!(store.read(&name).unwrap(), None);
    }

    #[test]
    fn only_names_that_were_given_out_are_read_back() {
        for name in [SecretName::login("a-b").unwrap(), SecretName::key("c").unwrap()] {
            assert_eq!(SecretName::parse(name.as_str()), Some(name));
        }
        for foreign in ["login", "login-", "other-a", ".login-a.lock", "login-a.tmp"] {
            assert_eq!(SecretName::parse(foreign), None, "{foreign}");
        }
    }
}
