//! Removes contents that no record needs, and the oldest records when all of them are too large.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use parlor_vocab::SessionId;

use crate::content::ContentId;
use crate::error::UndoError;
use crate::journal::{self, StoredRecord};
use crate::locks::LockKind;
use crate::snapshot::Snapshot;
use crate::store::{BASELINE, JOURNAL, UndoStore, entries};

/// How many bytes all kept contents have: 2 GiB. Beyond, the oldest records are removed.
pub const KEPT_TOTAL_BYTES: u64 = 2 << 30;

/// A process sweeps after it has added so many bytes.
const SWEEP_AFTER_BYTES: u64 = 64 << 20;

/// How many bytes the records of each session keep. A content that several sessions keep counts for each.
pub type KeptBytes = HashMap<SessionId, u64>;

/// A file that refers to contents.
struct Referrer {
    path: PathBuf,
    kind: ReferrerKind,
    session: Option<SessionId>,
    folder: Option<PathBuf>,
    contents: Vec<ContentId>,
}

/// In the order in which files are removed when there is too much; within a kind the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReferrerKind {
    /// The last snapshot of a folder.
    Cache { at: i64 },
    /// The journal of a run.
    Journal { at: i64 },
    /// The snapshot of a run that is active or was killed. Never removed.
    Baseline,
}

