//! The Secret Service of the desktop, over D-Bus: what GNOME, KDE and KeePassXC offer as a keyring.
//!
//! Everything here blocks, and nobody says for how long; [`Keyring`](super::keyring::Keyring) bounds it.
//! Secrets cross the bus as they are: it is a socket that only the user can open.

use std::collections::HashMap;

use dbus_secret_service::{Collection, EncryptionType, Error, SecretService};
use zeroize::Zeroizing;

use super::keyring::{Entry, Service, UNLOCK_WAIT};
use crate::Secret;

/// Under which name programs of the desktop list the secrets.
const APPLICATION: &str = "parlor";

/// What a secret says of itself to the keyring.
const CONTENT_TYPE: &str = "text/plain";

/// The Secret Service on the session bus.
#[derive(Debug)]
pub(super) struct Desktop;

impl Service for Desktop {
    fn read(&self, entry: &Entry, asks: &dyn Fn()) -> Result<Option<Secret>, String> {
        let service = connect()?;
        let found = service.search_items(attributes(entry)).map_err(told)?;
        let Some(item) = found.unlocked.first().or(found.locked.first()) else { return Ok(None) };
        if item.is_locked().map_err(told)? {
            asks();
            item.unlock().map_err(told)?;
        }
        let bytes = Zeroizing::new(item.get_secret().map_err(told)?);
        let text = std::str::from_utf8(&bytes).map_err(|_| "what it has is no text".to_owned())?;
        Ok(Some(Secret::new(text)))
    }

    fn write(&self, entry: &Entry, secret: &Secret, asks: &dyn Fn()) -> Result<(), String> {
        let service = connect()?;
        let collection = unlocked(&service, asks)?;
        let (label, bytes) = (format!("{APPLICATION} {}", entry.name), secret.expose().as_bytes());
        let kept = collection.create_item(&label, attributes(entry), bytes, true, CONTENT_TYPE);
        kept.map(drop).map_err(told)
    }

    fn remove(&self, entry: &Entry, asks: &dyn Fn()) -> Result<bool, String> {
        let service = connect()?;
        let found = service.search_items(attributes(entry)).map_err(told)?;
        if !found.locked.is_empty() {
            asks();
            service.unlock_all(&found.locked.iter().collect::<Vec<_>>()).map_err(told)?;
        }
        let mut existed = false;
        for item in found.unlocked.iter().chain(&found.locked) {
            item.delete().map_err(told)?;
            existed = true;
        }
        Ok(existed)
    }
}

fn connect() -> Result<SecretService, String> {
    let seconds = UNLOCK_WAIT.as_secs();
    SecretService::connect_with_max_prompt_timeout(EncryptionType::Plain, seconds).map_err(told)
}

/// The collection that the user calls the default one. Any other may be forgotten with the session.
fn unlocked<'s>(service: &'s SecretService, asks: &dyn Fn()) -> Result<Collection<'s>, String> {
    let collection = service.get_default_collection().map_err(told)?;
    if collection.is_locked().map_err(told)? {
        asks();
        collection.unlock().map_err(told)?;
    }
    Ok(collection)
}

/// Each state folder has its own secrets.
fn attributes(entry: &Entry) -> HashMap<&str, &str> {
    HashMap::from([("application", APPLICATION), ("secret", &entry.name), ("home", &entry.home)])
}

#[expect(clippy::wildcard_enum_match_arm, reason = "there may be more, and each has words of its own")]
fn told(error: Error) -> String {
    match error {
        Error::Unavailable => "there is none on the session bus".to_owned(),
        Error::NoResult => "it has no default collection".to_owned(),
        Error::Locked | Error::Prompt => "it is locked".to_owned(),
        Error::Dbus(error) => error.message().unwrap_or("the session bus does not answer").to_owned(),
        other => other.to_string(),
    }
}
