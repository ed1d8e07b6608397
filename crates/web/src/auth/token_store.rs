//! The token and the allowed origins: from the settings, or from a file in the state folder that the server and the
//! command line share.
//!
//! The file is replaced in one step, and its version is checked before each use. So a token that one process makes is
//! valid at once in all of them.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use parlor_transport::PeerUser;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::cookie::{Cookie, CookieHolder};
use super::cors::is_origin;
use super::token::{Token, TokenError};
use crate::random::{RandomSource, hex};

/// The largest file that is read, in bytes.
pub const STORE_BYTES: u64 = 64 * 1024;

/// The token and the origins that are valid now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToken {
    /// The token that clients must know.
    pub token: Token,
    /// The origins from which browsers may open sockets. Empty allows every origin.
    pub allow_origins: Vec<String>,
    /// How many times the open sockets were evicted. A socket whose handshake saw a smaller number has to close.
    pub evictions: u64,
    /// The origins whose pages may use the server like its own page: those that the settings name. Those that clients have
    /// set up are not among them, since another program may serve pages at such an address some day.
    pub open_origins: Vec<String>,
    /// How many times all browsers were signed out. Older cookies are invalid.
    pub sign_outs: u64,
}

/// The token and the origins in the settings, which override the file.
#[derive(Clone, Debug, Default)]
pub struct TokenConfig {
    /// `None` if the settings have no token.
    pub token: Option<Token>,
    /// Empty if the settings name no origins.
    pub allow_origins: Vec<String>,
}

/// Why the token could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The settings have a token, and parlor does not write settings.
    #[error(
        "the token is set by [channels.supr] token in parlor.toml, or by SUPRCLAW_CHANNELS_SUPR_TOKEN: change it there, or remove it to have one kept here"
    )]
    Configured,
    /// The file cannot be read or written.
    #[error("cannot use {}: {error}", file.display())]
    Io {
        /// The file of the token, or its lock file.
        file: PathBuf,
        /// The error of the system call.
        error: io::Error,
    },
    /// The file is not the JSON that it should be.
    #[error("{} does not hold a token: {why}; delete it, and a new one is made", file.display())]
    Content {
        /// The file of the token.
        file: PathBuf,
        /// What is wrong with its content.
        why: String,
    },
    /// The token that servers share cannot be read or changed.
    #[error("cannot use the token in the database: {0}")]
    Shared(String),
    /// The token in the file is invalid.
    #[error("{}: {error}", file.display())]
    InvalidToken {
        /// The file of the token.
        file: PathBuf,
        /// What is wrong with the token.
        error: TokenError,
    },
}

/// Where servers with state folders of their own keep the token that they share. The calls block.
pub trait SharedToken: Send + Sync {
    /// The content that counts now.
    fn load(&self) -> Result<Vec<u8>, String>;

    /// Replaces the content. Returns false if it is no longer `expected`.
    fn replace(&self, expected: &[u8], new: &[u8]) -> Result<bool, String>;
}

/// The content of the file.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TokenFile {
    pub(super) token: String,
    allow_origins: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    evictions: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) sign_outs: u64,
}

/// Leaves the file of users who never evict sockets or sign out as older versions wrote it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Identifies one version of the file, which is never written to but replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FileVersion {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

struct Cache {
    version: Option<FileVersion>,
    stored: Arc<StoredToken>,
}

/// Gets every secret that lets a client in, so that the redaction removes it from texts.
pub type LearnSecret = Arc<dyn Fn(&str) + Send + Sync>;

/// Reads, caches and changes the token.
pub struct TokenStore {
    file: PathBuf,
    configured: TokenConfig,
    random: RandomSource,
    learn: Option<LearnSecret>,
    cache: Mutex<Cache>,
    /// If it is set, the file has a copy of what is there.
    shared: OnceLock<Arc<dyn SharedToken>>,
    /// The number of evictions in the cache, for the sockets that have to close.
    evictions: watch::Sender<u64>,
}

