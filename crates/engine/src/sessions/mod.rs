//! The registry of sessions. It opens a session when somebody uses it; each open session has one actor that alone
//! writes it.

mod actor;
mod agents;
pub(crate) mod client;
mod close;
mod collect;
mod create;
mod daily_spend;
mod delete;
mod handle;
mod history_loader;
pub(crate) mod live;
mod mirror;
mod open_sessions;
mod peer_watches;
mod peers;
mod routing;
mod run_driver;
pub(crate) mod text_bytes;
mod watch_start;
pub(crate) mod watcher;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use parlor_log::{EventLog, LogError, Page, PageRequest, SessionRecord, UsageLine};
use parlor_tools::{NoSecrets, Redact, Toolbox};
use parlor_vocab::{
    AgentChoice, AgentId, Clock, FileError, IdSource, Media, MediaId, NamedFile, Seq, SessionId,
    SessionRefusal, SessionTotals, WatchFrom,
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

pub use self::actor::{PARTIAL_TEXT_BYTES, PARTIAL_TEXT_INTERVAL};
pub use self::agents::Agents;
pub use self::history_loader::CACHED_HISTORY_BYTES;
use self::mirror::Mirrors;
pub use self::open_sessions::MAX_OPEN_SESSIONS;
use self::open_sessions::{Route, SessionRoutes};
use self::peer_watches::{PeerWatch, PeerWatches};
pub use self::peers::{PeerConnection, PeerError, Peers};
pub use self::routing::{OWNER_WAIT, PEER_REPLY_WAIT};
pub(crate) use self::watch_start::WatchStart;
use crate::media::{MAX_MEDIA_BYTES, MediaStore};
use crate::session::{ResolvedChoice, Session};
use crate::sessions::live::LiveSessions;
use crate::sessions::watcher::Watcher;

/// How many runs may be active at a time in all sessions of this process.
pub const MAX_ACTIVE_RUNS: usize = 256;

/// Reads files from the network. The program provides it where the settings allow that.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// Downloads the file at `url`. Fails if it has more than `max_bytes`.
    async fn fetch(&self, url: &str, max_bytes: u64) -> Result<Vec<u8>, FileError>;
}

/// What all sessions need from the rest of the program.
pub struct SessionDeps {
    /// The log that holds the events of all sessions.
    pub log: Arc<dyn EventLog>,
    /// The configured agents.
    pub agents: Agents,
    /// The tools that agents may call.
    pub tools: Toolbox,
    /// The store for files that are attached to messages.
    pub media: MediaStore,
    /// The complete environment of the commands that tools run.
    pub env: Arc<[(String, String)]>,
    /// The source of timestamps.
    pub clock: Arc<dyn Clock>,
    /// The source of new ids.
    pub ids: Arc<dyn IdSource>,
}

/// Which process has a session open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOwner {
    /// This process.
    ThisProcess {
        /// How many inputs wait in the session's queue.
        waiting: usize,
    },
    /// Another process, through which this one can use the session.
    Peer,
    /// Another process, which this one cannot reach.
    OtherProcess,
    /// No process.
    Nobody,
}

/// In which processes a client's requests may be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Wherever the session is open.
    AllProcesses,
    /// Only here. For a client that is another process: its requests are not passed on, or they could go in circles.
    ThisProcess,
}

/// What all sessions share.
struct SessionShared {
    deps: Arc<SessionDeps>,
    redact: Arc<dyn Redact>,
    /// Parlor's own folders, which tools must not change.
    state_folders: Vec<Arc<Path>>,
    live_sessions: LiveSessions,
    /// A permit for each run that may be active.
    run_slots: Arc<Semaphore>,
    /// Whether inputs that are queued in a session start when it is opened.
    starts_queued: bool,
}

/// The registry of all sessions. A process has one.
pub struct Sessions {
    shared: SessionShared,
    open_sessions: SessionRoutes,
    mirrors: Mirrors,
    peer_watches: PeerWatches,
    fetch: Option<Arc<dyn Fetch>>,
    /// How sessions of other processes are reached; `None` refuses them.
    peers: Option<Arc<dyn Peers>>,
    /// Cancelled when no session may be opened any more.
    shutting_down: CancellationToken,
    /// Set when this process begins to close its sessions: it opens none for other processes any more.
    is_leaving: AtomicBool,
}

