//! The one task that writes a session: it decides, records, then acts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parlor_log::{Lease, LogError};
use parlor_model::Turn;
use parlor_tools::Context;
use parlor_vocab::{
    AgentId, Birth, Draft, Entry, EventId, Refusal, RunEvent, RunId, Seq, SessionCommand, SessionEvent,
    SessionId, SessionReply,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::performer::{Performer, Reins};
use super::{Means, refusal_of};
use crate::live::Live;
use crate::session::{Effect, Finish, Outcome, Session};

/// How many questions may wait for one session.
const MAILBOX: usize = 64;
/// How many events are read at a time when a session is opened.
const READ_EVENTS: usize = 1024;
/// How long an end that cannot be recorded waits before it is tried again.
const RETRY_RECORDING: Duration = Duration::from_secs(1);

/// What the task is asked.
pub(super) enum Ask {
    Command(SessionCommand, oneshot::Sender<Result<SessionReply, Refusal>>),
    View(oneshot::Sender<Session>),
    /// From a performer; answered when it is durable.
    Record(RunId, Vec<RunEvent>, oneshot::Sender<Result<(), LogError>>),
    Finish(Finish),
    Close,
}

/// A session that is open here.
#[derive(Clone)]
pub(super) struct OpenSession {
    asks: mpsc::Sender<Ask>,
    live: Arc<Live>,
    id: SessionId,
    task: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
}

impl OpenSession {
    pub(super) async fn create(means: Arc<Means>, id: SessionId, birth: Birth) -> Result<Self, Refusal> {
        let lease = means.log.acquire(&id).await.map_err(|error| refusal_of(error, Some(&id)))?;
        let mut actor = Actor::new(means, id.clone(), lease, &birth)?;
        match actor.append(vec![SessionEvent::Created(birth)]).await {
            Ok(()) => Ok(actor.start()),
            Err(LogError::Conflict { .. }) => Err(Refusal::SessionExists(id)),
            Err(error) => Err(refusal_of(error, Some(&id))),
        }
    }

    pub(super) async fn load(means: Arc<Means>, id: SessionId) -> Result<Self, Refusal> {
        let refuse = |error| refusal_of(error, Some(&id));
        means.log.session(&id).await.map_err(refuse)?;
        let lease = means.log.acquire(&id).await.map_err(refuse)?;
        let mut session = Session::default();
        loop {
            let entries = means.log.read(&id, session.head(), READ_EVENTS).await.map_err(refuse)?;
            if entries.is_empty() {
                break;
            }
            entries.iter().for_each(|entry| session.apply(entry));
        }
        let birth = session.birth().cloned().ok_or_else(|| Refusal::UnknownSession(id.clone()))?;
        let mut actor = Actor::new(means, id.clone(), lease, &birth)?;
        actor.session = session;
        actor.recover().await.map_err(refuse)?;
        Ok(actor.start())
    }

    pub(super) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live)
    }

    pub(super) fn is_running(&self) -> bool {
        !self.asks.is_closed()
    }

    pub(super) async fn ask(&self, command: SessionCommand) -> Result<SessionReply, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.put(Ask::Command(command, reply)).await?;
        answer.await.map_err(|_| self.gone())?
    }

    pub(super) async fn view(&self) -> Result<Session, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.put(Ask::View(reply)).await?;
        answer.await.map_err(|_| self.gone())
    }

    /// Asks the task to stop its runs and end.
    pub(super) fn begin_close(&self) {
        let asks = self.asks.clone();
        tokio::spawn(async move { asks.send(Ask::Close).await });
    }

    /// Waits for the task's end.
    pub(super) async fn closed(self) {
        if let Some(task) = self.task.lock().await.take() {
            // A task that panicked is as gone as one that ended.
            let _ = task.await;
        }
    }

    async fn put(&self, ask: Ask) -> Result<(), Refusal> {
        self.asks.send(ask).await.map_err(|_| self.gone())
    }

    fn gone(&self) -> Refusal {
        Refusal::LogUnavailable { reason: format!("session {} was closed", self.id) }
    }
}

struct Actor {
    means: Arc<Means>,
    id: SessionId,
    lease: Lease,
    session: Session,
    live: Arc<Live>,
    context: Context,
    /// How to reach those who perform.
    reins: HashMap<RunId, Reins>,
    asks: mpsc::Receiver<Ask>,
    mailbox: mpsc::Sender<Ask>,
    effects: Vec<Effect>,
}

impl Actor {
    fn new(means: Arc<Means>, id: SessionId, lease: Lease, birth: &Birth) -> Result<Self, Refusal> {
        let context = means.context(&birth.folder).map_err(|failure| Refusal::CannotStart {
            attempt: format!("work in {:?}", birth.folder),
            reason: failure.message,
        })?;
        let (mailbox, asks) = mpsc::channel(MAILBOX);
        Ok(Self {
            means,
            id,
            lease,
            session: Session::default(),
            live: Arc::default(),
            context,
            reins: HashMap::new(),
            asks,
            mailbox,
            effects: Vec::new(),
        })
    }

    fn start(self) -> OpenSession {
        let (asks, live, id) = (self.mailbox.clone(), Arc::clone(&self.live), self.id.clone());
        let task = tokio::spawn(self.run());
        OpenSession { asks, live, id, task: Arc::new(tokio::sync::Mutex::new(Some(task))) }
    }

