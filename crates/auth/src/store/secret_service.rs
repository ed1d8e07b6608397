//! The Secret Service over D-Bus: the keyring of GNOME, KDE and KeePassXC.
//!
//! All calls block without a time limit; [`Keyring`](super::keyring::Keyring) adds one. Secrets cross the session bus
//! unencrypted, because only the user can connect to it.

use std::collections::HashMap;

use dbus_secret_service::{Collection, EncryptionType, Error, SecretService};
use zeroize::Zeroizing;

use super::keyring::{Entry, KeyringBackend, UNLOCK_WAIT};
use crate::Secret;

/// The application name under which keyring programs list the secrets.
const APPLICATION: &str = "parlor";

/// The content type of the stored secrets.
const CONTENT_TYPE: &str = "text/plain";

/// The Secret Service on the session bus.
#[derive(Debug)]
pub(super) struct SecretServiceBackend;

impl KeyringBackend for SecretServiceBackend {
    fn read(&self, entry: &Entry, before_prompt: &dyn Fn()) -> Result<Option<Secret>, String> {
        let service = connect()?;
        let found = service.search_items(attributes(entry)).map_err(error_text)?;
        let Some(item) = found.unlocked.first().or(found.locked.first()) else { return Ok(None) };
        if item.is_locked().map_err(error_text)? {
            before_prompt();
            item.unlock().map_err(error_text)?;
        }
        let bytes = Zeroizing::new(item.get_secret().map_err(error_text)?);
        let text = std::str::from_utf8(&bytes).map_err(|_| "what it has is no text".to_owned())?;
        Ok(Some(Secret::new(text)))
    }

    fn write(&self, entry: &Entry, secret: &Secret, before_prompt: &dyn Fn()) -> Result<(), String> {
        let service = connect()?;
        let collection = unlocked_collection(&service, before_prompt)?;
        let (label, bytes) = (format!("{APPLICATION} {}", entry.name), secret.expose().as_bytes());
        let created = collection.create_item(&label, attributes(entry), bytes, true, CONTENT_TYPE);
        created.map(drop).map_err(error_text)
    }

    fn remove(&self, entry: &Entry, before_prompt: &dyn Fn()) -> Result<bool, String> {
        let service = connect()?;
        let found = service.search_items(attributes(entry)).map_err(error_text)?;
        if !found.locked.is_empty() {
            before_prompt();
            service.unlock_all(&found.locked.iter().collect::<Vec<_>>()).map_err(error_text)?;
        }
        let mut existed = false;
        for item in found.unlocked.iter().chain(&found.locked) {
            item.delete().map_err(error_text)?;
            existed = true;
        }
        Ok(existed)
    }
}

fn connect() -> Result<SecretService, String> {
    let seconds = UNLOCK_WAIT.as_secs();
    SecretService::connect_with_max_prompt_timeout(EncryptionType::Plain, seconds).map_err(error_text)
}

/// The default collection, unlocked. Other collections may be deleted when the desktop session ends.
fn unlocked_collection<'s>(
    service: &'s SecretService,
    before_prompt: &dyn Fn(),
) -> Result<Collection<'s>, String> {
    let collection = service.get_default_collection().map_err(error_text)?;
    if collection.is_locked().map_err(error_text)? {
        before_prompt();
        collection.unlock().map_err(error_text)?;
    }
    Ok(collection)
}

/// The attributes by which a secret is found. They include the state folder, so that each folder has its own secrets.
fn attributes(entry: &Entry) -> HashMap<&str, &str> {
    HashMap::from([("application", APPLICATION), ("secret", &entry.name), ("home", &entry.home)])
}

#[expect(clippy::wildcard_enum_match_arm, reason = "other errors have a text of their own")]
fn error_text(error: Error) -> String {
    match error {
        Error::Unavailable => "there is none on the session bus".to_owned(),
        Error::NoResult => "it has no default collection".to_owned(),
        Error::Locked | Error::Prompt => "it is locked".to_owned(),
        Error::Dbus(error) => error.message().unwrap_or("the session bus does not answer").to_owned(),
        other => other.to_string(),
    }
}
