//! The registry of sessions. It opens a session when somebody uses it; each open session has one actor that alone
//! writes it.

mod actor;
mod agents;
pub(crate) mod client;
mod collect;
mod daily_spend;
mod handle;
mod history_loader;
pub(crate) mod live;
mod open_sessions;
mod run_driver;
mod text_bytes;
mod watch_start;
pub(crate) mod watcher;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use parlor_log::{Erased, EventLog, LogError, Page, PageRequest, SessionRecord, UsageLine};
use parlor_tools::{NoSecrets, Redact, Toolbox};
use parlor_vocab::{
    AgentId, Clock, ClosingPart, FileError, ForkOrigin, IdSource, Media, MediaId, Message, MessageId,
    NamedFile, NewSession, Seq, SessionCommand, SessionId, SessionRefusal, SessionReply, WatchFrom,
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

pub use self::agents::Agents;
use self::handle::OpenSession;
pub use self::history_loader::CACHED_HISTORY_BYTES;
pub use self::open_sessions::MAX_OPEN_SESSIONS;
use self::open_sessions::OpenSessions;
pub(crate) use self::watch_start::WatchStart;
use crate::media::{MAX_MEDIA_BYTES, MediaStore};
use crate::session::Session;
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
    /// Another process.
    OtherProcess,
    /// No process.
    Nobody,
}

/// What all sessions share.
struct SessionShared {
    deps: Arc<SessionDeps>,
    redact: Arc<dyn Redact>,
    /// Parlor's own folder, which tools must not change.
    state_folder: Option<Arc<Path>>,
    live_sessions: LiveSessions,
    /// A permit for each run that may be active.
    run_slots: Arc<Semaphore>,
}

/// The registry of all sessions. A process has one.
pub struct Sessions {
    shared: SessionShared,
    open_sessions: OpenSessions,
    fetch: Option<Arc<dyn Fetch>>,
    /// Cancelled when no session may be opened any more.
    shutting_down: CancellationToken,
}

impl Sessions {
    /// A registry with no open session.
    pub fn new(deps: SessionDeps) -> Self {
        let run_slots = Arc::new(Semaphore::new(MAX_ACTIVE_RUNS));
        let redact = Arc::new(NoSecrets);
        let (deps, live_sessions) = (Arc::new(deps), LiveSessions::default());
        let shared = SessionShared { deps, redact, state_folder: None, live_sessions, run_slots };
        let shutting_down = CancellationToken::new();
        Self { shared, open_sessions: OpenSessions::default(), fetch: None, shutting_down }
    }

    /// Creates a session with the id `id`, or with a new id, and returns the id once the session is durable.
    pub async fn create(
        &self,
        id: Option<SessionId>,
        new_session: NewSession,
    ) -> Result<SessionId, SessionRefusal> {
        self.create_with(id, new_session, Vec::new()).await
    }

    /// Creates a session that begins with the messages of the session `from`, up to and including `message`, or all
    /// if it is `None`. Tool uses are not copied. `from` need not be open in this process.
    pub async fn fork(
        &self,
        id: Option<SessionId>,
        from: &SessionId,
        message: Option<&MessageId>,
    ) -> Result<SessionId, SessionRefusal> {
        let source = self.read(from).await?;
        let mut messages: Vec<Message> = source.messages().cloned().collect();
        if let Some(last) = message {
            let index = messages.iter().position(|message| message.id == *last);
            let index = index.ok_or_else(|| SessionRefusal::UnknownMessage(last.clone()))?;
            messages.truncate(index + 1);
        }
        let new_session =
            source.new_session().cloned().ok_or_else(|| SessionRefusal::UnknownSession(from.clone()))?;
        let last = messages.last().map(|message| message.id.clone());
        let new_session = NewSession {
            title: source.title().map(str::to_owned),
            choice: source.choice().clone(),
            forked_from: last.map(|message| ForkOrigin { session: from.clone(), message }),
            ..new_session
        };
        for message in &mut messages {
            message.id = MessageId::generate(self.shared.deps.ids.next());
        }
        self.create_with(id, new_session, messages).await
    }

