//! The system's keyring: the Secret Service of the desktop.
//!
//! Only with the cargo feature `keyring`. Without a desktop there is none, and files are used.

use std::path::Path;

use keyring::{Entry, Error};

use super::{SecretName, StoreError};
use crate::Secret;

/// Under which name programs of the desktop list the secrets.
const SERVICE: &str = "parlor";

/// The keyring, for one state folder.
#[derive(Debug)]
pub(super) struct Keyring {
    home: String,
}

impl Keyring {
    /// The keyring, if there is one.
    pub(super) fn open(home: &Path) -> Option<Self> {
        Entry::store_status().is_ok().then(|| Self { home: home.display().to_string() })
    }

    pub(super) fn read(&self, name: &SecretName) -> Result<Option<Secret>, StoreError> {
        match self.entry(name)?.get_password() {
            Ok(text) => Ok(Some(Secret::new(text))),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(refused(&error)),
        }
    }

    pub(super) fn write(&self, name: &SecretName, secret: &Secret) -> Result<(), StoreError> {
        self.entry(name)?.set_password(secret.expose()).map_err(|error| refused(&error))
    }

    pub(super) fn remove(&self, name: &SecretName) -> Result<bool, StoreError> {
        match self.entry(name)?.delete_credential() {
            Ok(()) => Ok(true),
            Err(Error::NoEntry) => Ok(false),
            Err(error) => Err(refused(&error)),
        }
    }

    /// Each state folder has its own.
    fn entry(&self, name: &SecretName) -> Result<Entry, StoreError> {
        let user = format!("{}:{}", name.as_str(), self.home);
        Entry::new(SERVICE, &user).map_err(|error| refused(&error))
    }
}

fn refused(error: &Error) -> StoreError {
    StoreError::Keyring { reason: error.to_string() }
}