impl Sessions {
    /// A registry with no open session.
    pub fn new(deps: SessionDeps) -> Self {
        let run_slots = Arc::new(Semaphore::new(MAX_ACTIVE_RUNS));
        let redact = Arc::new(NoSecrets);
        let (deps, live_sessions) = (Arc::new(deps), LiveSessions::default());
        let state_folders = Vec::new();
        let shared =
            SessionShared { deps, redact, state_folders, live_sessions, run_slots, starts_queued: true };
        let shutting_down = CancellationToken::new();
        let (open_sessions, mirrors) = (SessionRoutes::default(), Mirrors::default());
        let (peer_watches, is_leaving) = (PeerWatches::default(), AtomicBool::new(false));
        Self {
            shared,
            open_sessions,
            mirrors,
            peer_watches,
            fetch: None,
            peers: None,
            shutting_down,
            is_leaving,
        }
    }

    /// What answers an input with `choice` in a session that chose `of_session`. Fails if `choice` names an agent that is
    /// not configured. [`ResolvedChoice::model_id`] is `None` if the agent uses no model, so that a door can refuse a
    /// model that would not be used.
    pub fn resolve(
        &self,
        of_session: &AgentChoice,
        choice: &AgentChoice,
    ) -> Result<ResolvedChoice, SessionRefusal> {
        Ok(self.shared.deps.agents.resolve(of_session, choice)?.choice)
    }

    /// The state of a session. Opens the session if no process has it open: an interrupted run is recorded as failed,
    /// and queued inputs start.
    pub async fn view(&self, id: &SessionId) -> Result<Session, SessionRefusal> {
        if let Route::Here(session) = self.route(id).await? {
            let session = session.view().await?;
            if session.history.is_cached() {
                return Ok(session);
            }
        }
        self.read(id).await
    }

    /// Like [`view`](Self::view), but a long history may be missing: it is not read from the log.
    pub async fn view_without_history(&self, id: &SessionId) -> Result<Session, SessionRefusal> {
        match self.route(id).await? {
            Route::Here(session) => session.view().await,
            Route::Peer(_) => self.read(id).await,
        }
    }

    /// The number of messages and the usage of a session. Opens the session if necessary.
    pub async fn totals(&self, id: &SessionId) -> Result<SessionTotals, SessionRefusal> {
        match self.route(id).await? {
            Route::Here(session) => session.totals().await,
            Route::Peer(_) => {
                let session = self.read(id).await?;
                let messages = session.history.message_count().unwrap_or_default();
                Ok(SessionTotals { messages, usage: session.usage() })
            }
        }
    }

    /// Why the end of a run of the session could not be recorded so far, if so. The session tries again until it
    /// succeeds; watchers see nothing of that. Opens the session if no process has it open; `None` if another has.
    pub async fn recording_error(&self, id: &SessionId) -> Result<Option<String>, SessionRefusal> {
        match self.route(id).await? {
            Route::Here(session) => session.recording_error().await,
            Route::Peer(_) => Ok(None),
        }
    }

    /// Reads the state of a session from the log, without opening it.
    pub async fn read(&self, id: &SessionId) -> Result<Session, SessionRefusal> {
        handle::read(&self.shared, id).await
    }

    /// Like [`read`](Self::read), but with at most `max_bytes` of the newest history, and without tool uses.
    /// [`Session::history_is_cut`] tells whether older items are missing.
    pub async fn read_newest(&self, id: &SessionId, max_bytes: usize) -> Result<Session, SessionRefusal> {
        handle::read_newest(&self.shared, id, max_bytes).await
    }

    /// Watches a session from after a position in its log. A text that is open there is delivered from its start. Does
    /// not open the session: events that another process writes arrive too, but without the text that is being written,
    /// unless the watcher [joins](Self::join).
    pub async fn watch(&self, id: &SessionId, after: Seq) -> Watcher {
        let log = &self.shared.deps.log;
        // On an error the watcher starts without the open texts, and its first read reports the error.
        let from = watch_start::before_open_texts(&**log, id, after).await.unwrap_or(after);
        Watcher::new(Arc::clone(log), id.clone(), from, self.shared.live_sessions.of(id)).deliver_after(after)
    }

