//! Finds the session that `--continue` names: one of parlor's, or one that the program `synaps` saved.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::bail;
use parlor_doors::synaps::DOOR;
use parlor_engine::Sessions;
use parlor_log::{PageRequest, SessionRecord};
use parlor_vocab::{SessionId, SessionRefusal};

use super::import::{SavedSession, SavedSessions};

/// How many sessions are read at a time.
const PAGE_SIZE: usize = 200;
/// An error about an ambiguous name lists at most this many sessions.
const MAX_CANDIDATES: usize = 5;

/// The session to continue.
pub(super) enum Found {
    /// The log has it.
    Recorded(SessionId),
    /// It must be imported.
    Saved(Box<SavedSession>),
}

/// The session whose id, name or title is `wanted`, else the only one whose id contains `wanted`.
pub(super) async fn find(sessions: &Sessions, saved: &SavedSessions, wanted: &str) -> anyhow::Result<Found> {
    // Bridges mostly pass an id, which needs no search through the list.
    if let Some(id) = recorded(sessions, wanted).await? {
        return Ok(Found::Recorded(id));
    }
    if let Some(id) = saved.find_exactly(wanted) {
        return open_saved(sessions, saved, id).await;
    }
    let (mut titled, mut containing) = (Vec::new(), Vec::new());
    let mut request = PageRequest::first(PAGE_SIZE);
    loop {
        let page = sessions.list(request.clone()).await?;
        for record in page.records {
            if record.title.as_deref() == Some(wanted) {
                titled.push(record.id.to_string());
            } else if !wanted.is_empty() && record.id.as_str().contains(wanted) {
                containing.push(record.id.to_string());
            }
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => break,
        }
    }
    if titled.is_empty() && !wanted.is_empty() {
        let others = saved.ids().into_keys().filter(|id| id.contains(wanted) && !containing.contains(id));
        let others: Vec<String> = others.collect();
        containing.extend(others);
    }
    let found = if titled.is_empty() { containing } else { titled };
    match found.as_slice() {
        [one] => match recorded(sessions, one).await? {
            Some(id) => Ok(Found::Recorded(id)),
            None => open_saved(sessions, saved, one.clone()).await,
        },
        [] => bail!("no session {wanted:?}; `parlor sessions` lists all sessions"),
        several => {
            let candidates: Vec<&str> = several.iter().take(MAX_CANDIDATES).map(String::as_str).collect();
            bail!("{} sessions fit {wanted:?}; name one of them: {}", several.len(), candidates.join(", "))
        }
    }
}

/// The session of this door that was used last.
pub(super) async fn find_latest(sessions: &Sessions, saved: &SavedSessions) -> anyhow::Result<Found> {
    let here = latest_record(sessions).await?;
    let used = here.as_ref().and_then(|record| u64::try_from(record.updated.0).ok());
    let used = used.map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
    let there = saved.ids().into_iter().max_by_key(|(_, changed)| *changed);
    match (here, there) {
        (_, Some((id, changed))) if used.is_none_or(|used| changed > used) => {
            open_saved(sessions, saved, id).await
        }
        (Some(record), _) => Ok(Found::Recorded(record.id)),
        (None, _) => bail!("there is no session to continue; start without --continue"),
    }
}

/// The session of this door with messages that was used last.
async fn latest_record(sessions: &Sessions) -> anyhow::Result<Option<SessionRecord>> {
    let mut request = PageRequest::first(PAGE_SIZE);
    loop {
        let page = sessions.list(request.clone()).await?;
        let is_used = |record: &SessionRecord| record.door == DOOR && record.messages > 0;
        if let Some(record) = page.records.into_iter().find(is_used) {
            return Ok(Some(record));
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(None),
        }
    }
}

/// The session that continues the saved session `id`, which may have been imported before.
async fn open_saved(sessions: &Sessions, saved: &SavedSessions, id: String) -> anyhow::Result<Found> {
    if let Some(id) = recorded(sessions, &id).await? {
        return Ok(Found::Recorded(id));
    }
    let session = saved.load_newest(id).await?;
    Ok(match recorded(sessions, session.id()).await? {
        Some(id) => Found::Recorded(id),
        None => Found::Saved(Box::new(session)),
    })
}

/// The session with this id in the log.
async fn recorded(sessions: &Sessions, id: &str) -> anyhow::Result<Option<SessionId>> {
    let Ok(id) = SessionId::parse(id) else { return Ok(None) };
    match sessions.record(&id).await {
        Ok(record) => Ok(Some(record.id)),
        Err(SessionRefusal::UnknownSession(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