impl TokenStore {
    /// Opens the store at `file`. Makes a token if there is none yet.
    pub fn open(file: PathBuf, configured: TokenConfig, random: RandomSource) -> Result<Self, StoreError> {
        let content = match load(&file)? {
            Some(content) if !content.token.is_empty() || configured.token.is_some() => content,
            None if configured.token.is_some() => TokenFile::default(),
            None | Some(_) => {
                let _lock = lock(&file)?;
                // Another process may have made a token in the meantime.
                let mut content = load(&file)?.unwrap_or_default();
                if content.token.is_empty() {
                    content.token = hex(random());
                    save(&file, &content)?;
                }
                content
            }
        };
        let stored = Arc::new(merge(&file, &configured, content)?);
        let evictions = watch::Sender::new(stored.evictions);
        let cache = Mutex::new(Cache { version: None, stored });
        Ok(Self { file, configured, random, learn: None, cache, shared: OnceLock::new(), evictions })
    }

    /// Passes the token, each later token and their cookies to `learn`.
    pub fn with_learning(mut self, learn: LearnSecret) -> Self {
        self.learn = Some(learn);
        self.learn_all(&self.cache().stored);
        self
    }

    /// The token and the origins that are valid now. If the file cannot be read, the last ones stay valid.
    pub fn now(&self) -> Arc<StoredToken> {
        let mut cache = self.cache();
        let version = file_version(&self.file);
        if version.is_some() && version != cache.version {
            match self.read() {
                Ok(stored) => {
                    self.learn_all(&stored);
                    self.evictions.send_replace(stored.evictions);
                    cache.stored = Arc::new(stored);
                }
                Err(error) => {
                    tracing::warn!(%error, "the file of the token could not be read; the token stays as it was")
                }
            }
            cache.version = version;
        }
        Arc::clone(&cache.stored)
    }

    /// The number of evictions, now and when it changes. Another process's eviction is seen by the next call of
    /// [`now`](Self::now).
    pub(crate) fn evictions(&self) -> watch::Receiver<u64> {
        self.evictions.subscribe()
    }

    /// Makes a new token, which replaces the old one at once. Open sockets stay open. Blocks until it is on the disk.
    pub fn rotate(&self) -> Result<Arc<StoredToken>, StoreError> {
        self.rotate_with(0)
    }

    /// Like [`rotate`](Self::rotate), and closes the sockets that were opened with the old token, in every server that
    /// uses this file.
    pub fn rotate_and_evict(&self) -> Result<Arc<StoredToken>, StoreError> {
        self.rotate_with(1)
    }

    fn rotate_with(&self, new_evictions: u64) -> Result<Arc<StoredToken>, StoreError> {
        if self.configured.token.is_some() {
            return Err(StoreError::Configured);
        }
        let token = hex((self.random)());
        let rotate = |content: &mut TokenFile| {
            content.token.clone_from(&token);
            content.evictions = content.evictions.saturating_add(new_evictions);
            true
        };
        self.change(rotate).map(|(stored, _)| stored)
    }

    /// Makes a token if there is none, and allows browsers from `origin` if no origin is set. Also returns whether it
    /// changed anything. Blocks until the change is on the disk.
    pub fn set_up(&self, origin: Option<&str>) -> Result<(Arc<StoredToken>, bool), StoreError> {
        self.change(|content| {
            let mut changed = false;
            if content.token.is_empty() && self.configured.token.is_none() {
                content.token = hex((self.random)());
                changed = true;
            }
            if let Some(origin) = origin
                && content.allow_origins.is_empty()
                && self.configured.allow_origins.is_empty()
            {
                content.allow_origins.push(origin.to_owned());
                changed = true;
            }
            changed
        })
    }

    /// Invalidates the cookies of all browsers; the token stays. Blocks until it is on the disk.
    pub fn sign_out(&self) -> Result<Arc<StoredToken>, StoreError> {
        let sign_out = |content: &mut TokenFile| {
            content.sign_outs += 1;
            true
        };
        self.change(sign_out).map(|(stored, _)| stored)
    }

    /// The content of the file, for the first of several servers that share it. `None` if the settings have the token: then
    /// each server has its own.
    pub fn content_to_share(&self) -> Result<Option<Vec<u8>>, StoreError> {
        if self.configured.token.is_some() {
            return Ok(None);
        }
        Ok(Some(encode(&load(&self.file)?.unwrap_or_default())))
    }

    /// Keeps the token in `shared` from now on. Later calls change nothing.
    pub fn share(&self, shared: Arc<dyn SharedToken>) {
        let _ = self.shared.set(shared);
    }

    /// Takes over what another server has shared. Blocks until it is on the disk.
    pub fn accept_shared(&self, content: &[u8]) -> Result<(), StoreError> {
        let _lock = lock(&self.file)?;
        let content = decode_shared(content)?;
        // Checked first, so that a damaged value does not replace a token that works.
        merge(&self.file, &self.configured, content.clone())?;
        self.replace(content).map(drop)
    }

