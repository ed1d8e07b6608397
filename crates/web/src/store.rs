//! Where the token is kept: in the settings, or else in a file of the state folder that a server and the
//! command line share.
//!
//! The file is replaced in one step and looked at before each use, so that a token that one process makes
//! holds at once in all of them.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::chance::{RandomSource, hex};
use crate::cookie::{Cookie, CookieHolder};
use crate::token::{Token, TokenError};
use parlor_transport::PeerUser;

/// The largest file that is read.
pub const STORE_BYTES: u64 = 64 * 1024;

/// What holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToken {
    /// What clients must know.
    pub token: Token,
    /// Where browsers may come from. Everywhere, if there is nothing.
    pub allow_origins: Vec<String>,
}

/// What the settings say, which goes before the file.
#[derive(Clone, Debug, Default)]
pub struct TokenConfig {
    /// The token, if the settings have one.
    pub token: Option<Token>,
    /// The origins, if the settings name any.
    pub allow_origins: Vec<String>,
}

/// Why a token could not be had or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It stands in the settings, which are not written.
    #[error(
        "the token is set by [channels.supr] token in parlor.toml, or by SUPRCLAW_CHANNELS_SUPR_TOKEN: change it there, or remove it to have one kept here"
    )]
    Configured,
    /// The file cannot be read or written.
    #[error("cannot use {}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file holds something else.
    #[error("{} does not hold a token: {why}; delete it, and a new one is made", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The token in the file is none.
    #[error("{}: {flaw}", file.display())]
    Flaw {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        flaw: TokenError,
    },
}

/// The file's content.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Stored {
    pub(crate) token: String,
    allow_origins: Vec<String>,
}

/// What tells one content of the file from the next: it is never written to, only replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

struct Cache {
    stamp: Option<Stamp>,
    kept: Arc<StoredToken>,
}

/// Is told every secret that lets somebody in, so that it can be taken out of texts.
pub type LearnSecret = Arc<dyn Fn(&str) + Send + Sync>;

/// The token and what is kept along with it.
pub struct TokenStore {
    file: PathBuf,
    configured: TokenConfig,
    chance: RandomSource,
    learn: Option<LearnSecret>,
    cache: Mutex<Cache>,
}

impl TokenStore {
    /// Opens the store at `file`. If there is no token yet, one is made.
    pub fn open(file: PathBuf, configured: TokenConfig, chance: RandomSource) -> Result<Self, StoreError> {
        let stored = match load(&file)? {
            Some(stored) if !stored.token.is_empty() || configured.token.is_some() => stored,
            None if configured.token.is_some() => Stored::default(),
            None | Some(_) => {
                let _lock = lock(&file)?;
                // Another process may have made one meanwhile.
                let mut stored = load(&file)?.unwrap_or_default();
                if stored.token.is_empty() {
                    stored.token = hex(chance());
                    save(&file, &stored)?;
                }
                stored
            }
        };
        let kept = Arc::new(kept(&file, &configured, stored)?);
        let cache = Mutex::new(Cache { stamp: None, kept });
        Ok(Self { file, configured, chance, learn: None, cache })
    }

    /// The same, that tells `learn` each token that it has ever had, and what is made of them.
    pub fn with_learning(mut self, learn: LearnSecret) -> Self {
        self.learn = Some(learn);
        self.learn_all(&self.cache().kept);
        self
    }

    /// What holds now. If the file cannot be read any more, what was read last goes on to hold.
    pub fn now(&self) -> Arc<StoredToken> {
        let mut cache = self.cache();
        let stamp = stamp(&self.file);
        if stamp.is_some() && stamp != cache.stamp {
            match self.read() {
                Ok(kept) => {
                    self.learn_all(&kept);
                    cache.kept = Arc::new(kept);
                }
                Err(error) => tracing::warn!(%error, "the token stays as it was"),
            }
            cache.stamp = stamp;
        }
        Arc::clone(&cache.kept)
    }