    /// Like [`watch`](Self::watch), and delivers the text that is being written, also by another process. If that process
    /// dies in the middle of a run, this one takes the session over.
    pub async fn join(self: &Arc<Self>, id: &SessionId, after: Seq) -> Watcher {
        self.watch(id, after).await.join(self)
    }

    /// Watches a session that is open in this process, for another process: text comes as it is written. Fails if the
    /// session is not open here.
    async fn watch_here(&self, id: &SessionId, after: Seq) -> Result<(Watcher, PeerWatch), SessionRefusal> {
        let closing = || SessionRefusal::session_closing(id);
        let closed = self.open_sessions.get(id).await.ok_or_else(closing)?.closed_token();
        let watch = self.peer_watches.begin(id, closed);
        Ok((self.watch(id, after).await.without_text_interval(), watch))
    }

    /// Mirrors the session if another process has it open.
    pub(crate) fn mirror(self: &Arc<Self>, id: &SessionId) {
        if self.peers.is_some() {
            self.mirrors.ensure(self, id);
        }
    }

    /// The log positions for a client that begins to watch a session at `from`.
    pub(crate) async fn find_watch_start(
        &self,
        id: &SessionId,
        from: &WatchFrom,
    ) -> Result<WatchStart, SessionRefusal> {
        watch_start::find(&*self.shared.deps.log, id, from).await.map_err(refusal_of)
    }

    /// The position before the run that is active at `position`, or `position` itself if none is. A client that wants
    /// the events after `position` must read from there to know the run that they belong to.
    pub async fn start_of_run_at(&self, id: &SessionId, position: Seq) -> Result<Seq, SessionRefusal> {
        watch_start::start_of_run_at(&*self.shared.deps.log, id, position).await.map_err(refusal_of)
    }

    /// Changes when an event is appended to a session, and when the session is created.
    pub(crate) fn head(&self, id: &SessionId) -> watch::Receiver<Seq> {
        self.shared.deps.log.head(id)
    }

    /// The ids and display names of the configured agents, the default first.
    pub fn agents(&self) -> Vec<(AgentId, String)> {
        self.shared.deps.agents.list()
    }

    /// Leaves queued inputs in the sessions that this process opens, for a process that ends soon: it would start their
    /// runs and stop them again. The next process that opens a session starts them.
    #[must_use]
    pub fn leaving_queued_inputs(mut self) -> Self {
        self.shared.starts_queued = false;
        self
    }

    /// Enables requests for files from the network. Without this they fail.
    #[must_use]
    pub fn with_fetch(mut self, fetch: Arc<dyn Fetch>) -> Self {
        self.fetch = Some(fetch);
        self
    }

    /// Reaches sessions that other processes have open through `peers`. Without this they are refused.
    #[must_use]
    pub fn with_peers(mut self, peers: Arc<dyn Peers>) -> Self {
        self.peers = Some(peers);
        self
    }

    /// Removes the secrets that `redact` knows from everything that runs record and show.
    #[must_use]
    pub fn with_redaction(mut self, redact: Arc<dyn Redact>) -> Self {
        self.shared.redact = redact;
        self
    }

    /// Keeps tools from changing parlor's own folder `folder`, and from reading the secrets in it. Call it once for each
    /// such folder.
    #[must_use]
    pub fn with_state_folder(mut self, folder: &Path) -> Self {
        self.shared.state_folders.push(folder.into());
        self
    }

    /// Reads a file from the network, unless the program shuts down meanwhile.
    pub(crate) async fn fetch(&self, url: &str, max_bytes: u64) -> Result<NamedFile, FileError> {
        let fetch = self.fetch.as_ref().ok_or(FileError::Unreadable)?;
        let fetching = self.shutting_down.run_until_cancelled(fetch.fetch(url, max_bytes));
        let bytes = fetching.await.ok_or(FileError::Unreadable)??;
        Ok(NamedFile { name: String::new(), bytes })
    }

    /// A page of all sessions, the last updated first.
    pub async fn list(&self, page: PageRequest) -> Result<Page, SessionRefusal> {
        self.shared.deps.log.sessions(page).await.map_err(refusal_of)
    }

    /// Tokens and cost of all sessions of all processes, from the day `since` on. Days are counted from 1970, UTC.
    pub async fn usage(&self, since: i64) -> Result<Vec<UsageLine>, SessionRefusal> {
        self.shared.deps.log.usage(since).await.map_err(refusal_of)
    }