    /// Changes the content of the file, and of what is shared, if `change` returns true. It may be called several times.
    fn change(
        &self,
        change: impl Fn(&mut TokenFile) -> bool,
    ) -> Result<(Arc<StoredToken>, bool), StoreError> {
        let _lock = lock(&self.file)?;
        let content = match self.shared.get() {
            None => {
                let mut content = load(&self.file)?.unwrap_or_default();
                change(&mut content).then_some(content)
            }
            Some(shared) => loop {
                let seen = shared.load().map_err(StoreError::Shared)?;
                let mut content = decode_shared(&seen)?;
                if !change(&mut content) {
                    break None;
                }
                if shared.replace(&seen, &encode(&content)).map_err(StoreError::Shared)? {
                    break Some(content);
                }
            },
        };
        match content {
            Some(content) => Ok((self.replace(content)?, true)),
            None => Ok((self.now(), false)),
        }
    }

    fn replace(&self, content: TokenFile) -> Result<Arc<StoredToken>, StoreError> {
        save(&self.file, &content)?;
        let stored = Arc::new(merge(&self.file, &self.configured, content)?);
        self.learn_all(&stored);
        self.evictions.send_replace(stored.evictions);
        *self.cache() = Cache { version: file_version(&self.file), stored: Arc::clone(&stored) };
        Ok(stored)
    }

    /// Passes a secret to the redaction.
    pub(crate) fn learn(&self, secret: &str) {
        if let Some(learn) = &self.learn {
            learn(secret);
        }
    }

    fn learn_all(&self, stored: &StoredToken) {
        if let Some(learn) = &self.learn {
            learn_token(&stored.token, stored.sign_outs, learn);
        }
    }

    fn read(&self) -> Result<StoredToken, StoreError> {
        merge(&self.file, &self.configured, load(&self.file)?.unwrap_or_default())
    }