    async fn run(mut self) {
        self.act();
        let mut closing = false;
        while !(closing && self.reins.is_empty()) {
            // We hold a sender, so the channel cannot close.
            let Some(ask) = self.asks.recv().await else { return };
            match ask {
                Ask::Command(_, reply) if closing => drop(reply.send(Err(self.closing()))),
                Ask::Command(command, reply) => drop(reply.send(self.on_command(command).await)),
                Ask::View(reply) => drop(reply.send(self.session.clone())),
                Ask::Record(run, events, reply) => {
                    let events = self.session.record(&run, events);
                    drop(reply.send(self.append(events).await));
                }
                Ask::Finish(finish) => self.on_finish(finish, closing).await,
                Ask::Close => {
                    closing = true;
                    for reins in self.reins.values() {
                        reins.halt("The program is ending.");
                    }
                }
            }
            if !closing {
                self.act();
            }
        }
        self.asks.close();
        // What was sent to the background belongs to the session, and ends with it.
        self.context.shells.end_all().await;
        // Nobody is left to tell; the lease of a process that has ended is free in any case.
        let _ = self.means.log.release(self.lease).await;
    }

    fn closing(&self) -> Refusal {
        Refusal::LogUnavailable { reason: format!("session {} is being closed", self.id) }
    }

    async fn on_command(&mut self, command: SessionCommand) -> Result<SessionReply, Refusal> {
        let agent = match &command {
            SessionCommand::Send { input, .. } => self.agent_for(&input.choice)?,
            SessionCommand::Choose(choice) => self.agent_for(choice)?,
            SessionCommand::Stop { .. }
            | SessionCommand::ClearQueue
            | SessionCommand::ClearHistory
            | SessionCommand::Rename { .. } => self.fallback_agent(),
        };
        let decision = self.session.decide(command, &agent, &*self.means.ids)?;
        self.append(decision.events).await.map_err(|error| refusal_of(error, Some(&self.id)))?;
        self.effects.extend(decision.effects);
        Ok(decision.reply)
    }

    fn agent_for(&self, choice: &parlor_vocab::Choice) -> Result<AgentId, Refusal> {
        Ok(self.means.agents.find(self.session.wanted_agent(choice))?.0)
    }

    fn fallback_agent(&self) -> AgentId {
        self.means.agents.default.clone()
    }

    /// The agent for the input that waits first. It was there when the input was accepted; if it is
    /// no longer configured, the default answers.
    fn next_agent(&self) -> AgentId {
        let next = self.session.queue().next();
        next.and_then(|queued| self.agent_for(&queued.input.choice).ok())
            .unwrap_or_else(|| self.fallback_agent())
    }

    async fn recover(&mut self) -> Result<(), LogError> {
        let (events, effects) = self.session.recover(&self.next_agent(), &*self.means.ids);
        self.append(events).await?;
        self.effects.extend(effects);
        Ok(())
    }

    /// Records the end of a run. It has happened, so it is tried until it is recorded.
    async fn on_finish(&mut self, mut finish: Finish, closing: bool) {
        // A stop that was accepted holds, even if the agent was done at the same moment.
        if let Some(reason) = self.reins.remove(&finish.run).and_then(|reins| reins.halted()) {
            finish.outcome = Outcome::Stopped(reason);
        }
        let (mut events, effects) = self.session.finish(finish, &self.next_agent(), &*self.means.ids);
        if closing {
            // What waits is started when the session is opened again.
            events.retain(|event| !starts_a_run(event));
        }
        while let Err(error) = self.append(events.clone()).await {
            if matches!(error, LogError::NotHeld { .. } | LogError::Conflict { .. }) || closing {
                return; // Another process has the session now, and has ended the run itself.
            }
            tokio::time::sleep(RETRY_RECORDING).await;
        }
        self.effects.extend(effects);
    }

    async fn append(&mut self, events: Vec<SessionEvent>) -> Result<(), LogError> {
        let at = self.means.clock.now();
        let draft = |event| Draft { id: EventId::generate(self.means.ids.next()), at, event };
        let drafts: Vec<Draft> = events.into_iter().map(draft).collect();
        self.means.log.append(&self.lease, self.session.head(), &drafts).await?;
        for Draft { id, at, event } in drafts {
            let seq = Seq(self.session.head().0 + 1);
            self.session.apply(&Entry { seq, id, at, event });
        }
        Ok(())
    }

    /// Does what was decided, now that it is recorded.
    fn act(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Perform(run) => self.perform(run),
                Effect::Hear(run, text) => {
                    if let Some(reins) = self.reins.get(&run) {
                        reins.hear(text);
                    }
                }
                Effect::Halt(run, reason) => {
                    if let Some(reins) = self.reins.get(&run) {
                        reins.halt(&reason);
                    }
                }
            }
        }
    }

    fn perform(&mut self, run: RunId) {
        let Some((agent, input)) = self.session.beginning_of(&run) else { return };
        let agent = self.means.agents.find(Some(&agent)).or_else(|_| self.means.agents.find(None));
        let Ok((_, agent)) = agent else { return };
        let mut history = self.session.messages().to_vec();
        history.pop();
        let system = self.session.birth().and_then(|birth| birth.system.clone());
        let turn = Turn { run: run.clone(), input, history, system };
        let (performer, reins) = Performer::new(
            run.clone(),
            Arc::clone(&self.means),
            self.mailbox.clone(),
            Arc::clone(&self.live),
            &self.context,
        );
        self.reins.insert(run, reins);
        tokio::spawn(performer.perform(agent, turn));
    }
}

fn starts_a_run(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Run { event: RunEvent::Started { .. }, .. })
}