    async fn create_with(
        &self,
        id: Option<SessionId>,
        new_session: NewSession,
        messages: Vec<Message>,
    ) -> Result<SessionId, SessionRefusal> {
        self.shared.deps.agents.find(new_session.choice.agent.as_ref())?;
        let id = id.unwrap_or_else(|| SessionId::generate(self.shared.deps.ids.next()));
        let mut slot = self.open_sessions.lock(&id).await;
        self.check_not_shutting_down()?;
        if slot.running().is_some() {
            return Err(SessionRefusal::SessionExists(id));
        }
        slot.make_room().await?;
        slot.set_open(OpenSession::create(&self.shared, id.clone(), new_session, messages).await?);
        Ok(id)
    }

    /// Executes `command` in a session, and opens the session if necessary.
    pub async fn execute(
        &self,
        id: &SessionId,
        command: SessionCommand,
    ) -> Result<SessionReply, SessionRefusal> {
        self.submit(id, command).await?.await
    }

    /// Sends `command` to a session, and opens the session if necessary. The returned future waits for the reply.
    /// Commands are executed in the order in which they were submitted.
    pub async fn submit(
        &self,
        id: &SessionId,
        command: SessionCommand,
    ) -> Result<impl Future<Output = Result<SessionReply, SessionRefusal>> + Send + use<>, SessionRefusal>
    {
        self.open_session(id).await?.submit(command).await
    }

    /// The state of a session. Opens the session if necessary: an interrupted run is recorded as failed, and queued
    /// inputs start.
    pub async fn view(&self, id: &SessionId) -> Result<Session, SessionRefusal> {
        let session = self.open_session(id).await?.view().await?;
        if session.history.is_cached() { Ok(session) } else { self.read(id).await }
    }