    /// Makes another token, which holds from now on. Blocks until it is on the disk.
    pub fn rotate(&self) -> Result<Arc<StoredToken>, StoreError> {
        if self.configured.token.is_some() {
            return Err(StoreError::Configured);
        }
        let _lock = lock(&self.file)?;
        let stored = Stored { token: hex((self.chance)()), ..load(&self.file)?.unwrap_or_default() };
        self.replace(stored)
    }

    /// Sees to it that browsers of `origin` are let in, if no origin was named before. Tells whether anything
    /// was written. Blocks until it is on the disk.
    pub fn set_up(&self, origin: Option<&str>) -> Result<(Arc<StoredToken>, bool), StoreError> {
        let _lock = lock(&self.file)?;
        let mut stored = load(&self.file)?.unwrap_or_default();
        let mut changed = false;
        if stored.token.is_empty() && self.configured.token.is_none() {
            stored.token = hex((self.chance)());
            changed = true;
        }
        if let Some(origin) = origin
            && stored.allow_origins.is_empty()
            && self.configured.allow_origins.is_empty()
        {
            stored.allow_origins.push(origin.to_owned());
            changed = true;
        }
        if changed { Ok((self.replace(stored)?, true)) } else { Ok((self.now(), false)) }
    }

    fn replace(&self, stored: Stored) -> Result<Arc<StoredToken>, StoreError> {
        save(&self.file, &stored)?;
        let kept = Arc::new(kept(&self.file, &self.configured, stored)?);
        self.learn_all(&kept);
        *self.cache() = Cache { stamp: stamp(&self.file), kept: Arc::clone(&kept) };
        Ok(kept)
    }

    /// From now on, `secret` is one that is taken out of texts.
    pub(crate) fn learn(&self, secret: &str) {
        if let Some(learn) = &self.learn {
            learn(secret);
        }
    }

    fn learn_all(&self, kept: &StoredToken) {
        if let Some(learn) = &self.learn {
            learn_token(&kept.token, learn);
        }
    }

    fn read(&self) -> Result<StoredToken, StoreError> {
        kept(&self.file, &self.configured, load(&self.file)?.unwrap_or_default())
    }

    /// Whoever panicked with the lock in hand left a whole value behind.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells `learn` a token and the cookies that most of its holders have. Those of others are told as they are given out.
pub(crate) fn learn_token(token: &Token, learn: &LearnSecret) {
    learn(token.reveal());
    for holder in [PeerUser::Ours, PeerUser::Unknown("")] {
        learn(Cookie::new(token, CookieHolder::User(holder)).reveal());
    }
}

fn kept(file: &Path, configured: &TokenConfig, stored: Stored) -> Result<StoredToken, StoreError> {
    let token = match &configured.token {
        Some(token) => token.clone(),
        None => {
            Token::parse(&stored.token).map_err(|flaw| StoreError::Flaw { file: file.to_owned(), flaw })?
        }
    };
    let configured = &configured.allow_origins;
    let allow_origins = if configured.is_empty() { stored.allow_origins } else { configured.clone() };
    Ok(StoredToken { token, allow_origins })
}

/// The file's content; none if there is no file.
pub(crate) fn load(file: &Path) -> Result<Option<Stored>, StoreError> {
    let mut text = String::new();
    let read = File::open(file).and_then(|open| open.take(STORE_BYTES + 1).read_to_string(&mut text));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::Io { file: file.to_owned(), error }),
    }
    let content = |why: String| StoreError::Content { file: file.to_owned(), why };
    if text.len() as u64 > STORE_BYTES {
        return Err(content(format!("it is larger than {STORE_BYTES} bytes")));
    }
    serde_json::from_str(&text).map(Some).map_err(|error| content(error.to_string()))
}

