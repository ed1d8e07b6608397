//! The Secret Service over D-Bus: the keyring of GNOME, KDE and KeePassXC.
//!
//! All calls block without a time limit; [`Keyring`](super::keyring::Keyring) adds one. Secrets cross the session bus
//! unencrypted, because only the user can connect to it; [`check_bus_owner`] refuses the bus of another user.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use dbus_secret_service::{Collection, EncryptionType, Error, SecretService};
use percent_encoding::percent_decode_str;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
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
    #[expect(clippy::disallowed_methods, reason = "the D-Bus library reads the same variable")]
    if let Ok(address) = std::env::var("DBUS_SESSION_BUS_ADDRESS") {
        check_bus_owner(&address)?;
    }
    let seconds = UNLOCK_WAIT.as_secs();
    SecretService::connect_with_max_prompt_timeout(EncryptionType::Plain, seconds).map_err(error_text)
}

/// Fails if another user runs the session bus, who would see every secret. A variable that `su` has kept can name such a bus.
fn check_bus_owner(addresses: &str) -> Result<(), String> {
    for address in addresses.split(';').filter_map(socket_address) {
        let Ok(stream) = UnixStream::connect_addr(&address) else { continue };
        let owner = socket_peercred(&stream).map_err(|error| error.to_string())?.uid;
        if owner != geteuid() && !owner.is_root() {
            return Err(format!("user {}, not you, runs the session bus", owner.as_raw()));
        }
    }
    Ok(())
}

/// The socket of an address such as `unix:path=/run/user/1000/bus,guid=…`.
fn socket_address(address: &str) -> Option<SocketAddr> {
    let mut pairs = address.strip_prefix("unix:")?.split(',').filter_map(|pair| pair.split_once('='));
    pairs.find_map(|(key, value)| {
        let value = percent_decode_str(value).collect::<Vec<u8>>();
        match key {
            "path" => SocketAddr::from_pathname(OsStr::from_bytes(&value)).ok(),
            "abstract" => SocketAddr::from_abstract_name(value).ok(),
            _ => None,
        }
    })
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_address_names_a_path_or_an_abstract_socket() {
        let path = |address| socket_address(address)?.as_pathname().map(|path| path.display().to_string());
        assert_eq!(path("unix:path=/run/user/1000/bus,guid=ab").as_deref(), Some("/run/user/1000/bus"));
        assert_eq!(path("unix:guid=ab,path=/a%20b").as_deref(), Some("/a b"));
        let hidden = socket_address("unix:abstract=/tmp/dbus-x").unwrap();
        assert_eq!(hidden.as_abstract_name(), Some(&b"/tmp/dbus-x"[..]));
        assert!(socket_address("tcp:host=localhost").is_none() && socket_address("unix:dir=/tmp").is_none());
    }

    #[test]
    fn the_bus_of_the_same_user_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bus");
        let address = format!("unix:path={};unix:path=/nowhere", path.display());
        assert_eq!(check_bus_owner(&address), Ok(()), "the D-Bus library reports that nobody listens");
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(check_bus_owner(&address), Ok(()));
    }
}
