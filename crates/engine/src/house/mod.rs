//! All sessions: opened when somebody needs them, each with one task that alone writes it.

mod actor;
mod performer;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use parlor_log::{EventLog, LogError, Page, PageRequest, SessionRecord};
use parlor_model::Agent;
use parlor_tools::{Context, Toolbox};
use parlor_vocab::{
    AgentId, Birth, Clock, Failure, IdSource, Refusal, Seq, SessionCommand, SessionId, SessionReply,
};
use tokio::sync::Mutex;

use self::actor::OpenSession;
use crate::live::Live;
use crate::session::Session;
use crate::watcher::Watcher;

/// How many sessions may be open at a time.
pub const MAX_OPEN_SESSIONS: usize = 1024;

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

    fn find(&self, wanted: Option<&AgentId>) -> Result<(AgentId, Arc<dyn Agent>), Refusal> {
        let id = wanted.unwrap_or(&self.default);
        let agent = self.by_id.get(id).ok_or_else(|| Refusal::UnknownAgent(id.clone()))?;
        Ok((id.clone(), Arc::clone(agent)))
    }
}

/// What every session works with.
pub struct Means {
    /// Where events go.
    pub log: Arc<dyn EventLog>,
    /// What answers.
    pub agents: Agents,
    /// What agents can do.
    pub tools: Toolbox,
    /// The complete environment of commands.
    pub env: Arc<[(String, String)]>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn IdSource>,
}

impl Means {
    /// What tools may use in a session of this folder.
    fn context(&self, folder: &Path) -> Result<Context, Failure> {
        let mut context = Context::new(folder)?;
        context.env = Arc::clone(&self.env);
        Ok(context)
    }
}

/// All sessions of one process.
pub struct House {
    means: Arc<Means>,
    /// Held while a session is opened, so that it is opened once.
    open: Mutex<HashMap<SessionId, OpenSession>>,
}

impl House {
    /// A house with no session open.
    pub fn new(means: Means) -> Self {
        Self { means: Arc::new(means), open: Mutex::default() }
    }

    /// Creates a session, under `id` or under a new one, and returns its id once it is durable.
    pub async fn create(&self, id: Option<SessionId>, birth: Birth) -> Result<SessionId, Refusal> {
        self.means.agents.find(birth.choice.agent.as_ref())?;
        let id = id.unwrap_or_else(|| SessionId::generate(self.means.ids.next()));
        let mut open = self.open.lock().await;
        if open.contains_key(&id) {
            return Err(Refusal::SessionExists(id));
        }
        self.make_room(&mut open)?;
        let session = OpenSession::create(Arc::clone(&self.means), id.clone(), birth).await?;
        open.insert(id.clone(), session);
        Ok(id)
    }

    /// Does what `command` says to a session, and opens it if need be.
    pub async fn ask(&self, id: &SessionId, command: SessionCommand) -> Result<SessionReply, Refusal> {
        self.opened(id).await?.ask(command).await
    }

    /// A session as it is now.
    pub async fn view(&self, id: &SessionId) -> Result<Session, Refusal> {
        self.opened(id).await?.view().await
    }

    /// Watches a session from a place in its log on. Neither opens nor holds it: what another
    /// process writes can be watched too, only without what is being written at the moment.
    pub async fn watch(&self, id: &SessionId, after: Seq) -> Watcher {
        let live = self.open.lock().await.get(id).map_or_else(Arc::<Live>::default, OpenSession::live);
        Watcher::new(Arc::clone(&self.means.log), id.clone(), after, live)
    }

    /// The sessions there are, the last updated first.
    pub async fn list(&self, page: PageRequest) -> Result<Page, Refusal> {
        self.means.log.sessions(page).await.map_err(|error| refusal_of(error, None))
    }

    /// What is known of a session without opening it.
    pub async fn record(&self, id: &SessionId) -> Result<SessionRecord, Refusal> {
        self.means.log.session(id).await.map_err(|error| refusal_of(error, Some(id)))
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
            return Ok(session.clone());
        }
        self.make_room(&mut open)?;
        let session = OpenSession::load(Arc::clone(&self.means), id.clone()).await?;
        open.insert(id.clone(), session.clone());
        Ok(session)
    }

    fn make_room(&self, open: &mut HashMap<SessionId, OpenSession>) -> Result<(), Refusal> {
        open.retain(|_, session| session.is_running());
        if open.len() >= MAX_OPEN_SESSIONS {
            return Err(Refusal::TooManySessions { limit: MAX_OPEN_SESSIONS });
        }
        Ok(())
    }
}

fn refusal_of(error: LogError, session: Option<&SessionId>) -> Refusal {
    match (error, session) {
        (LogError::UnknownSession(id), _) => Refusal::UnknownSession(id),
        (LogError::Held { session, by }, _) => {
            Refusal::SessionHeld { session, holder: format!("process {}", by.pid) }
        }
        (error, _) => Refusal::LogUnavailable { reason: error.to_string() },
    }
}
