//! Carries out one request of a client.

use std::pin::Pin;
use std::sync::Arc;

use parlor_vocab::{
    FileError, NamedFile, RegistryReply, RegistryRequest, Seq, SessionId, SessionOverview, SessionRefusal,
};

use super::super::watch_start::WatchStart;
use crate::{Links, Sessions, Watcher, read_files};

pub(super) type Outcome = Result<RegistryReply, SessionRefusal>;

/// What a dispatched request has come to.
pub(super) enum Dispatched {
    Done(RegistryReply),
    /// A task works on it; the next request may follow.
    Deferred(Pin<Box<dyn Future<Output = Outcome> + Send>>),
    /// Once this is answered, the session is watched.
    Watch {
        session: SessionId,
        watcher: Box<Watcher>,
        seen: Seq,
        head: Seq,
    },
    /// The session is not watched any more.
    Unwatch(SessionId),
}

/// Carries out `request`, as far as the next one has to wait for it.
pub(super) async fn dispatch(
    sessions: &Arc<Sessions>,
    request: RegistryRequest,
) -> Result<Dispatched, SessionRefusal> {
    let reply = match request {
        RegistryRequest::Create { id, new_session } => {
            RegistryReply::Created(sessions.create(id, *new_session).await?)
        }
        RegistryRequest::Fork { id, from, message } => {
            RegistryReply::Created(sessions.fork(id, &from, message.as_ref()).await?)
        }
        RegistryRequest::Session(id, command) => {
            let answer = sessions.submit(&id, command).await?;
            return Ok(Dispatched::Deferred(Box::pin(async { answer.await.map(RegistryReply::Session) })));
        }
        RegistryRequest::Look(id) => RegistryReply::Overview(Box::new(overview(sessions, &id).await?)),
        RegistryRequest::Watch { session, after } => {
            let WatchStart { from, seen, head, is_unfinished } = sessions.beginning(&session, &after).await?;
            if is_unfinished {
                resume(sessions, &session);
            }
            let watcher = Box::new(sessions.watch(&session, from).await);
            return Ok(Dispatched::Watch { session, watcher, seen, head });
        }
        RegistryRequest::Unwatch(id) => return Ok(Dispatched::Unwatch(id)),
        RegistryRequest::Leave(id) => {
            sessions.leave(&id).await?;
            return Ok(Dispatched::Unwatch(id));
        }
        RegistryRequest::Delete(id) => {
            sessions.delete(&id).await?;
            RegistryReply::Done
        }
        RegistryRequest::ReadFiles { paths, max_bytes } => {
            let files = read_files(paths, max_bytes, Links::Refuse).await;
            RegistryReply::Files(files.into_iter().map(|file| file.and_then(refuse_empty)).collect())
        }
        RegistryRequest::Fetch { url, max_bytes } => {
            let sessions = Arc::clone(sessions);
            return Ok(Dispatched::Deferred(Box::pin(async move {
                Ok(RegistryReply::Files(vec![sessions.fetch(&url, max_bytes).await]))
            })));
        }
        RegistryRequest::StoreMedia(new) => RegistryReply::Stored(sessions.store_media(new).await?),
        RegistryRequest::ReadMedia { ids, max_bytes } => {
            RegistryReply::Contents(sessions.read_media(&ids, max_bytes).await)
        }
    };
    Ok(Dispatched::Done(reply))
}

/// Opens a session whose log says that a run is active. If the process that ran it is gone, opening ends that run and
/// starts the queued inputs; a watcher waits for that and may send nothing itself. A session that another process has
/// open stays as it is.
fn resume(sessions: &Arc<Sessions>, session: &SessionId) {
    let (sessions, session) = (Arc::clone(sessions), session.clone());
    tokio::spawn(async move { sessions.trouble(&session).await });
}

fn refuse_empty(file: NamedFile) -> Result<NamedFile, FileError> {
    if file.bytes.is_empty() { Err(FileError::Empty) } else { Ok(file) }
}

async fn overview(sessions: &Sessions, id: &SessionId) -> Result<SessionOverview, SessionRefusal> {
    let session = sessions.view(id).await?;
    Ok(SessionOverview {
        id: id.clone(),
        head: session.head(),
        title: session.title().map(str::to_owned),
        choice: session.choice().clone(),
        history: session.history().to_vec(),
        usage: session.usage(),
        queue: session.queue().cloned().collect(),
        active: session.active().cloned(),
    })
}
