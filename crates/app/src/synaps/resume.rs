//! Finds the session that `--continue` names.

use anyhow::bail;
use parlor_engine::Sessions;
use parlor_log::PageRequest;
use parlor_vocab::{SessionId, SessionRefusal};

/// How many sessions are read at a time.
const PAGE_SIZE: usize = 200;
/// An error about an ambiguous name lists at most this many sessions.
const MAX_CANDIDATES: usize = 5;

/// The session whose id or title is `wanted`, else the only one whose id contains `wanted`.
pub(super) async fn find(sessions: &Sessions, wanted: &str) -> anyhow::Result<SessionId> {
    // Bridges mostly pass an id, which needs no search through the list.
    if let Ok(id) = SessionId::parse(wanted) {
        match sessions.record(&id).await {
            Ok(record) => return Ok(record.id),
            Err(SessionRefusal::UnknownSession(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (mut titled, mut containing) = (Vec::new(), Vec::new());
    let mut request = PageRequest::first(PAGE_SIZE);
    loop {
        let page = sessions.list(request.clone()).await?;
        for record in page.records {
            if record.title.as_deref() == Some(wanted) {
                titled.push(record.id);
            } else if !wanted.is_empty() && record.id.as_str().contains(wanted) {
                containing.push(record.id);
            }
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => break,
        }
    }
    let found = if titled.is_empty() { containing } else { titled };
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => bail!("no session {wanted:?}; `parlor sessions` lists all sessions"),
        several => {
            let candidates: Vec<&str> = several.iter().take(MAX_CANDIDATES).map(SessionId::as_str).collect();
            bail!("{} sessions fit {wanted:?}; name one of them: {}", several.len(), candidates.join(", "))
        }
    }
}