    /// The log's summary of a session. Does not open the session.
    pub async fn record(&self, id: &SessionId) -> Result<SessionRecord, SessionRefusal> {
        self.shared.deps.log.session(id).await.map_err(refusal_of)
    }

    /// Whether a run of the session was interrupted by the death of its process. The run is recorded as failed when
    /// the session is opened.
    pub async fn is_interrupted(&self, record: &SessionRecord) -> bool {
        record.running.is_some()
            && self.owner(&record.id).await.is_ok_and(|owner| owner == SessionOwner::Nobody)
    }

    /// How many inputs were queued when the program that had the session open shut down. They start when the session
    /// is opened. Zero if the session did not end by a shutdown.
    pub async fn left_inputs(&self, record: &SessionRecord) -> Result<usize, SessionRefusal> {
        watch_start::left_inputs(&*self.shared.deps.log, record).await.map_err(refusal_of)
    }

    /// Which process has a session open. Does not open the session.
    pub async fn owner(&self, id: &SessionId) -> Result<SessionOwner, SessionRefusal> {
        if let Some(session) = self.open_sessions.get(id).await {
            return Ok(SessionOwner::ThisProcess { waiting: session.queue_length().await? });
        }
        match self.shared.deps.log.holder(id).await.map_err(refusal_of)? {
            Some(holder) if self.peers.is_some() && holder.announcement.address.is_some() => {
                Ok(SessionOwner::Peer)
            }
            Some(_) => Ok(SessionOwner::OtherProcess),
            None => Ok(SessionOwner::Nobody),
        }
    }

    /// Stores files that will be attached to an input. After an error, a sweep removes those that were stored.
    pub async fn store_media(&self, new: Vec<NamedFile>) -> Result<Vec<Media>, SessionRefusal> {
        let mut stored = Vec::with_capacity(new.len());
        for NamedFile { name, bytes } in new {
            let media = self.shared.deps.media.put(&name, bytes, MAX_MEDIA_BYTES).await;
            stored
                .push(media.map_err(|error| SessionRefusal::MediaUnavailable { reason: error.to_string() })?);
        }
        Ok(stored)
    }

    /// Removes stored files that no event refers to after all. The next sweep removes those that it cannot remove.
    pub async fn discard_media(&self, ids: Vec<MediaId>) -> Result<(), SessionRefusal> {
        let discarded = self.shared.deps.media.discard(ids).await;
        discarded.map_err(|error| SessionRefusal::MediaUnavailable { reason: error.to_string() })
    }

    /// The tools that agents may call.
    pub fn tools(&self) -> &Toolbox {
        &self.shared.deps.tools
    }

    /// The contents of stored files, at most `max_bytes` in total. `None` for a file that is missing, is damaged, or
    /// does not fit into the rest of the limit.
    pub async fn read_media(&self, ids: &[MediaId], max_bytes: u64) -> Vec<Option<Vec<u8>>> {
        let (mut contents, mut remaining) = (Vec::with_capacity(ids.len()), max_bytes);
        for id in ids {
            let content = self.shared.deps.media.read(id, remaining).await.ok();
            remaining -= content.as_ref().map_or(0, |content| content.len() as u64);
            contents.push(content);
        }
        contents
    }

    /// Opens a stored file; also returns its size in bytes. `None` if it is missing. Does not check the content.
    pub async fn open_media(&self, id: &MediaId) -> Option<(std::fs::File, u64)> {
        self.shared.deps.media.open_file(id).await.ok()
    }
}

/// The refusal that a client gets for an error of the log.
fn refusal_of(error: LogError) -> SessionRefusal {
    match error {
        LogError::UnknownSession(id) => SessionRefusal::UnknownSession(id),
        LogError::Held { session, by } => routing::held(&session, &by),
        error @ (LogError::Conflict { .. }
        | LogError::NotHeld { .. }
        | LogError::Unreadable { .. }
        | LogError::Full { .. }
        | LogError::ReadOnly { .. }
        | LogError::Replaced { .. }
        | LogError::Damaged { .. }
        | LogError::InUse { .. }
        | LogError::Busy
        | LogError::Unavailable { .. }
        | LogError::Newer { .. }
        | LogError::Database { .. }
        | LogError::Io { .. }
        | LogError::Closed) => SessionRefusal::LogUnavailable { reason: error.to_string() },
    }
}
