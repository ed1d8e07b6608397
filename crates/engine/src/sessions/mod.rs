//! The registry of sessions. It opens a session when somebody uses it; each open session has one actor that alone
//! writes it.

mod actor;
mod agents;
pub(crate) mod client;
mod client_policy;
mod close;
mod collect;
mod create;
mod daily_spend;
mod delete;
mod external_run;
mod handle;
mod history_loader;
pub(crate) mod live;
mod mirror;
mod open_sessions;
mod orphans;
mod peer_watches;
mod peers;
mod policy_source;
mod project_tools;
mod routing;
mod run_driver;
mod state_loader;
pub(crate) mod text_bytes;
mod tool_sources;
mod undo;
mod watch_start;
pub(crate) mod watcher;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use parlor_log::{EventLog, LogError, NodeRecord, Page, PageRequest, SessionRecord, UsageLine};
use parlor_tools::{
    NoSecrets, ProjectMcpServers, Redact, ToolServerState, ToolServerStatus, ToolSource, Toolbox,
};
use parlor_undo::UndoStore;
use parlor_vocab::{
    AgentChoice, AgentId, Clock, FileError, IdSource, Media, MediaId, NamedFile, NewSession, Question, Seq,
    SessionEvent, SessionId, SessionRefusal, SessionTotals, WatchFrom,
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

pub use self::actor::{PARTIAL_TEXT_BYTES, PARTIAL_TEXT_INTERVAL, SNAPSHOT_EVENTS};
pub use self::agents::Agents;
pub use self::client_policy::{ClientPolicy, ClientRules};
pub use self::external_run::{ExternalCall, ExternalRun};
pub use self::history_loader::CACHED_HISTORY_BYTES;
use self::mirror::Mirrors;
pub use self::open_sessions::MAX_OPEN_SESSIONS;
use self::open_sessions::{Route, SessionRoutes};
pub use self::orphans::ORPHAN_INTERVAL;
use self::peer_watches::{PeerWatch, PeerWatches};
pub use self::peers::{PeerConnection, PeerError, Peers};
use self::policy_source::PolicySource;
pub use self::policy_source::ProjectPolicies;
pub use self::project_tools::MAX_PROJECT_ANSWERS;
pub use self::routing::{OWNER_WAIT, PEER_REPLY_WAIT};
pub use self::run_driver::approval::QUESTION_DETAIL_BYTES;
pub use self::run_driver::hosts::{MAX_HOST_EVENTS, MAX_HOST_QUESTIONS};
pub use self::run_driver::tool_calls::{REPORT_BYTES, REPORT_INTERVAL};
pub use self::tool_sources::SessionToolSource;
use self::tool_sources::ToolSources;
pub use self::undo::ChangesError;
pub(crate) use self::watch_start::WatchStart;
use crate::media::{MAX_MEDIA_BYTES, MediaStore};
use crate::policy::PolicySettings;
use crate::session::{ResolvedChoice, Session};
use crate::sessions::live::LiveSessions;
use crate::sessions::watcher::Watcher;

/// How many runs may be active at a time in all sessions of this process.
pub const MAX_ACTIVE_RUNS: usize = 256;

/// How many events are read at a time to find the pending question of a session.
const QUESTION_EVENTS: usize = 1024;

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
    /// Parlor's own tools, which the agents of all sessions may call.
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
    tool_sources: ToolSources,
    /// Where the changes of runs are kept; `None` keeps none.
    undo: Option<UndoStore>,
    policy: PolicySource,
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
        let (tool_sources, starts_queued) = (ToolSources::default(), true);
        let shared = SessionShared {
            deps,
            redact,
            state_folders,
            tool_sources,
            undo: None,
            policy: PolicySource::default(),
            live_sessions,
            run_slots,
            starts_queued,
        };
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
            Route::Peer(_) => handle::read_totals(&self.shared, id).await,
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

    /// Whether the log has a run of the session that has not ended, or inputs that wait.
    async fn is_unfinished(&self, id: &SessionId) -> bool {
        self.find_watch_start(id, &WatchFrom::Now).await.is_ok_and(|start| start.is_unfinished)
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

    /// Uses other agents for all inputs from now on. Runs go on with the agents that they began with.
    pub fn replace_agents(&self, agents: &Agents) {
        self.shared.deps.agents.replace(agents);
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

    /// Puts agents under the policy `settings`, with the rules of `projects`. Without this, agents with a model are under the
    /// default policy.
    #[must_use]
    pub fn with_policy(mut self, settings: PolicySettings, projects: Arc<dyn ProjectPolicies>) -> Self {
        self.shared.policy = PolicySource::new(settings, projects);
        self
    }

    /// The mode of sessions for which nobody has chosen one. A project can narrow it.
    pub fn default_mode(&self) -> parlor_vocab::PolicyMode {
        self.shared.policy.default_mode()
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

    /// The nodes that share the log. Empty if it is on one machine.
    pub async fn nodes(&self) -> Result<Vec<NodeRecord>, SessionRefusal> {
        self.shared.deps.log.nodes().await.map_err(refusal_of)
    }

    /// The log's summary of a session. Does not open the session.
    pub async fn record(&self, id: &SessionId) -> Result<SessionRecord, SessionRefusal> {
        self.shared.deps.log.session(id).await.map_err(refusal_of)
    }

    /// The properties that a session was created with. Does not open the session. `None` if it was deleted meanwhile.
    pub async fn creation(&self, id: &SessionId) -> Result<Option<NewSession>, SessionRefusal> {
        let first = self.shared.deps.log.read(id, Seq::START, 1).await.map_err(refusal_of)?;
        Ok(first.into_iter().find_map(|entry| {
            if let SessionEvent::Created(new_session) = entry.event { Some(new_session) } else { None }
        }))
    }

    /// Whether a run of the session was interrupted by the death of its process. The run is recorded as failed when
    /// the session is opened.
    pub async fn is_interrupted(&self, record: &SessionRecord) -> bool {
        record.running.is_some()
            && self.owner(&record.id).await.is_ok_and(|owner| owner == SessionOwner::Nobody)
            && self.pending_question(record).await.is_ok_and(|question| question.is_none())
    }

    /// The question that the active run of a session asks. Does not open the session.
    pub async fn pending_question(&self, record: &SessionRecord) -> Result<Option<Question>, SessionRefusal> {
        let Some(run) = &record.running else { return Ok(None) };
        let (log, id) = (&*self.shared.deps.log, &record.id);
        let start = watch_start::start_of_run_at(log, id, record.head).await.map_err(refusal_of)?;
        let mut session = Session::before_replay(start);
        while session.head() < record.head {
            let entries = log.read(id, session.head(), QUESTION_EVENTS).await.map_err(refusal_of)?;
            if entries.is_empty() {
                break;
            }
            entries.iter().for_each(|entry| session.apply(entry));
            session.history.drop_beyond(0);
        }
        let pending = session.pending_question().map(|pending| pending.question.clone());
        // A run that cannot go on after the death of its process does not wait for an answer any more.
        let is_owned = session.only_waits(run) || self.owner(id).await? != SessionOwner::Nobody;
        Ok(pending.filter(|_| is_owned))
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

    /// Parlor's own tools.
    pub fn tools(&self) -> &Toolbox {
        &self.shared.deps.tools
    }

    /// Gives the runs of all sessions the tools of `source` too.
    #[must_use]
    pub fn with_tool_source(mut self, source: Arc<dyn ToolSource>) -> Self {
        self.shared.tool_sources.add(source);
        self
    }

    /// Gives runs under the policy the MCP servers that their projects bring, if the user trusts them.
    #[must_use]
    pub fn with_project_servers(mut self, servers: Arc<ProjectMcpServers>) -> Self {
        self.shared.tool_sources.set_project_servers(servers);
        self
    }

    /// How the servers of tools are now that the settings or projects name, without secrets. Starts none of them.
    pub fn tool_servers(&self) -> Vec<ToolServerStatus> {
        let redacted = |text: String| self.redacted(&text);
        let clean = |server: ToolServerStatus| ToolServerStatus {
            state: match server.state {
                ToolServerState::Failed(reason) => ToolServerState::Failed(redacted(reason)),
                ToolServerState::Running { description, tools } => {
                    ToolServerState::Running { description: redacted(description), tools }
                }
                state @ (ToolServerState::NotStarted | ToolServerState::Starting) => state,
            },
            ..server
        };
        self.shared.tool_sources.servers().into_iter().map(clean).collect()
    }

    /// Gives the runs of `session` the tools of `source` too, until the result is dropped. Only runs of this process get
    /// them.
    pub fn add_tool_source(&self, session: &SessionId, source: Arc<dyn ToolSource>) -> SessionToolSource {
        self.shared.tool_sources.add_for(session, source)
    }

    /// The complete environment of the commands that tools run.
    pub fn command_environment(&self) -> &[(String, String)] {
        &self.shared.deps.env
    }

    /// `text` without the secrets that runs do not show either.
    pub fn redacted(&self, text: &str) -> String {
        self.shared.redact.redact(text).into_owned()
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
        LogError::OtherWorkspace { session, workspace } => SessionRefusal::NoNode { session, workspace },
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
