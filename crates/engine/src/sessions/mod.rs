//! All sessions: opened when somebody needs them, each with one task that alone writes it.

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
    AgentId, Clock, FileError, Fork, IdSource, Media, MediaId, Message, MessageId, NamedFile, NewSession,
    Seq, SessionCommand, SessionId, SessionRefusal, SessionReply, WatchFrom,
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

pub use self::agents::Agents;
use self::handle::OpenSession;
pub use self::history_loader::KEPT_HISTORY_BYTES;
pub use self::open_sessions::MAX_OPEN_SESSIONS;
use self::open_sessions::OpenSessions;
pub(crate) use self::watch_start::WatchStart;
use crate::media::{MAX_MEDIA_BYTES, MediaStore};
use crate::session::Session;
use crate::sessions::live::LiveTexts;
use crate::sessions::watcher::Watcher;

/// How many runs may be active at a time, in all sessions together.
pub const MAX_ACTIVE_RUNS: usize = 256;

/// Reads files from the network, where that is allowed.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// The file at `url`, if it has no more than `max_bytes`.
    async fn fetch(&self, url: &str, max_bytes: u64) -> Result<Vec<u8>, FileError>;
}

/// What every session works with.
pub struct SessionDeps {
    /// Where events go.
    pub log: Arc<dyn EventLog>,
    /// What answers.
    pub agents: Agents,
    /// What agents can do.
    pub tools: Toolbox,
    /// Where files that come along with messages are kept.
    pub media: MediaStore,
    /// The complete environment of commands.
    pub env: Arc<[(String, String)]>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn IdSource>,
}

/// Who has a session open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOwner {
    /// This sessions, where so many inputs wait for the run before them.
    ThisProcess {
        /// How many.
        waiting: usize,
    },
    /// Another process.
    OtherProcess,
    /// Nobody.
    Nobody,
}

/// What all sessions share.
struct SessionShared {
    deps: Arc<SessionDeps>,
    redact: Arc<dyn Redact>,
    /// Parlor's own folder, which tools cannot change.
    state_folder: Option<Arc<Path>>,
    live_texts: LiveTexts,
    /// One for each run that may be active.
    run_slots: Arc<Semaphore>,
}

/// All sessions of one process.
pub struct Sessions {
    shared: SessionShared,
    open: OpenSessions,
    fetch: Option<Arc<dyn Fetch>>,
    /// Cancelled when nothing new may begin.
    ending: CancellationToken,
}

impl Sessions {
    /// A sessions with no session open.
    pub fn new(deps: SessionDeps) -> Self {
        let run_slots = Arc::new(Semaphore::new(MAX_ACTIVE_RUNS));
        let redact = Arc::new(NoSecrets);
        let (deps, live_texts) = (Arc::new(deps), LiveTexts::default());
        let shared = SessionShared { deps, redact, state_folder: None, live_texts, run_slots };
        let ending = CancellationToken::new();
        Self { shared, open: OpenSessions::default(), fetch: None, ending }
    }

    /// Creates a session, under `id` or under a new one, and returns its id once it is durable.
    pub async fn create(
        &self,
        id: Option<SessionId>,
        new_session: NewSession,
    ) -> Result<SessionId, SessionRefusal> {
        self.create_with(id, new_session, Vec::new()).await
    }