impl UndoStore {
    /// Removes the records of a session, and the contents that only they refer to.
    pub fn delete_session(&self, session: &SessionId) -> Result<(), UndoError> {
        if !self.folder.exists() {
            return Ok(());
        }
        let _lock = self.lock_contents(LockKind::Exclusive)?;
        let mut referrers = self.referrers()?;
        let is_of_session = |referrer: &Referrer| referrer.session.as_ref() == Some(session);
        let own = referrers.iter().filter(|referrer| is_of_session(referrer));
        let folders: Vec<PathBuf> = own.filter_map(|referrer| referrer.folder.clone()).collect();
        // What the session kept of its folder goes too; the next run there reads the files again.
        let is_removed = |referrer: &Referrer| {
            let is_cache = matches!(referrer.kind, ReferrerKind::Cache { .. });
            let is_of_folder = referrer.folder.as_ref().is_some_and(|folder| folders.contains(folder));
            is_of_session(referrer) || is_cache && is_of_folder
        };
        for referrer in referrers.extract_if(.., |referrer| is_removed(referrer)) {
            remove(&referrer.path)?;
        }
        let folder = self.session_folder(session);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(UndoError::io("remove", &folder)(error));
            }
            _ => {}
        }
        self.remove_unreferenced(&referrers).map(|_| ())
    }

    /// How many bytes the records of each session keep.
    pub fn kept_bytes(&self) -> Result<KeptBytes, UndoError> {
        let (referrers, sizes) = (self.referrers()?, self.sizes()?);
        let mut contents: HashMap<SessionId, Vec<ContentId>> = HashMap::new();
        for referrer in referrers {
            if let (Some(session), ReferrerKind::Journal { .. }) = (referrer.session, referrer.kind) {
                contents.entry(session).or_default().extend(referrer.contents);
            }
        }
        let bytes = |mut ids: Vec<ContentId>| {
            ids.sort_unstable();
            ids.dedup();
            ids.iter().filter_map(|id| sizes.get(id)).sum()
        };
        Ok(contents.into_iter().map(|(session, ids)| (session, bytes(ids))).collect())
    }

    /// Removes contents that no record needs, and the oldest records until at most `max_bytes` are kept. Returns how many
    /// bytes are kept then.
    pub fn sweep(&self, max_bytes: u64) -> Result<u64, UndoError> {
        if !self.folder.exists() {
            return Ok(0);
        }
        let _lock = self.lock_contents(LockKind::Exclusive)?;
        let (mut referrers, sizes) = (self.referrers()?, self.sizes()?);
        let mut counts: HashMap<ContentId, usize> = HashMap::new();
        for id in referrers.iter().flat_map(|referrer| &referrer.contents) {
            *counts.entry(id.clone()).or_default() += 1;
        }
        let size = |id: &ContentId| sizes.get(id).copied().unwrap_or(0);
        let mut total: u64 = counts.keys().map(size).sum();
        referrers.sort_by_key(|referrer| std::cmp::Reverse(referrer.kind));
        while total > max_bytes
            && let Some(oldest) = referrers.pop_if(|oldest| oldest.kind != ReferrerKind::Baseline)
        {
            remove(&oldest.path)?;
            for id in &oldest.contents {
                let count = counts.get_mut(id).expect("it was counted above");
                *count -= 1;
                if *count == 0 {
                    total -= size(id);
                }
            }
        }
        self.contents.added.store(0, Ordering::Relaxed);
        self.remove_unreferenced(&referrers)
    }

    /// Sweeps if this process has added many bytes.
    pub(crate) fn sweep_if_grown(&self) -> Result<(), UndoError> {
        if self.contents.added.load(Ordering::Relaxed) >= SWEEP_AFTER_BYTES {
            self.sweep(KEPT_TOTAL_BYTES)?;
        }
        Ok(())
    }

    /// Removes all contents but those of `referrers`. Returns the size of the rest.
    fn remove_unreferenced(&self, referrers: &[Referrer]) -> Result<u64, UndoError> {
        let mut referenced: Vec<&ContentId> =
            referrers.iter().flat_map(|referrer| &referrer.contents).collect();
        referenced.sort_unstable();
        referenced.dedup();
        let mut kept = 0;
        for (path, id, size) in self.stored()? {
            match id.is_some_and(|id| referenced.binary_search(&&id).is_ok()) {
                true => kept += size,
                // Also unfinished files: whoever writes one holds the lock that this sweep has now.
                false => remove(&path)?,
            }
        }
        Ok(kept)
    }

    fn sizes(&self) -> Result<BTreeMap<ContentId, u64>, UndoError> {
        Ok(self.stored()?.into_iter().filter_map(|(_, id, size)| Some((id?, size))).collect())
    }

    /// The files of the contents, with their ids and sizes.
    fn stored(&self) -> Result<Vec<(PathBuf, Option<ContentId>, u64)>, UndoError> {
        let mut stored = Vec::new();
        for folder in entries(&self.contents.folder)? {
            for path in entries(&folder)? {
                let size = fs::symlink_metadata(&path).map_or(0, |metadata| metadata.len());
                let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
                let id = name(&folder).zip(name(&path));
                let id = id.and_then(|(folder, name)| ContentId::from_names(&folder, &name));
                stored.push((path, id, size));
            }
        }
        Ok(stored)
    }

    /// All files that refer to contents. A file that cannot be read refers to none.
    fn referrers(&self) -> Result<Vec<Referrer>, UndoError> {
        let mut referrers = Vec::new();
        for session in entries(&self.folder.join("runs"))? {
            for path in entries(&session)? {
                match path.extension().and_then(|extension| extension.to_str()) {
                    Some(JOURNAL) => referrers.extend(journal_referrer(path)?),
                    Some(BASELINE) => referrers.push(snapshot_referrer(path, |_| ReferrerKind::Baseline)),
                    _ => {}
                }
            }
        }
        for path in entries(&self.folder.join("folders"))? {
            referrers.push(snapshot_referrer(path, |at| ReferrerKind::Cache { at }));
        }
        Ok(referrers)
    }
}

fn journal_referrer(path: PathBuf) -> Result<Option<Referrer>, UndoError> {
    let Some(changes) = journal::read(&path)? else { return Ok(None) };
    let states = changes.files.iter().flat_map(|file| [&file.before, &file.after]);
    let contents = states.filter_map(|state| state.content().cloned()).collect();
    let record = changes.record;
    let kind = ReferrerKind::Journal { at: record.at.0 };
    Ok(Some(Referrer { path, kind, session: Some(record.session), folder: Some(record.folder), contents }))
}

fn snapshot_referrer(path: PathBuf, kind: impl FnOnce(i64) -> ReferrerKind) -> Referrer {
    let read = Snapshot::read::<StoredRecord>(&path).ok().flatten();
    let contents = read.iter().flat_map(|(_, snapshot)| snapshot.contents().cloned()).collect();
    let record = read.and_then(|(stored, _)| stored.read());
    let kind = kind(record.as_ref().map_or(0, |record| record.at.0));
    let (session, folder) = record.map(|record| (record.session, record.folder)).unzip();
    Referrer { path, kind, session, folder, contents }
}

fn remove(path: &Path) -> Result<(), UndoError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(UndoError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}
