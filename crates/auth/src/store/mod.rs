//! Where secrets are kept: in the system's keyring where there is one, else in files that nobody else
//! can read.
//!
//! A secret is in one place. One that is in the keyring leaves a mark in the folder, so that the keyring is
//! only asked for what it has; a file wins, as it was written when the keyring did not do.
//!
//! Deliberately absent: what is inside of a secret, and encryption of the files. Whoever can read
//! the files of the user can read the program that would decrypt them.

mod desktop;
mod error;
mod files;
mod keyring;
mod lock;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

pub use error::SecretStoreError;
pub use files::SECRET_BYTES;
pub use keyring::{KEYRING_RETRY_WAIT, KEYRING_WAIT, UNLOCK_WAIT};
pub use lock::LOCK_WAIT;

use crate::{MAX_NAME_CHARS, Secret};
use desktop::Desktop;
use files::Files;
use keyring::{Keyring, Service};
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

    /// Whose key it is, if it is the name of a key.
    pub fn service(&self) -> Option<&str> {
        self.0.strip_prefix("key-")
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
    keyring: Arc<Keyring>,
    /// Why the keyring was not used when it was to be.
    trouble: Arc<Mutex<Option<String>>>,
}

impl SecretStore {
    /// The store in the state folder `home`, without a keyring. Makes nothing: there is no folder before the
    /// first secret.
    pub fn open(home: &Path) -> Result<Self, SecretStoreError> {
        Self::open_with(home, Err("it is not used here".to_owned()))
    }

    /// The same with the keyring on the user's session bus, or why there is none. It is not looked for before
    /// it is needed.
    pub fn with_keyring(home: &Path, is_there: Result<(), String>) -> Result<Self, SecretStoreError> {
        Self::open_with(home, is_there.map(|()| Arc::new(Desktop) as _))
    }

    fn open_with(home: &Path, service: Result<Arc<dyn Service>, String>) -> Result<Self, SecretStoreError> {
        let home = std::path::absolute(home).map_err(SecretStoreError::io("find", home))?;
        Ok(Self {
            keyring: Arc::new(Keyring::new(&home, service)),
            files: Arc::new(Files::new(home.clone(), home.join(FOLDER))),
            trouble: Arc::default(),
        })
    }

    /// The secret of that name, if there is one.
    pub fn read(&self, name: &SecretName) -> Result<Option<Secret>, SecretStoreError> {
        match self.files.read(name)? {
            Some(secret) => Ok(Some(secret)),
            None if self.files.is_marked(name) => self.keyring.read(name).map_err(unusable(name)),
            None => Ok(None),
        }
    }

    /// Keeps a secret, in the place of the one that had its name. Returns when it is durable.
    pub fn write(&self, name: &SecretName, secret: &Secret) -> Result<(), SecretStoreError> {
        if secret.expose().len() > SECRET_BYTES {
            return Err(SecretStoreError::TooLarge);
        }
        let kept = if self.keyring.is_there() { Some(self.write_to_keyring(name, secret)?) } else { None };
        match kept {
            Some(Ok(())) => drop(self.files.remove(name)?),
            Some(Err(_)) | None => self.files.write(name, secret)?,
        }
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = kept.and_then(Result::err);
        Ok(())
    }

    /// Says why the keyring does not have it, if it does not.
    fn write_to_keyring(
        &self,
        name: &SecretName,
        secret: &Secret,
    ) -> Result<Result<(), String>, SecretStoreError> {
        let had_one = self.files.is_marked(name);
        // Marked first: what is in the keyring must be found when it is to be forgotten.
        self.files.mark(name)?;
        let kept = self.keyring.write(name, secret);
        if kept.is_err() && !had_one {
            self.files.unmark(name)?;
        }
        Ok(kept)
    }

    /// Forgets a secret. Says whether there was one.
    pub fn remove(&self, name: &SecretName) -> Result<bool, SecretStoreError> {
        let in_files = self.files.remove(name)?;
        if !self.files.is_marked(name) {
            return Ok(in_files);
        }
        let in_keyring = self.keyring.remove(name).map_err(unusable(name))?;
        self.files.unmark(name)?;
        Ok(in_keyring || in_files)
    }

    /// Whether a secret of that name is kept, as far as can be seen without asking the keyring.
    pub fn has(&self, name: &SecretName) -> bool {
        // What cannot be read is there; whoever uses it is told what is wrong.
        self.files.is_marked(name) || self.files.read(name).map_or(true, |secret| secret.is_some())
    }

