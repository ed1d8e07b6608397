//! Which session `--continue` means.

use anyhow::bail;
use parlor_engine::Sessions;
use parlor_log::PageRequest;
use parlor_vocab::{SessionId, SessionRefusal};

/// How many sessions are looked at together.
const PAGE: usize = 200;
/// How many are named when it is not clear which one is meant.
const NAMED: usize = 5;

/// The session of the title `wanted`, else of that id, else the only one whose id contains it.
pub(super) async fn find(sessions: &Sessions, wanted: &str) -> anyhow::Result<SessionId> {
    // An id is what parents have, and needs no list.
    if let Ok(id) = SessionId::parse(wanted) {
        match sessions.record(&id).await {
            Ok(record) => return Ok(record.id),
            Err(SessionRefusal::UnknownSession(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (mut titled, mut containing) = (Vec::new(), Vec::new());
    let mut request = PageRequest::first(PAGE);
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
        [] => bail!("no session {wanted:?}; `parlor sessions` lists those there are"),
        several => {
            let named: Vec<&str> = several.iter().take(NAMED).map(SessionId::as_str).collect();
            bail!("{} sessions fit {wanted:?}, say which one: {}", several.len(), named.join(", "))
        }
    }
}
