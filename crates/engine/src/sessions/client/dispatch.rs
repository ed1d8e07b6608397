//! Executes one request of a client.

use std::pin::Pin;
use std::sync::Arc;

use parlor_vocab::{FileError, NamedFile, RegistryReply, RegistryRequest, Seq, SessionId, SessionRefusal};

use super::super::Reach;
use super::super::peer_watches::PeerWatch;
use super::super::watch_start::WatchStart;
use crate::{Sessions, SymlinkPolicy, Watcher, read_files};

pub(super) type Outcome = Result<RegistryReply, SessionRefusal>;

/// The result of dispatching a request.
pub(super) enum Dispatched {
    /// The request is done.
    Done(RegistryReply),
    /// The reply comes from this future; the next request may be dispatched meanwhile.
    Deferred(Pin<Box<dyn Future<Output = Outcome> + Send>>),
    /// The client watches the session once this request is answered.
    Watch {
        session: SessionId,
        watcher: Box<Watcher>,
        seen: Seq,
        head: Seq,
        /// If another process watches.
        peer: Option<PeerWatch>,
    },
    /// The client stops watching the session.
    Unwatch(SessionId),
}

/// Executes `request` as far as the next request must wait for it.
pub(super) async fn dispatch(
    sessions: &Arc<Sessions>,
    reach: Reach,
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
            let outcome: Pin<Box<dyn Future<Output = Outcome> + Send>> = match reach {
                Reach::AllProcesses => {
                    let (submitted, sessions) = (sessions.submit(&id, command).await?, Arc::clone(sessions));
                    Box::pin(
                        async move { sessions.reply_to(&id, submitted).await.map(RegistryReply::Session) },
                    )
                }
                Reach::ThisProcess => {
                    let submitted = sessions.submit_here(&id, command).await?;
                    Box::pin(
                        async move { Sessions::reply_here(&id, submitted).await.map(RegistryReply::Session) },
                    )
                }
            };
            return Ok(Dispatched::Deferred(outcome));
        }
        RegistryRequest::GetOverview(id) => {
            let session = sessions.view(&id).await?;
            RegistryReply::Overview(Box::new(session.overview(id)))
        }
        RegistryRequest::GetTotals(id) => RegistryReply::Totals(sessions.totals(&id).await?),
        RegistryRequest::Watch { session, after, deltas } => {
            let WatchStart { from, seen, head, is_unfinished } =
                sessions.find_watch_start(&session, &after).await?;
            let (watcher, peer) = match reach {
                Reach::AllProcesses => {
                    if is_unfinished {
                        resume(sessions, &session);
                    }
                    (sessions.join(&session, from).await, None)
                }
                Reach::ThisProcess => {
                    let (watcher, peer) = sessions.watch_here(&session, from).await?;
                    (watcher, Some(peer))
                }
            };
            let watcher = Box::new(if deltas { watcher } else { watcher.without_deltas() });
            return Ok(Dispatched::Watch { session, watcher, seen, head, peer });
        }
        RegistryRequest::Unwatch(id) => return Ok(Dispatched::Unwatch(id)),
        RegistryRequest::Release(id) => {
            // A busy session stays loaded.
            let _ = sessions.release(&id).await;
            return Ok(Dispatched::Unwatch(id));
        }
        RegistryRequest::Delete(id) => {
            sessions.delete_within(&id, reach).await?;
            RegistryReply::Done
        }
        // The client handles it itself.
        RegistryRequest::DeleteIfUnused(_) => RegistryReply::Done,
        RegistryRequest::ReadFiles { paths, max_bytes } => {
            let files = read_files(paths, max_bytes, SymlinkPolicy::Refuse).await;
            RegistryReply::Files(files.into_iter().map(|file| file.and_then(refuse_empty)).collect())
        }
        RegistryRequest::Fetch { url, max_bytes } => {
            let sessions = Arc::clone(sessions);
            return Ok(Dispatched::Deferred(Box::pin(async move {
                Ok(RegistryReply::Files(vec![sessions.fetch(&url, max_bytes).await]))
            })));
        }
        RegistryRequest::StoreMedia(new) => RegistryReply::Stored(sessions.store_media(new).await?),
        RegistryRequest::DiscardMedia(ids) => {
            sessions.discard_media(ids).await?;
            RegistryReply::Done
        }
        RegistryRequest::ReadMedia { ids, max_bytes } => {
            RegistryReply::Contents(sessions.read_media(&ids, max_bytes).await)
        }
    };
    Ok(Dispatched::Done(reply))
}

/// Opens, in the background, a session whose log says that a run is active. If the process that ran it is dead,
/// opening records that run as failed and starts the next queued input. A watcher waits for that and may never send a
/// command itself. A session that another process has open stays as it is.
fn resume(sessions: &Arc<Sessions>, session: &SessionId) {
    let (sessions, session) = (Arc::clone(sessions), session.clone());
    tokio::spawn(async move { sessions.route(&session).await.map(|_| ()) });
}

fn refuse_empty(file: NamedFile) -> Result<NamedFile, FileError> {
    if file.bytes.is_empty() { Err(FileError::Empty) } else { Ok(file) }
}