    /// The names of all secrets that are kept, sorted.
    pub fn names(&self) -> Result<Vec<SecretName>, SecretStoreError> {
        let mut names = self.files.names()?;
        names.extend(self.files.marked()?);
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// The names of those that are kept in files, sorted.
    pub(crate) fn names_in_files(&self) -> Result<Vec<SecretName>, SecretStoreError> {
        self.files.names()
    }

    /// Where a secret of that name is, or would be: for people.
    pub fn place(&self, name: &SecretName) -> String {
        let file = self.files.path_of(name);
        let is_in_keyring = self.files.is_marked(name) || self.keyring.is_there();
        if is_in_keyring && !file.exists() && self.trouble().is_none() {
            return "the system's keyring".to_owned();
        }
        file.display().to_string()
    }

    /// Why the secret that was written last is in a file although there seems to be a keyring.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the name for itself, among all processes, if nobody else has it now.
    pub(crate) fn try_lock(&self, name: &SecretName) -> Result<Option<Lock>, SecretStoreError> {
        self.files.try_lock(name)
    }
}

/// For `map_err`: what is in the keyring cannot be had.
fn unusable(name: &SecretName) -> impl FnOnce(String) -> SecretStoreError {
    let name = name.as_str().to_owned();
    move |reason| SecretStoreError::Keyring { name, reason }
}

#[cfg(test)]
mod tests {
    use super::keyring::tests::Fake;
    use super::*;

    #[test]
    fn names_are_harmless() {
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
    fn a_secret_is_found_where_it_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let store = SecretStore::open(home.path()).unwrap();
        let name = SecretName::key("test").unwrap();
        assert_eq!(store.read(&name).unwrap(), None);
        for text in ["first", "second"] {
            store.write(&name, &Secret::new(text)).unwrap();
            assert_eq!(store.read(&name).unwrap(), Some(Secret::new(text)));
        }
        assert!(store.place(&name).ends_with("secrets/key-test"));
        assert!(matches!(
            store.write(&name, &Secret::new("x".repeat(SECRET_BYTES + 1))),
            Err(SecretStoreError::TooLarge)
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

    fn with_fake(home: &Path) -> (SecretStore, Arc<Fake>) {
        let fake = Arc::new(Fake::default());
        (SecretStore::open_with(home, Ok(Arc::clone(&fake) as _)).unwrap(), fake)
    }

    #[test]
    fn a_keyring_has_what_is_written_and_the_file_is_gone() {
        let home = tempfile::tempdir().unwrap();
        let (name, file) = (SecretName::key("test").unwrap(), home.path().join("secrets/key-test"));
        SecretStore::open(home.path()).unwrap().write(&name, &Secret::new("before")).unwrap();
        let (store, fake) = with_fake(home.path());
        assert_eq!(store.read(&name).unwrap(), Some(Secret::new("before")), "a file is read as ever");
        store.write(&name, &Secret::new("after")).unwrap();
        assert!(!file.exists() && store.has(&name));
        assert_eq!(fake.secrets.lock().unwrap().get("key-test"), Some(&Secret::new("after")));
        assert_eq!((store.place(&name).as_str(), store.trouble()), ("the system's keyring", None));
        assert_eq!(store.names().unwrap(), std::slice::from_ref(&name));
        assert!(store.names_in_files().unwrap().is_empty());
        assert_eq!(store.read(&name).unwrap(), Some(Secret::new("after")));
        assert!(store.remove(&name).unwrap() && !store.has(&name));
        assert!(fake.secrets.lock().unwrap().is_empty());
        assert_eq!(store.read(&name).unwrap(), None);
    }

    #[test]
    fn a_keyring_that_refuses_leaves_a_file_and_a_word() {
        let home = tempfile::tempdir().unwrap();
        let name = SecretName::key("test").unwrap();
        let (store, fake) = with_fake(home.path());
        store.write(&name, &Secret::new("first")).unwrap();
        *fake.refuses.lock().unwrap() = Some("it is locked".to_owned());
        let error = store.read(&name).unwrap_err().to_string();
        assert!(error.contains("it is locked") && error.contains("unlock"), "{error}");
        store.write(&name, &Secret::new("second")).unwrap();
        assert_eq!(store.trouble().as_deref(), Some("it is locked"));
        assert!(store.place(&name).ends_with("secrets/key-test"));
        assert_eq!(store.read(&name).unwrap(), Some(Secret::new("second")));
        assert!(store.remove(&name).is_err(), "what is left in the keyring is not forgotten yet");
        *fake.refuses.lock().unwrap() = None;
        assert!(store.remove(&name).unwrap());
        assert!(fake.secrets.lock().unwrap().is_empty());
    }

    #[test]
    fn where_a_keyring_never_worked_nobody_looks_for_it() {
        let home = tempfile::tempdir().unwrap();
        let (store, fake) = with_fake(home.path());
        *fake.refuses.lock().unwrap() = Some("there is none".to_owned());
        let name = SecretName::key("test").unwrap();
        store.write(&name, &Secret::new("s3cret")).unwrap();
        assert_eq!(store.trouble().as_deref(), Some("there is none"));
        assert!(store.remove(&name).unwrap() && !store.has(&name));
    }

    #[test]
    fn a_keyring_is_not_asked_for_what_it_does_not_have() {
        let home = tempfile::tempdir().unwrap();
        let (store, fake) = with_fake(home.path());
        *fake.refuses.lock().unwrap() = Some("it was asked".to_owned());
        let name = SecretName::key("test").unwrap();
        assert_eq!(store.read(&name).unwrap(), None);
        assert!(!store.has(&name) && !store.remove(&name).unwrap());
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
