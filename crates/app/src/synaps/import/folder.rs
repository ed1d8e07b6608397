//! Finds the sessions that the program `synaps` saved. All files are only read.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use parlor_engine::{SymlinkPolicy, read_files};
use parlor_vocab::FileError;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::Deserialize;

use super::saved::SavedSession;

/// The largest file of a saved session: 64 MiB.
pub(crate) const MAX_SAVED_SESSION_BYTES: u64 = 64 << 20;

/// How many files of the folder are looked at.
const MAX_FILES: usize = 10_000;

/// How many bytes of a file are read to find the name of its session.
const MAX_HEADER_BYTES: u64 = 256 << 10;

/// The member of a session's file that has the messages. The name comes before it.
const MESSAGES_MEMBER: &[u8] = b"\"api_messages\"";

/// How many compactions are followed from a session to the one that continues it.
const MAX_COMPACTIONS: usize = 32;

/// The longest name of a session or chain.
const MAX_NAME_BYTES: usize = 40;

/// The sessions in the folder of the program `synaps`.
pub(crate) struct SavedSessions {
    sessions: PathBuf,
    chains: PathBuf,
}

impl SavedSessions {
    /// The sessions of a profile in the folder `base`, or of none.
    pub(crate) fn new(base: &Path, profile: Option<&str>) -> Self {
        let folder = profile.map_or_else(|| base.to_owned(), |profile| base.join(profile));
        Self { sessions: folder.join("sessions"), chains: folder.join("chains") }
    }

    /// The file of the session `id`.
    pub(super) fn path_of(&self, id: &str) -> PathBuf {
        self.sessions.join(format!("{id}.json"))
    }

    /// The id of the session that a chain of this name leads to, that has this name, or that has this id.
    pub(crate) fn find_exactly(&self, wanted: &str) -> Option<String> {
        if is_name(wanted) {
            if let Some(head) = self.chain_head(wanted) {
                return Some(head);
            }
            if let Some(id) = self.ids().into_keys().find(|id| self.name_of(id).as_deref() == Some(wanted)) {
                return Some(id);
            }
        }
        (is_file_name(wanted) && is_regular(&self.path_of(wanted))).then(|| wanted.to_owned())
    }

    /// The ids of all saved sessions, each with the time of its last change.
    pub(crate) fn ids(&self) -> BTreeMap<String, SystemTime> {
        let mut ids = BTreeMap::new();
        let Ok(entries) = fs::read_dir(&self.sessions) else { return ids };
        for entry in entries.take(MAX_FILES).flatten() {
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
            let changed = |path: &Path| {
                let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
                found.modified().ok()
            };
            if let Some(at) = changed(&entry.path()).filter(|_| is_file_name(id)) {
                // Messages may be in the journal only.
                let journal = changed(&entry.path().with_extension("journal"));
                ids.insert(id.to_owned(), journal.map_or(at, |journal| journal.max(at)));
            }
        }
        ids
    }

    /// Reads the session `id`.
    async fn load(&self, id: &str) -> anyhow::Result<SavedSession> {
        let path = self.path_of(id);
        let paths = vec![path.clone(), path.with_extension("journal"), path.with_extension("turn")];
        let mut files = read_files(paths, MAX_SAVED_SESSION_BYTES, SymlinkPolicy::Refuse).await.into_iter();
        let mut next = || match files.next() {
            Some(Ok(file)) => Ok(Some(file.bytes)),
            Some(Err(FileError::Missing)) | None => Ok(None),
            Some(Err(error)) => Err(error),
        };
        let reason = |error: FileError| match error {
            FileError::TooLarge { bytes } => {
                format!("it has {bytes} bytes, and the limit is {MAX_SAVED_SESSION_BYTES}")
            }
            FileError::NotRegular => "it is not a regular file".to_owned(),
            FileError::Missing | FileError::Inaccessible | FileError::Unreadable | FileError::Empty => {
                "it cannot be read, or is a symbolic link".to_owned()
            }
        };
        let shown = path.display();
        let cannot = |error: FileError| anyhow::anyhow!("cannot import {shown}: {}", reason(error));
        let Some(snapshot) = next().map_err(cannot)? else { bail!("there is no session file {shown}") };
        let cannot_journal = |error| anyhow::anyhow!("cannot import {shown}: its journal: {}", reason(error));
        let journal = next().map_err(cannot_journal)?;
        // An unfinished answer that cannot be read does not keep the session from being used.
        let draft = next().ok().flatten();
        let id = id.to_owned();
        let parse = move || SavedSession::parse(&id, &snapshot, journal.as_deref(), draft.as_deref());
        let parsed = tokio::task::spawn_blocking(parse).await.context("the import was interrupted")?;
        parsed.with_context(|| format!("cannot import {shown}"))
    }

    /// Reads the session `id`, or the one that continues it after all its compactions.
    pub(crate) async fn load_newest(&self, id: String) -> anyhow::Result<SavedSession> {
        let mut current = id.clone();
        for _ in 0..=MAX_COMPACTIONS {
            let session = self.load(&current).await?;
            match &session.compacted_into {
                None => return Ok(session),
                Some(next) if !is_file_name(next) => bail!("the session {current} names no valid successor"),
                Some(next) => current.clone_from(next),
            }
        }
        bail!("the session {id} was compacted in a circle, or more than {MAX_COMPACTIONS} times")
    }

    /// Fails if a `synaps` process has the session open: it would not see what happens here.
    pub(super) fn check_not_in_use(&self, id: &str) -> anyhow::Result<()> {
        let Ok(lock) = open(&self.sessions.join(format!("{id}.lock"))) else { return Ok(()) };
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!(
                    "the session {id} is open in another process of the program synaps; end that process first"
                )
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn chain_head(&self, name: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Chain {
            head: String,
        }
        let text = read_start(&self.chains.join(format!("{name}.json")))?;
        let Chain { head } = serde_json::from_slice(&text).ok()?;
        is_file_name(&head).then_some(head)
    }

    /// The name that the user gave to a session.
    fn name_of(&self, id: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Named {
            name: Option<String>,
        }
        let start = read_start(&self.path_of(id))?;
        let end = start.windows(MESSAGES_MEMBER.len()).position(|part| part == MESSAGES_MEMBER)?;
        let header = start.get(..end)?.trim_ascii_end().strip_suffix(b",")?;
        serde_json::from_slice::<Named>(&[header, b"}"].concat()).ok()?.name
    }
}

/// Whether `synaps` accepts this as the name of a session or chain.
fn is_name(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_valid)
}

/// Whether the text can be the name of a file in the folder, and not lead out of it.
fn is_file_name(text: &str) -> bool {
    let is_valid = |c: char| !c.is_control() && c != '/';
    (1..=200).contains(&text.len()) && !text.starts_with(['.', '-']) && text.chars().all(is_valid)
}

fn is_regular(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Opens a file without following a symbolic link, and without waiting if it is a pipe.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)
}

/// The first bytes of a regular file.
fn read_start(path: &Path) -> Option<Vec<u8>> {
    let file = open(path).ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()))?;
    let mut start = Vec::new();
    file.take(MAX_HEADER_BYTES).read_to_end(&mut start).ok()?;
    Some(start)
}