    /// Creates a session that begins with the messages of another, up to and with `message`; all of
    /// them if there is none. What its tools did is not copied. The other need not be open here.
    pub async fn fork(
        &self,
        id: Option<SessionId>,
        from: &SessionId,
        message: Option<&MessageId>,
    ) -> Result<SessionId, SessionRefusal> {
        let other = self.read(from).await?;
        let mut messages: Vec<Message> = other.messages().cloned().collect();
        if let Some(last) = message {
            let place = messages.iter().position(|message| message.id == *last);
            let place = place.ok_or_else(|| SessionRefusal::UnknownMessage(last.clone()))?;
            messages.truncate(place + 1);
        }
        let new_session =
            other.new_session().cloned().ok_or_else(|| SessionRefusal::UnknownSession(from.clone()))?;
        let last = messages.last().map(|message| message.id.clone());
        let new_session = NewSession {
            title: other.title().map(str::to_owned),
            choice: other.choice().clone(),
            forked_from: last.map(|message| Fork { session: from.clone(), message }),
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
        let mut slot = self.open.lock(&id).await;
        self.may_begin()?;
        if slot.running().is_some() {
            return Err(SessionRefusal::SessionExists(id));
        }
        slot.make_room().await?;
        slot.set_open(OpenSession::create(&self.shared, id.clone(), new_session, messages).await?);
        Ok(id)
    }

    /// Does what `command` says to a session, and opens it if need be.
    pub async fn ask(&self, id: &SessionId, command: SessionCommand) -> Result<SessionReply, SessionRefusal> {
        self.submit(id, command).await?.await
    }

    /// Hands `command` to a session; the answer comes later. Commands that are handed over one after
    /// another are carried out in this order.
    pub async fn submit(
        &self,
        id: &SessionId,
        command: SessionCommand,
    ) -> Result<impl Future<Output = Result<SessionReply, SessionRefusal>> + Send + use<>, SessionRefusal>
    {
        self.opened(id).await?.submit(command).await
    }

    /// A session as it is now. Opens it if need be: what was cut off is ended, what waited goes on.
    pub async fn view(&self, id: &SessionId) -> Result<Session, SessionRefusal> {
        let session = self.opened(id).await?.view().await?;
        if session.history.is_cached() { Ok(session) } else { self.read(id).await }
    }

    /// Why a run of the session has ended without this being recorded, if that is so. It is tried again
    /// until it succeeds; whoever watches sees nothing of it.
    pub async fn trouble(&self, id: &SessionId) -> Result<Option<String>, SessionRefusal> {
        self.opened(id).await?.trouble().await
    }

    /// A session as its log tells it, whether or not anybody has it open.
    pub async fn read(&self, id: &SessionId) -> Result<Session, SessionRefusal> {
        handle::read(&self.shared, id).await
    }

    /// The same, with what was said last: no more of its history than `max_bytes`, and nothing of what tools did.
    /// [`Session::history_is_cut`] tells whether something is missing.
    pub async fn read_newest(&self, id: &SessionId, max_bytes: usize) -> Result<Session, SessionRefusal> {
        handle::read_newest(&self.shared, id, max_bytes).await
    }

    /// Watches a session from a place in its log on. Neither opens nor holds it: what another
    /// process writes can be watched too, only without what is being written at the moment.
    pub async fn watch(&self, id: &SessionId, after: Seq) -> Watcher {
        Watcher::new(Arc::clone(&self.shared.deps.log), id.clone(), after, self.shared.live_texts.of(id))
    }

    /// Where somebody begins to watch who has seen a session up to `place`.
    pub(crate) async fn beginning(
        &self,
        id: &SessionId,
        place: &WatchFrom,
    ) -> Result<WatchStart, SessionRefusal> {
        watch_start::find(&*self.shared.deps.log, id, place).await.map_err(refusal_of)
    }

    /// The place before the run that is under way at `place`, or `place` itself if none is: from there on all can be
    /// understood that comes after `place`.
    pub async fn before_run(&self, id: &SessionId, place: Seq) -> Result<Seq, SessionRefusal> {
        watch_start::before_run(&*self.shared.deps.log, id, place).await.map_err(refusal_of)
    }

    /// Wakes when a session goes on, or comes into being.
    pub(crate) fn head(&self, id: &SessionId) -> watch::Receiver<Seq> {
        self.shared.deps.log.head(id)
    }

    /// The agents there are, the default first: their names in commands, and for people.
    pub fn agents(&self) -> Vec<(AgentId, String)> {
        self.shared.deps.agents.list()
    }

    /// Lets `fetch` read what peers say is on the network. Without it nothing is read there.
    #[must_use]
    pub fn with_fetch(mut self, fetch: Arc<dyn Fetch>) -> Self {
        self.fetch = Some(fetch);
        self
    }

    /// Takes the secrets that `redact` knows out of what runs record and show.
    #[must_use]
    pub fn with_redaction(mut self, redact: Arc<dyn Redact>) -> Self {
        self.shared.redact = redact;
        self
    }

    /// Keeps tools from changing what is in `folder`, parlor's own, and from reading the secrets in it.
    #[must_use]
    pub fn with_state_folder(mut self, folder: &Path) -> Self {
        self.shared.state_folder = Some(folder.into());
        self
    }

    /// Reads a file from the network, unless the sessions ends meanwhile.
    pub(crate) async fn fetch(&self, url: &str, max_bytes: u64) -> Result<NamedFile, FileError> {
        let fetch = self.fetch.as_ref().ok_or(FileError::Unreadable)?;
        let fetching = self.ending.run_until_cancelled(fetch.fetch(url, max_bytes));
        let bytes = fetching.await.ok_or(FileError::Unreadable)??;
        Ok(NamedFile { name: String::new(), bytes })
    }

    /// The sessions there are, the last updated first.
    pub async fn list(&self, page: PageRequest) -> Result<Page, SessionRefusal> {
        self.shared.deps.log.sessions(page).await.map_err(refusal_of)
    }

    /// What all sessions of all processes have used from a day on, UTC, since 1970.
    pub async fn usage(&self, since: i64) -> Result<Vec<UsageLine>, SessionRefusal> {
        self.shared.deps.log.usage(since).await.map_err(refusal_of)
    }

    /// What is known of a session without opening it.
    pub async fn record(&self, id: &SessionId) -> Result<SessionRecord, SessionRefusal> {
        self.shared.deps.log.session(id).await.map_err(refusal_of)
    }

    /// Whether the log says that the session runs although the process that ran it is gone. Its run is
    /// ended when the session is opened.
    pub async fn is_cut_off(&self, record: &SessionRecord) -> bool {
        record.running.is_some()
            && self.owner(&record.id).await.is_ok_and(|owner| owner == SessionOwner::Nobody)
    }

    /// How many inputs wait in a session that nobody has open: those that were behind a run when the program ended.
    /// They are begun when the session is opened.
    pub async fn left_waiting(&self, record: &SessionRecord) -> Result<usize, SessionRefusal> {
        let is_left = watch_start::is_left(&*self.shared.deps.log, record).await.map_err(refusal_of)?;
        if is_left { Ok(self.read(&record.id).await?.queue().len()) } else { Ok(0) }
    }

    /// Who has a session open. Opens nothing.
    pub async fn owner(&self, id: &SessionId) -> Result<SessionOwner, SessionRefusal> {
        if let Some(session) = self.open.get(id).await {
            return Ok(SessionOwner::ThisProcess { waiting: session.waiting().await? });
        }
        match self.shared.deps.log.holder(id).await.map_err(refusal_of)? {
            Some(_) => Ok(SessionOwner::OtherProcess),
            None => Ok(SessionOwner::Nobody),
        }
    }

    /// Keeps files that will come along with an input, all or none of which are then referred to.
    pub async fn store_media(&self, new: Vec<NamedFile>) -> Result<Vec<Media>, SessionRefusal> {
        let mut stored = Vec::with_capacity(new.len());
        for NamedFile { name, bytes } in new {
            let kept = self.shared.deps.media.put(&name, bytes, MAX_MEDIA_BYTES).await;
            stored
                .push(kept.map_err(|error| SessionRefusal::MediaUnavailable { reason: error.to_string() })?);
        }
        Ok(stored)
    }

    /// The contents of kept files, up to `max_bytes` in all. None where one is gone, does not hold
    /// what it should, or has no room left.
    pub async fn read_media(&self, ids: &[MediaId], max_bytes: u64) -> Vec<Option<Vec<u8>>> {
        let (mut contents, mut room) = (Vec::with_capacity(ids.len()), max_bytes);
        for id in ids {
            let content = self.shared.deps.media.read(id, room).await.ok();
            room -= content.as_ref().map_or(0, |content| content.len() as u64);
            contents.push(content);
        }
        contents
    }

    /// A kept file and its size in bytes; none if it is gone. The bytes are not looked at.
    pub async fn open_media(&self, id: &MediaId) -> Option<(std::fs::File, u64)> {
        self.shared.deps.media.open_file(id).await.ok()
    }

    /// Lets go of a session, so that another process may open it. Refused while it has something to
    /// do; a session that is not open here needs no letting go.
    pub async fn leave(&self, id: &SessionId) -> Result<(), SessionRefusal> {
        self.open.lock(id).await.leave().await
    }

    /// Deletes a session with all its events and the files that came along with its messages and no others. Refused
    /// while it has something to do, here or in another process.
    ///
    /// Says whether all that was said in it is in no file any more.
    pub async fn delete(&self, id: &SessionId) -> Result<Erased, SessionRefusal> {
        let SessionDeps { log, media, .. } = &*self.shared.deps;
        let before = log.referenced_media().await.map_err(refusal_of)?;
        let used = log.session(id).await.map_err(refusal_of)?.updated;
        self.remove(id).await?;
        if !before.is_empty() {
            let after = log.referenced_media().await.map_err(refusal_of)?;
            let gone = before.difference(&after).cloned().collect();
            // What stays is swept away when sessions are collected.
            let _ = media.remove(gone, used).await;
        }
        // The session is gone in any case; a copy that could not be taken away now may be later.
        Ok(log.erase().await.unwrap_or(Erased::Later))
    }

    /// The same, but for the last copies in the log's files and for files of messages.
    async fn remove(&self, id: &SessionId) -> Result<(), SessionRefusal> {
        let mut slot = self.open.lock(id).await;
        slot.leave().await?;
        let log = &self.shared.deps.log;
        log.session(id).await.map_err(refusal_of)?;
        let lease = log.acquire(id).await.map_err(refusal_of)?;
        log.delete(&lease).await.map_err(refusal_of)?;
        self.shared.live_texts.of(id).deleted();
        Ok(())
    }

    /// The same as [`close`](Sessions::close), and nothing new begins.
    pub async fn end(&self) {
        self.ending.cancel();
        self.close().await;
    }

    fn may_begin(&self) -> Result<(), SessionRefusal> {
        match self.ending.is_cancelled() {
            true => Err(SessionRefusal::LogUnavailable { reason: "the program is ending".to_owned() }),
            false => Ok(()),
        }
    }

    /// Stops all runs, waits for their ends to be recorded, and lets go of all sessions.
    pub async fn close(&self) {
        let sessions = self.open.take_all().await;
        for session in &sessions {
            session.begin_close();
        }
        for session in sessions {
            session.closed().await;
        }
    }

    async fn opened(&self, id: &SessionId) -> Result<OpenSession, SessionRefusal> {
        let mut slot = self.open.lock(id).await;
        if let Some(session) = slot.running() {
            slot.touch();
            return Ok(session);
        }
        self.may_begin()?;
        slot.make_room().await?;
        let session = OpenSession::load(&self.shared, id.clone()).await?;
        slot.set_open(session.clone());
        Ok(session)
    }
}

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