    /// Locks in spite of poisoning: a panic under the lock leaves a whole value behind.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes to `learn` a token and the cookies of its most likely holders. Other cookies are passed on when they are used.
pub(super) fn learn_token(token: &Token, sign_outs: u64, learn: &LearnSecret) {
    learn(token.reveal());
    let users = [PeerUser::Ours, PeerUser::Unknown("")].map(CookieHolder::User);
    for holder in users.into_iter().chain([CookieHolder::HttpsClient { proxy: None }]) {
        learn(Cookie::new(token, sign_outs, holder).reveal());
    }
}

/// The content of the file, overridden by the settings.
fn merge(file: &Path, configured: &TokenConfig, content: TokenFile) -> Result<StoredToken, StoreError> {
    let token = match &configured.token {
        Some(token) => token.clone(),
        None => Token::parse(&content.token)
            .map_err(|error| StoreError::InvalidToken { file: file.to_owned(), error })?,
    };
    let configured = &configured.allow_origins;
    // `*` lets every page open a socket, for which it needs the token. It must not let every page use the API without, and
    // neither must `null`, which browsers send for sandboxed frames of any site.
    let open_origins = configured.iter().filter(|origin| is_origin(origin)).cloned().collect();
    let allow_origins = if configured.is_empty() { content.allow_origins } else { configured.clone() };
    let TokenFile { evictions, sign_outs, .. } = content;
    Ok(StoredToken { token, allow_origins, open_origins, evictions, sign_outs })
}

/// The content of the file; `None` if there is no file.
pub(super) fn load(file: &Path) -> Result<Option<TokenFile>, StoreError> {
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

fn decode_shared(content: &[u8]) -> Result<TokenFile, StoreError> {
    let failed = |error: serde_json::Error| StoreError::Shared(error.to_string());
    serde_json::from_slice(content).map_err(failed)
}

fn encode(content: &TokenFile) -> Vec<u8> {
    serde_json::to_vec(content).expect("texts and numbers can be written as JSON")
}

/// Replaces the file in one step.
fn save(file: &Path, content: &TokenFile) -> Result<(), StoreError> {
    let write = || -> io::Result<()> {
        let mut text = encode(content);
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

/// Locks the file while a process reads it and replaces it by what it read.
fn lock(file: &Path) -> Result<File, StoreError> {
    let path = file.with_extension("lock");
    let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    open.and_then(|open| {
        flock(&open, FlockOperation::LockExclusive)?;
        Ok(open)
    })
    .map_err(|error| StoreError::Io { file: path, error })
}

pub(super) fn file_version(file: &Path) -> Option<FileVersion> {
    let metadata = std::fs::metadata(file).ok()?;
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    Some(FileVersion { inode: metadata.ino(), bytes: metadata.len(), modified })
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
    fn the_first_start_makes_a_token_that_only_the_owner_can_read() {
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
    fn a_token_that_another_process_makes_is_valid_at_once() {
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
    fn an_eviction_of_another_process_is_seen_and_a_rotation_alone_evicts_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let (server, command) =
            (store(folder.path(), TokenConfig::default()), store(folder.path(), TokenConfig::default()));
        let (server, command) = (server.unwrap(), command.unwrap());
        let evictions = server.evictions();
        command.rotate().unwrap();
        assert_eq!((server.now().evictions, *evictions.borrow()), (0, 0));
        assert!(!std::fs::read_to_string(&server.file).unwrap().contains("evictions"));
        command.rotate_and_evict().unwrap();
        assert_eq!((server.now().evictions, *evictions.borrow()), (1, 1));
        // A later rotation keeps the number, or an old socket of another server would stay.
        assert_eq!(command.rotate().unwrap().evictions, 1);
        server.rotate_and_evict().unwrap();
        assert_eq!(*evictions.borrow(), 2);
    }

    #[test]
    fn the_settings_override_the_file_and_are_not_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let configured = store(folder.path(), configured()).unwrap();
        assert_eq!(configured.now().token.reveal(), "mine");
        assert!(matches!(configured.rotate(), Err(StoreError::Configured)));
        assert!(!configured.set_up(Some("http://b:2")).unwrap().1);
        assert_eq!(configured.now().allow_origins, ["http://a:1"]);
        assert!(!folder.path().join("supr.json").exists());
    }

    #[test]
    fn only_origins_that_the_settings_name_are_open() {
        let open = |origins: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            let allow_origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
            let store = store(folder.path(), TokenConfig { token: None, allow_origins }).unwrap();
            store.set_up(Some("http://set-up:1")).unwrap();
            store.now().open_origins.clone()
        };
        assert_eq!(open(&["https://a", "*"]), ["https://a"]);
        assert!(open(&[]).is_empty() && open(&["*"]).is_empty());
    }

    #[test]
    fn a_sign_out_is_stored_and_keeps_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let server = store(folder.path(), TokenConfig::default()).unwrap();
        let before = server.now();
        assert_eq!(before.sign_outs, 0);
        assert!(!std::fs::read_to_string(&server.file).unwrap().contains("sign_outs"));
        let command = store(folder.path(), TokenConfig::default()).unwrap();
        assert_eq!(command.sign_out().unwrap().sign_outs, 1);
        assert_eq!((server.now().sign_outs, &server.now().token), (1, &before.token));
        // Also with a token in the settings, which cannot be rotated.
        let fixed = store(folder.path(), configured()).unwrap();
        assert_eq!(fixed.sign_out().unwrap().sign_outs, 2);
        assert_eq!(server.now().token, before.token, "the token in the file is still there");
    }

    #[test]
    fn the_setup_stores_only_the_first_origin() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), TokenConfig::default()).unwrap();
        assert!(!store.set_up(None).unwrap().1);
        let (stored, changed) = store.set_up(Some("http://a:1")).unwrap();
        assert!(changed && stored.allow_origins == ["http://a:1"]);
        let (again, changed) = store.set_up(Some("http://b:2")).unwrap();
        assert!(!changed && again == stored);
        // A new token does not change the origins.
        assert_eq!(store.rotate().unwrap().allow_origins, ["http://a:1"]);
    }

    #[test]
    fn a_damaged_file_is_named_in_the_error_and_a_running_server_keeps_its_token() {
        let folder = tempfile::tempdir().unwrap();
        let server = store(folder.path(), TokenConfig::default()).unwrap();
        let before = server.now();
        for damaged in ["{", "{\"token\":\"a b\"}", &" ".repeat(STORE_BYTES as usize + 1)] {
            std::fs::write(&server.file, damaged).unwrap();
            assert_eq!(server.now(), before);
            let error = store(folder.path(), TokenConfig::default()).err().unwrap().to_string();
            assert!(error.contains("supr.json"), "{error}");
        }
        std::fs::remove_file(&server.file).unwrap();
        assert_eq!(server.now(), before);
    }
}
