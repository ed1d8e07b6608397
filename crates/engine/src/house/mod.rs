//! All sessions: opened when somebody needs them, each with one task that alone writes it.

mod actor;
mod beginning;
mod collect;
mod opened;
mod performer;
mod recall;
mod spending;
mod weight;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parlor_log::{Erased, EventLog, LogError, Page, PageRequest, SessionRecord, UsageLine};
use parlor_model::Agent;
use parlor_tools::{NoSecrets, Redact, Toolbox};
use parlor_vocab::{
    AgentId, Birth, Clock, File, FileFlaw, Fork, IdSource, Media, MediaId, Message, MessageId, Place,
    Refusal, Seq, SessionCommand, SessionId, SessionReply,
};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use self::beginning::Beginning;
use self::opened::OpenSession;
pub use self::recall::KEPT_HISTORY_BYTES;
use self::spending::Spending;
use crate::live::Lives;
use crate::media::{MAX_MEDIA_BYTES, MediaStore};
use crate::session::Session;
use crate::watcher::Watcher;

/// How many sessions may be open at a time.
pub const MAX_OPEN_SESSIONS: usize = 1024;

/// How many runs may be active at a time, in all sessions together.
pub const MAX_ACTIVE_RUNS: usize = 256;

/// How many sessions are asked to make room before a new one is turned down.
const LEAVERS_ASKED: usize = 16;

/// The agents by name, and the one that answers where nobody chose.
pub struct Agents {
    default: AgentId,
    by_id: BTreeMap<AgentId, Arc<dyn Agent>>,
}

impl Agents {
    /// One agent, which is the default.
    pub fn new(default: AgentId, agent: Arc<dyn Agent>) -> Self {
        Self { by_id: BTreeMap::from([(default.clone(), agent)]), default }
    }

    /// Adds another.
    #[must_use]
    pub fn with(mut self, id: AgentId, agent: Arc<dyn Agent>) -> Self {
        self.by_id.insert(id, agent);
        self
    }

    /// All of them, the default first.
    fn list(&self) -> Vec<(AgentId, String)> {
        let mut list: Vec<_> =
            self.by_id.iter().map(|(id, agent)| (id.clone(), agent.name().to_owned())).collect();
        list.sort_by_key(|(id, _)| *id != self.default);
        list
    }

    fn find(&self, wanted: Option<&AgentId>) -> Result<(AgentId, Arc<dyn Agent>), Refusal> {
        let id = wanted.unwrap_or(&self.default);
        let agent = self.by_id.get(id).ok_or_else(|| Refusal::UnknownAgent(id.clone()))?;
        Ok((id.clone(), Arc::clone(agent)))
    }
}

/// Reads files from the network, where that is allowed.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// The file at `url`, if it has no more than `max_bytes`.
    async fn fetch(&self, url: &str, max_bytes: u64) -> Result<Vec<u8>, FileFlaw>;
}

/// What every session works with.
pub struct Means {
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
pub enum Keeper {
    /// This house, where so many inputs wait for the run before them.
    Us {
        /// How many.
        waiting: usize,
    },
    /// Another process.
    Another,
    /// Nobody.
    Nobody,
}

/// What all sessions share.
struct Rooms {
    means: Arc<Means>,
    spending: Arc<Spending>,
    redact: Arc<dyn Redact>,
    /// Parlor's own folder, which tools cannot change.
    state_folder: Option<Arc<Path>>,
    lives: Lives,
    /// One for each run that may be active.
    places: Arc<Semaphore>,
}

/// All sessions of one process.
pub struct House {
    rooms: Rooms,
    /// Held while a session is opened, so that it is opened once.
    open: Mutex<HashMap<SessionId, OpenSession>>,
    /// Counts uses of sessions, to know which was used last.
    uses: AtomicU64,
    fetch: Option<Arc<dyn Fetch>>,
    /// Cancelled when nothing new may begin.
    ending: CancellationToken,
}

impl House {
    /// A house with no session open.
    pub fn new(means: Means) -> Self {
        let places = Arc::new(Semaphore::new(MAX_ACTIVE_RUNS));
        let spending = Arc::new(Spending::new(Arc::clone(&means.log), Arc::clone(&means.clock)));
        let redact = Arc::new(NoSecrets);
        let (means, lives) = (Arc::new(means), Lives::default());
        let rooms = Rooms { means, spending, redact, state_folder: None, lives, places };
        let ending = CancellationToken::new();
        Self { rooms, open: Mutex::default(), uses: AtomicU64::new(0), fetch: None, ending }
    }

