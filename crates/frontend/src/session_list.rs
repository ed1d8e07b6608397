//! The list of all sessions with their working folders, for clients that choose a session by its folder.

use std::path::{Path, PathBuf};

use parlor_engine::Sessions;
use parlor_log::{MAX_PAGE, PageCursor, PageRequest, SessionRecord};
use parlor_vocab::{FrontendReply, ListedSession, SessionDescription, SessionId, SessionRefusal};

/// One page of the sessions in `folder`, or of all sessions. Reads on until the page is full, so that a page is never
/// empty while a later session would be listed.
pub(super) async fn page(
    sessions: &Sessions,
    folder: Option<&Path>,
    after: Option<&str>,
    limit: usize,
) -> Result<FrontendReply, SessionRefusal> {
    let limit = limit.clamp(1, MAX_PAGE);
    let mut request = PageRequest::first(MAX_PAGE);
    if let Some(after) = after {
        let Some(cursor) = PageCursor::parse(after) else { return Ok(FrontendReply::UnknownPage) };
        request.after = Some(cursor);
    }
    if folder.is_none() {
        request.limit = limit + 1;
    }
    let (mut listed, mut last) = (Vec::new(), None);
    loop {
        let page = sessions.list(request.clone()).await?;
        for record in page.records {
            let Some(creation) = sessions.creation(&record.id).await? else { continue };
            if folder.is_some_and(|folder| folder != creation.folder) {
                continue;
            }
            if listed.len() == limit {
                return Ok(FrontendReply::Sessions { sessions: listed, next: last });
            }
            last = Some(PageCursor::of(&record).to_string());
            listed.push(row(record, creation.folder));
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(FrontendReply::Sessions { sessions: listed, next: None }),
        }
    }
}

fn row(record: SessionRecord, folder: PathBuf) -> ListedSession {
    ListedSession { id: record.id, folder, title: record.title, updated: record.updated }
}

/// The session with this id. Opening it records the end of a run that was cut off.
pub(super) async fn describe(
    sessions: &Sessions,
    id: &SessionId,
) -> Result<Option<SessionDescription>, SessionRefusal> {
    let session = match sessions.view_without_history(id).await {
        Ok(session) => session,
        Err(SessionRefusal::UnknownSession(_)) => return Ok(None),
        Err(refusal) => return Err(refusal),
    };
    let folder = session.new_session().map(|new_session| new_session.folder.clone()).unwrap_or_default();
    let (choice, mode) = (session.choice().clone(), session.mode());
    Ok(Some(SessionDescription { folder, choice, mode, usage: session.usage() }))
}

/// Why `path` cannot be a working folder, if so.
pub(super) async fn check_folder(path: PathBuf) -> Result<(), String> {
    let check = move || match std::fs::read_dir(&path) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{} cannot be used as a working folder: {error}", path.display())),
    };
    let result = tokio::task::spawn_blocking(check).await;
    result.unwrap_or_else(|_| Err("the program is ending".to_owned()))
}