/// Replaces the file in one step.
fn save(file: &Path, stored: &Stored) -> Result<(), StoreError> {
    let write = || -> io::Result<()> {
        let mut text = serde_json::to_vec(stored)?;
        text.push(b'\n');
        let draft = file.with_extension("json.new");
        match std::fs::remove_file(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        open.write_all(&text)?;
        open.sync_all()?;
        std::fs::rename(&draft, file)
    };
    write().map_err(|error| StoreError::Io { file: file.to_owned(), error })
}

/// Held while the file is changed by what it held before.
fn lock(file: &Path) -> Result<File, StoreError> {
    let path = file.with_extension("lock");
    let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    open.and_then(|open| {
        flock(&open, FlockOperation::LockExclusive)?;
        Ok(open)
    })
    .map_err(|error| StoreError::Io { file: path, error })
}

pub(crate) fn stamp(file: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(file).ok()?;
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    Some(Stamp { inode: metadata.ino(), bytes: metadata.len(), modified })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    fn counting() -> RandomSource {
        let count = AtomicU8::new(0);
        Arc::new(move || [count.fetch_add(1, Ordering::Relaxed); 16])
    }

    fn store(folder: &Path, configured: TokenConfig) -> Result<TokenStore, StoreError> {
        TokenStore::open(folder.join("supr.json"), configured, counting())
    }

    fn configured() -> TokenConfig {
        TokenConfig {
            token: Some(Token::parse("mine").unwrap()),
            allow_origins: vec!["http://a:1".to_owned()],
        }
    }

    #[test]
    fn the_first_start_makes_a_token_for_the_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let first = store(folder.path(), TokenConfig::default()).unwrap();
        assert_eq!(first.now().token.reveal(), "00".repeat(16));
        let mode = std::fs::metadata(folder.path().join("supr.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again =
            TokenStore::open(first.file.clone(), TokenConfig::default(), Arc::new(|| [9; 16])).unwrap();
        assert_eq!(again.now(), first.now());
    }

    #[test]
    fn another_process_that_rotates_is_noticed_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (server, command) = (
            store(folder.path(), TokenConfig::default()).unwrap(),
            TokenStore::open(folder.path().join("supr.json"), TokenConfig::default(), Arc::new(|| [7; 16]))
                .unwrap(),
        );
        let before = server.now();
        let after = command.rotate().unwrap();
        assert_ne!(before.token, after.token);
        assert_eq!(server.now(), after);
    }

    #[test]
    fn what_is_configured_goes_before_the_file_and_is_not_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let configured = store(folder.path(), configured()).unwrap();
        assert_eq!(configured.now().token.reveal(), "mine");
        assert!(matches!(configured.rotate(), Err(StoreError::Configured)));
        assert!(!configured.set_up(Some("http://b:2")).unwrap().1);
        assert_eq!(configured.now().allow_origins, ["http://a:1"]);
        assert!(!folder.path().join("supr.json").exists());
    }

    #[test]
    fn setting_up_names_the_first_origin_only() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), TokenConfig::default()).unwrap();
        assert!(!store.set_up(None).unwrap().1);
        let (kept, changed) = store.set_up(Some("http://a:1")).unwrap();
        assert!(changed && kept.allow_origins == ["http://a:1"]);
        let (again, changed) = store.set_up(Some("http://b:2")).unwrap();
        assert!(!changed && again == kept);
        // A new token keeps it.
        assert_eq!(store.rotate().unwrap().allow_origins, ["http://a:1"]);
    }

    #[test]
    fn a_file_that_is_spoilt_is_named_and_does_not_unsettle_a_server() {
        let folder = tempfile::tempdir().unwrap();
        let server = store(folder.path(), TokenConfig::default()).unwrap();
        let before = server.now();
        for spoilt in ["{", "{\"token\":\"a b\"}", &" ".repeat(STORE_BYTES as usize + 1)] {
            std::fs::write(&server.file, spoilt).unwrap();
            assert_eq!(server.now(), before);
            let error = store(folder.path(), TokenConfig::default()).err().unwrap().to_string();
            assert!(error.contains("supr.json"), "{error}");
        }
        std::fs::remove_file(&server.file).unwrap();
        assert_eq!(server.now(), before);
    }
}