    /// Creates a session, under `id` or under a new one, and returns its id once it is durable.
    pub async fn create(&self, id: Option<SessionId>, birth: Birth) -> Result<SessionId, Refusal> {
        self.create_with(id, birth, Vec::new()).await
    }

    /// Creates a session that begins with the messages of another, up to and with `message`; all of
    /// them if there is none. What its tools did is not copied. The other need not be open here.
    pub async fn fork(
        &self,
        id: Option<SessionId>,
        from: &SessionId,
        message: Option<&MessageId>,
    ) -> Result<SessionId, Refusal> {
        let other = self.read(from).await?;
        let mut messages: Vec<Message> = other.messages().cloned().collect();
        if let Some(last) = message {
            let place = messages.iter().position(|message| message.id == *last);
            let place = place.ok_or_else(|| Refusal::UnknownMessage(last.clone()))?;
            messages.truncate(place + 1);
        }
        let birth = other.birth().cloned().ok_or_else(|| Refusal::UnknownSession(from.clone()))?;
        let last = messages.last().map(|message| message.id.clone());
        let birth = Birth {
            title: other.title().map(str::to_owned),
            choice: other.choice().clone(),
            forked_from: last.map(|message| Fork { session: from.clone(), message }),
            ..birth
        };
        for message in &mut messages {
            message.id = MessageId::generate(self.rooms.means.ids.next());
        }
        self.create_with(id, birth, messages).await
    }

    async fn create_with(
        &self,
        id: Option<SessionId>,
        birth: Birth,
        messages: Vec<Message>,
    ) -> Result<SessionId, Refusal> {
        self.rooms.means.agents.find(birth.choice.agent.as_ref())?;
        let id = id.unwrap_or_else(|| SessionId::generate(self.rooms.means.ids.next()));
        let mut open = self.open.lock().await;
        self.may_begin()?;
        if open.get(&id).is_some_and(OpenSession::is_running) {
            return Err(Refusal::SessionExists(id));
        }
        self.make_room(&mut open).await?;
        let session = OpenSession::create(&self.rooms, id.clone(), birth, messages).await?;
        self.touch(&session);
        open.insert(id.clone(), session);
        Ok(id)
    }

    /// Does what `command` says to a session, and opens it if need be.
    pub async fn ask(&self, id: &SessionId, command: SessionCommand) -> Result<SessionReply, Refusal> {
        self.submit(id, command).await?.await
    }

    /// Hands `command` to a session; the answer comes later. Commands that are handed over one after
    /// another are carried out in this order.
    pub async fn submit(
        &self,
        id: &SessionId,
        command: SessionCommand,
    ) -> Result<impl Future<Output = Result<SessionReply, Refusal>> + Send + use<>, Refusal> {
        self.opened(id).await?.submit(command).await
    }

    /// A session as it is now. Opens it if need be: what was cut off is ended, what waited goes on.
    pub async fn view(&self, id: &SessionId) -> Result<Session, Refusal> {
        let session = self.opened(id).await?.view().await?;
        if session.history.is_at_hand() { Ok(session) } else { self.read(id).await }
    }

    /// Why a run of the session has ended without this being recorded, if that is so. It is tried again
    /// until it succeeds; whoever watches sees nothing of it.
    pub async fn trouble(&self, id: &SessionId) -> Result<Option<String>, Refusal> {
        self.opened(id).await?.trouble().await
    }

    /// A session as its log tells it, whether or not anybody has it open.
    pub async fn read(&self, id: &SessionId) -> Result<Session, Refusal> {
        opened::read(&self.rooms, id).await
    }

    /// The same, with what was said last: no more of its history than `max_bytes`, and nothing of what tools did.
    /// [`Session::history_is_cut`] tells whether something is missing.
    pub async fn read_newest(&self, id: &SessionId, max_bytes: usize) -> Result<Session, Refusal> {
        opened::read_newest(&self.rooms, id, max_bytes).await
    }

    /// Watches a session from a place in its log on. Neither opens nor holds it: what another
    /// process writes can be watched too, only without what is being written at the moment.
    pub async fn watch(&self, id: &SessionId, after: Seq) -> Watcher {
        Watcher::new(Arc::clone(&self.rooms.means.log), id.clone(), after, self.rooms.lives.of(id))
    }

    /// Where somebody begins to watch who has seen a session up to `place`.
    pub(crate) async fn beginning(&self, id: &SessionId, place: &Place) -> Result<Beginning, Refusal> {
        beginning::find(&*self.rooms.means.log, id, place).await.map_err(refusal_of)
    }