    /// Why the end of a run of the session could not be recorded so far, if so. The session tries again until it
    /// succeeds; watchers see nothing of that. Opens the session if necessary.
    pub async fn recording_error(&self, id: &SessionId) -> Result<Option<String>, SessionRefusal> {
        self.open_session(id).await?.recording_error().await
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

    /// Watches a session from after a position in its log. Does not open the session: events that another process
    /// writes arrive too, but without the text that is being written.
    pub async fn watch(&self, id: &SessionId, after: Seq) -> Watcher {
        Watcher::new(Arc::clone(&self.shared.deps.log), id.clone(), after, self.shared.live_sessions.of(id))
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

    /// Enables requests for files from the network. Without this they fail.
    #[must_use]
    pub fn with_fetch(mut self, fetch: Arc<dyn Fetch>) -> Self {
        self.fetch = Some(fetch);
        self
    }

    /// Removes the secrets that `redact` knows from everything that runs record and show.
    #[must_use]
    pub fn with_redaction(mut self, redact: Arc<dyn Redact>) -> Self {
        self.shared.redact = redact;
        self
    }

    /// Keeps tools from changing parlor's own folder `folder`, and from reading the secrets in it.
    #[must_use]
    pub fn with_state_folder(mut self, folder: &Path) -> Self {
        self.shared.state_folder = Some(folder.into());
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
        let log = &*self.shared.deps.log;
        let was_shut_down = watch_start::was_shut_down(log, record).await.map_err(refusal_of)?;
        if was_shut_down { Ok(self.read(&record.id).await?.queue().len()) } else { Ok(0) }
    }

    /// Which process has a session open. Does not open the session.
    pub async fn owner(&self, id: &SessionId) -> Result<SessionOwner, SessionRefusal> {
        if let Some(session) = self.open_sessions.get(id).await {
            return Ok(SessionOwner::ThisProcess { waiting: session.queue_length().await? });
        }
        match self.shared.deps.log.holder(id).await.map_err(refusal_of)? {
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

    /// Closes a session, so that another process may open it. Refused while the session is busy. Does nothing if the
    /// session is not open in this process.
    pub async fn release(&self, id: &SessionId) -> Result<(), SessionRefusal> {
        self.open_sessions.lock(id).await.close_if_idle().await
    }

    /// Deletes a session with all its events, and the files that only its messages refer to. Refused while the
    /// session is busy in this process or open in another.
    ///
    /// Returns whether the deleted text is overwritten in the log's files by now.
    pub async fn delete(&self, id: &SessionId) -> Result<Erased, SessionRefusal> {
        let SessionDeps { log, media, .. } = &*self.shared.deps;
        let before = log.referenced_media().await.map_err(refusal_of)?;
        let last_used = log.session(id).await.map_err(refusal_of)?.updated;
        self.delete_events(id).await?;
        if !before.is_empty() {
            let after = log.referenced_media().await.map_err(refusal_of)?;
            let unreferenced = before.difference(&after).cloned().collect();
            // If this fails, the next collection removes the files.
            let _ = media.remove(unreferenced, last_used).await;
        }
        // The session is deleted in any case; if overwriting fails now, it happens later.
        Ok(log.erase().await.unwrap_or(Erased::Later))
    }

    /// Deletes a session's events from the log. Its media files stay, and its text may still be in the log's files.
    async fn delete_events(&self, id: &SessionId) -> Result<(), SessionRefusal> {
        let mut slot = self.open_sessions.lock(id).await;
        slot.close_if_idle().await?;
        let log = &self.shared.deps.log;
        log.session(id).await.map_err(refusal_of)?;
        let lease = log.acquire(id).await.map_err(refusal_of)?;
        log.delete(&lease).await.map_err(refusal_of)?;
        self.shared.live_sessions.of(id).on_delete();
        Ok(())
    }

    /// Closes all sessions like [`close`](Sessions::close), and refuses to open any from now on.
    pub async fn shut_down(&self) {
        self.shutting_down.cancel();
        self.close().await;
    }

    fn check_not_shutting_down(&self) -> Result<(), SessionRefusal> {
        match self.shutting_down.is_cancelled() {
            true => Err(SessionRefusal::Closing { part: ClosingPart::Program }),
            false => Ok(()),
        }
    }

    /// Stops all runs, waits until their ends are recorded, and closes all sessions.
    pub async fn close(&self) {
        let sessions = self.open_sessions.take_all().await;
        for session in &sessions {
            session.begin_close();
        }
        for session in sessions {
            session.closed().await;
        }
    }

    /// The handle of a session, which is opened if necessary.
    async fn open_session(&self, id: &SessionId) -> Result<OpenSession, SessionRefusal> {
        let mut slot = self.open_sessions.lock(id).await;
        if let Some(session) = slot.running() {
            slot.touch();
            return Ok(session);
        }
        self.check_not_shutting_down()?;
        slot.make_room().await?;
        let session = OpenSession::load(&self.shared, id.clone()).await?;
        slot.set_open(session.clone());
        Ok(session)
    }
}

/// The refusal that a client gets for an error of the log.
fn refusal_of(error: LogError) -> SessionRefusal {
    match error {
        LogError::UnknownSession(id) => SessionRefusal::UnknownSession(id),
        LogError::Held { session, by } => {
            SessionRefusal::SessionHeld { session, holder: format!("process {}", by.pid) }
        }
        error @ (LogError::Conflict { .. }
        | LogError::NotHeld { .. }
        | LogError::Unreadable { .. }
        | LogError::Full { .. }
        | LogError::ReadOnly { .. }
        | LogError::Replaced { .. }
        | LogError::Damaged { .. }
        | LogError::InUse { .. }
        | LogError::Busy
        | LogError::Newer { .. }
        | LogError::Database { .. }
        | LogError::Io { .. }
        | LogError::Closed) => SessionRefusal::LogUnavailable { reason: error.to_string() },
    }
}