    /// The place before the run that is under way at `place`, or `place` itself if none is: from there on all can be
    /// understood that comes after `place`.
    pub async fn before_run(&self, id: &SessionId, place: Seq) -> Result<Seq, Refusal> {
        beginning::before_run(&*self.rooms.means.log, id, place).await.map_err(refusal_of)
    }

    /// Wakes when a session goes on, or comes into being.
    pub(crate) fn head(&self, id: &SessionId) -> watch::Receiver<Seq> {
        self.rooms.means.log.head(id)
    }

    /// The agents there are, the default first: their names in commands, and for people.
    pub fn agents(&self) -> Vec<(AgentId, String)> {
        self.rooms.means.agents.list()
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
        self.rooms.redact = redact;
        self
    }

    /// Keeps tools from changing what is in `folder`, parlor's own, and from reading the secrets in it.
    #[must_use]
    pub fn with_state_folder(mut self, folder: &Path) -> Self {
        self.rooms.state_folder = Some(folder.into());
        self
    }

    /// Reads a file from the network, unless the house ends meanwhile.
    pub(crate) async fn fetch(&self, url: &str, max_bytes: u64) -> Result<File, FileFlaw> {
        let fetch = self.fetch.as_ref().ok_or(FileFlaw::Closed)?;
        let fetching = self.ending.run_until_cancelled(fetch.fetch(url, max_bytes));
        let bytes = fetching.await.ok_or(FileFlaw::Closed)??;
        Ok(File { name: String::new(), bytes })
    }

    /// The sessions there are, the last updated first.
    pub async fn list(&self, page: PageRequest) -> Result<Page, Refusal> {
        self.rooms.means.log.sessions(page).await.map_err(refusal_of)
    }

    /// What all sessions of all processes have used from a day on, UTC, since 1970.
    pub async fn usage(&self, since: i64) -> Result<Vec<UsageLine>, Refusal> {
        self.rooms.means.log.usage(since).await.map_err(refusal_of)
    }

    /// What is known of a session without opening it.
    pub async fn record(&self, id: &SessionId) -> Result<SessionRecord, Refusal> {
        self.rooms.means.log.session(id).await.map_err(refusal_of)
    }

    /// Whether the log says that the session runs although the process that ran it is gone. Its run is
    /// ended when the session is opened.
    pub async fn is_cut_off(&self, record: &SessionRecord) -> bool {
        record.running.is_some() && self.keeper(&record.id).await.is_ok_and(|keeper| keeper == Keeper::Nobody)
    }

    /// How many inputs wait in a session that nobody has open: those that were behind a run when the program ended.
    /// They are begun when the session is opened.
    pub async fn left_waiting(&self, record: &SessionRecord) -> Result<usize, Refusal> {
        let is_left = beginning::is_left(&*self.rooms.means.log, record).await.map_err(refusal_of)?;
        if is_left { Ok(self.read(&record.id).await?.queue().len()) } else { Ok(0) }
    }

    /// Who has a session open. Opens nothing.
    pub async fn keeper(&self, id: &SessionId) -> Result<Keeper, Refusal> {
        let open = self.open.lock().await.get(id).filter(|session| session.is_running()).cloned();
        if let Some(session) = open {
            return Ok(Keeper::Us { waiting: session.waiting().await? });
        }
        match self.rooms.means.log.holder(id).await.map_err(refusal_of)? {
            Some(_) => Ok(Keeper::Another),
            None => Ok(Keeper::Nobody),
        }
    }

    /// Keeps files that will come along with an input, all or none of which are then referred to.
    pub async fn store_media(&self, new: Vec<File>) -> Result<Vec<Media>, Refusal> {
        let mut stored = Vec::with_capacity(new.len());
        for File { name, bytes } in new {
            let kept = self.rooms.means.media.put(&name, bytes, MAX_MEDIA_BYTES).await;
            stored.push(kept.map_err(|error| Refusal::MediaUnavailable { reason: error.to_string() })?);
        }
        Ok(stored)
    }

    /// The contents of kept files, up to `max_bytes` in all. None where one is gone, does not hold
    /// what it should, or has no room left.
    pub async fn read_media(&self, ids: &[MediaId], max_bytes: u64) -> Vec<Option<Vec<u8>>> {
        let (mut contents, mut room) = (Vec::with_capacity(ids.len()), max_bytes);
        for id in ids {
            let content = self.rooms.means.media.read(id, room).await.ok();
            room -= content.as_ref().map_or(0, |content| content.len() as u64);
            contents.push(content);
        }
        contents
    }

    /// A kept file and its size in bytes; none if it is gone. The bytes are not looked at.
    pub async fn open_media(&self, id: &MediaId) -> Option<(std::fs::File, u64)> {
        self.rooms.means.media.open_file(id).await.ok()
    }

    /// Lets go of a session, so that another process may open it. Refused while it has something to
    /// do; a session that is not open here needs no letting go.
    pub async fn leave(&self, id: &SessionId) -> Result<(), Refusal> {
        let mut open = self.open.lock().await;
        let Some(session) = open.get(id).filter(|session| session.is_running()).cloned() else {
            return Ok(());
        };
        session.leave().await?;
        open.remove(id);
        Ok(())
    }

    /// Deletes a session with all its events and the files that came along with its messages and no others. Refused
    /// while it has something to do, here or in another process.
    ///
    /// Says whether all that was said in it is in no file any more.
    pub async fn delete(&self, id: &SessionId) -> Result<Erased, Refusal> {
        let Means { log, media, .. } = &*self.rooms.means;
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
    async fn remove(&self, id: &SessionId) -> Result<(), Refusal> {
        let mut open = self.open.lock().await;
        if let Some(session) = open.get(id).filter(|session| session.is_running()).cloned() {
            session.leave().await?;
            open.remove(id);
        }
        let log = &self.rooms.means.log;
        log.session(id).await.map_err(refusal_of)?;
        let lease = log.acquire(id).await.map_err(refusal_of)?;
        log.delete(&lease).await.map_err(refusal_of)?;
        self.rooms.lives.of(id).deleted();
        Ok(())
    }

    /// The same as [`close`](House::close), and nothing new begins.
    pub async fn end(&self) {
        self.ending.cancel();
        self.close().await;
    }

    fn may_begin(&self) -> Result<(), Refusal> {
        match self.ending.is_cancelled() {
            true => Err(Refusal::LogUnavailable { reason: "the program is ending".to_owned() }),
            false => Ok(()),
        }
    }

    /// Stops all runs, waits for their ends to be recorded, and lets go of all sessions.
    pub async fn close(&self) {
        let sessions: Vec<OpenSession> = self.open.lock().await.drain().map(|(_, session)| session).collect();
        for session in &sessions {
            session.begin_close();
        }
        for session in sessions {
            session.closed().await;
        }
    }

    async fn opened(&self, id: &SessionId) -> Result<OpenSession, Refusal> {
        let mut open = self.open.lock().await;
        if let Some(session) = open.get(id).filter(|session| session.is_running()) {
            self.touch(session);
            return Ok(session.clone());
        }
        self.may_begin()?;
        self.make_room(&mut open).await?;
        let session = OpenSession::load(&self.rooms, id.clone()).await?;
        self.touch(&session);
        open.insert(id.clone(), session.clone());
        Ok(session)
    }

    fn touch(&self, session: &OpenSession) {
        session.touch(self.uses.fetch_add(1, Ordering::Relaxed));
    }

    /// Makes room for one more session: the one that was not used for longest leaves, if it has
    /// nothing to do.
    async fn make_room(&self, open: &mut HashMap<SessionId, OpenSession>) -> Result<(), Refusal> {
        if open.len() < MAX_OPEN_SESSIONS {
            return Ok(());
        }
        open.retain(|_, session| session.is_running());
        let mut by_use: Vec<(u64, SessionId)> =
            open.iter().map(|(id, session)| (session.used(), id.clone())).collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        for (_, id) in by_use.into_iter().take(LEAVERS_ASKED) {
            if open.len() < MAX_OPEN_SESSIONS {
                break;
            }
            let Some(session) = open.get(&id).cloned() else { continue };
            if session.leave().await.is_ok() {
                open.remove(&id);
            }
        }
        if open.len() >= MAX_OPEN_SESSIONS {
            return Err(Refusal::TooManySessions { limit: MAX_OPEN_SESSIONS });
        }
        Ok(())
    }
}

fn refusal_of(error: LogError) -> Refusal {
    match error {
        LogError::UnknownSession(id) => Refusal::UnknownSession(id),
        LogError::Held { session, by } => {
            Refusal::SessionHeld { session, holder: format!("process {}", by.pid) }
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
        | LogError::Closed) => Refusal::LogUnavailable { reason: error.to_string() },
    }
}
