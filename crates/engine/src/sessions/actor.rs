//! The one task that writes a session: it decides, records, then acts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parlor_log::{Lease, LogError};
use parlor_model::Turn;
use parlor_tools::{Interpreter, Policy, Redact, Shells, ToolContext};
use parlor_vocab::{
    AgentChoice, AgentId, Entry, EventId, Failure, FailureCode, MessageId, NewEntry, RunEvent, RunId, Seq,
    SessionCommand, SessionEvent, SessionId, SessionRefusal, SessionReply, StopCause,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::handle::{ActorMessage, OpenSession};
use super::history_loader::{HistorySource, KEPT_HISTORY_BYTES, recall};
use super::run_driver::{RunDriver, RunHandle};
use super::text_bytes::text_bytes;
use super::{MAX_ACTIVE_RUNS, SessionDeps, SessionShared, refusal_of};
use crate::redact::clean_excerpt;
use crate::session::{Effect, Finish, Outcome, Session};
use crate::sessions::live::Live;
use parlor_tools::contain;

/// How many questions may wait for one session.
const MAILBOX: usize = 64;
/// How long an end that cannot be recorded waits before it is tried again.
const RETRY_RECORDING: Duration = Duration::from_secs(1);

pub(super) struct Actor {
    deps: Arc<SessionDeps>,
    redact: Arc<dyn Redact>,
    state_folder: Option<Arc<Path>>,
    id: SessionId,
    lease: Lease,
    session: Session,
    live: Arc<Live>,
    /// The processes that its tools sent to the background.
    shells: Shells,
    /// The Ruby that its tools evaluate in.
    ruby: Interpreter,
    /// How to reach those who perform.
    handle: HashMap<RunId, RunHandle>,
    compaction: Option<Compaction>,
    /// The sessions's run_slots for active runs, and the one that is ours.
    run_slots: Arc<Semaphore>,
    place: Option<OwnedSemaphorePermit>,
    /// Why the end of a run cannot be recorded.
    trouble: Option<String>,
    /// Cancelled if this task panics: stops those who perform.
    broken: CancellationToken,
    inbox: mpsc::Receiver<ActorMessage>,
    mailbox: mpsc::Sender<ActorMessage>,
    effects: Vec<Effect>,
}

/// A summary that is being written.
struct Compaction {
    keep: usize,
    cancel: CancellationToken,
    reply: oneshot::Sender<Result<SessionReply, SessionRefusal>>,
}

impl Actor {
    pub(super) fn new(shared: &SessionShared, id: SessionId, lease: Lease) -> Self {
        let (mailbox, inbox) = mpsc::channel(MAILBOX);
        Self {
            deps: Arc::clone(&shared.deps),
            redact: Arc::clone(&shared.redact),
            state_folder: shared.state_folder.clone(),
            live: shared.live_texts.of(&id),
            id,
            lease,
            session: Session::default(),
            shells: Shells::default(),
            ruby: Interpreter::default(),
            handle: HashMap::new(),
            compaction: None,
            run_slots: Arc::clone(&shared.run_slots),
            place: None,
            trouble: None,
            broken: CancellationToken::new(),
            inbox,
            mailbox,
            effects: Vec::new(),
        }
    }

    pub(super) fn start(self) -> OpenSession {
        let (inbox, id) = (self.mailbox.clone(), self.id.clone());
        OpenSession::new(inbox, id, tokio::spawn(Box::new(self).run_or_break()))
    }

    /// Runs to its end. After a panic nothing of the session goes on here: whoever uses it next opens it from its log,
    /// which ends the run that was cut off.
    ///
    /// Boxed, since a future holds each argument twice, and there may be a thousand idle sessions.
    async fn run_or_break(self: Box<Self>) {
        let (broken, live) = (self.broken.clone(), Arc::clone(&self.live));
        let (shells, ruby) = (self.shells.clone(), self.ruby.clone());
        if contain(self.run()).await.is_err() {
            broken.cancel();
            live.forget();
            shells.end_all().await;
            ruby.end().await;
        }
    }

    async fn run(mut self: Box<Self>) {
        self.act();
        let mut closing = false;
        while !(closing && self.handle.is_empty() && self.compaction.is_none()) {
            // We hold a sender, so the channel cannot close.
            let Some(ask) = self.inbox.recv().await else { return };
            match ask {
                ActorMessage::Command(_, reply) if closing => drop(reply.send(Err(self.closing()))),
                ActorMessage::Command(command, reply) => self.on_command(*command, reply).await,
                ActorMessage::View(reply) => drop(reply.send(Box::new(self.session.clone()))),
                ActorMessage::Trouble(reply) => drop(reply.send(self.trouble.clone())),
                ActorMessage::Record(run, events, reply) => {
                    let events = self.session.record(&run, events);
                    drop(reply.send(self.append(events).await));
                }
                ActorMessage::Forget(kept_from, summary, reply) => {
                    drop(reply.send(self.forget_before(&kept_from, summary).await));
                }
                ActorMessage::Waiting(reply) => drop(reply.send(self.session.queue().len())),
                ActorMessage::Usage(reply) => drop(reply.send(self.session.usage())),
                ActorMessage::Finish(finish) => self.on_finish(*finish, closing).await,
                ActorMessage::Summarized(summary) => self.on_summary(*summary).await,
                ActorMessage::Leave(reply) => {
                    let leaves = self.may_leave();
                    closing |= leaves.is_ok();
                    drop(reply.send(leaves));
                }
                ActorMessage::Close => {
                    closing = true;
                    self.cancel_all(&StopCause::Shutdown);
                }
            }
            if !closing {
                self.act();
            }
        }
        self.inbox.close();
        self.live.forget();
        // What was sent to the background belongs to the session, and ends with it.
        self.shells.end_all().await;
        self.ruby.end().await;
        // Nobody is left to tell; the lease of a process that has ended is free in any case.
        let _ = self.deps.log.release(self.lease).await;
    }

    fn closing(&self) -> SessionRefusal {
        SessionRefusal::LogUnavailable { reason: format!("session {} is being closed", self.id) }
    }

    /// Whether nothing would be lost by closing the session now.
    fn may_leave(&self) -> Result<(), SessionRefusal> {
        if let Some(active) = self.session.active() {
            return Err(SessionRefusal::Busy { active: active.clone() });
        }
        if self.compaction.is_some() {
            return Err(SessionRefusal::Compacting);
        }
        if self.shells.list().iter().any(|shell| shell.ending.is_none()) {
            return Err(SessionRefusal::BackgroundProcesses);
        }
        Ok(())
    }

    fn cancel_all(&self, cause: &StopCause) {
        self.handle.values().for_each(|handle| handle.cancel(cause.clone()));
        if let Some(compaction) = &self.compaction {
            compaction.cancel.cancel();
        }
    }

    async fn on_command(
        &mut self,
        command: SessionCommand,
        reply: oneshot::Sender<Result<SessionReply, SessionRefusal>>,
    ) {
        if let SessionCommand::Compact { keep } = command {
            return self.begin_compaction(keep, reply).await;
        }
        drop(reply.send(self.carry_out(command).await));
    }

    async fn carry_out(&mut self, command: SessionCommand) -> Result<SessionReply, SessionRefusal> {
        let agent = match &command {
            SessionCommand::Send { input, .. } => self.agent_for(&input.choice)?,
            SessionCommand::Choose(choice) => self.agent_for(choice)?,
            SessionCommand::Stop { .. }
            | SessionCommand::ClearQueue
            | SessionCommand::ClearHistory
            | SessionCommand::Compact { .. }
            | SessionCommand::Rename { .. } => self.fallback_agent(),
        };
        if let Some(compaction) = &self.compaction {
            match &command {
                SessionCommand::Send { .. } | SessionCommand::ClearHistory => {
                    return Err(SessionRefusal::Compacting);
                }
                SessionCommand::Stop { run: None, .. } => {
                    compaction.cancel.cancel();
                    return Ok(SessionReply::Done);
                }
                SessionCommand::Stop { run: Some(_), .. }
                | SessionCommand::Choose(_)
                | SessionCommand::ClearQueue
                | SessionCommand::Compact { .. }
                | SessionCommand::Rename { .. } => {}
            }
        }
        let decision = self.session.decide(command, &agent, &*self.deps.ids)?;
        let performs = decision.effects.iter().any(|effect| matches!(effect, Effect::StartRun(_)));
        if performs && self.place.is_none() {
            let place = Arc::clone(&self.run_slots).try_acquire_owned();
            self.place = Some(place.map_err(|_| SessionRefusal::TooManyRuns { limit: MAX_ACTIVE_RUNS })?);
        }
        let recorded = self.append(decision.events).await;
        self.leave_place_if_idle();
        recorded.map_err(refusal_of)?;
        self.effects.extend(decision.effects);
        Ok(decision.reply)
    }

    fn leave_place_if_idle(&mut self) {
        if self.session.active().is_none() {
            self.place = None;
        }
    }

    fn agent_for(&self, choice: &AgentChoice) -> Result<AgentId, SessionRefusal> {
        Ok(self.deps.agents.find(self.session.wanted_agent(choice))?.0)
    }

    fn fallback_agent(&self) -> AgentId {
        self.deps.agents.default.clone()
    }

    /// The agent for the input that waits first. It was there when the input was accepted; if it is
    /// no longer configured, the default answers.
    fn next_agent(&self) -> AgentId {
        let next = self.session.queue().next();
        next.and_then(|queued| self.agent_for(&queued.input.choice).ok())
            .unwrap_or_else(|| self.fallback_agent())
    }

    /// Takes over what the log tells, and ends what was cut off.
    pub(super) async fn recover(&mut self, session: Session) -> Result<(), LogError> {
        self.session = session;
        let (events, effects) =
            self.session.recover(&self.next_agent(), &*self.deps.ids, self.deps.clock.now());
        self.append(events).await?;
        self.effects.extend(effects);
        // What waited was accepted before, so it goes on even where there is no place.
        self.place = Arc::clone(&self.run_slots).try_acquire_owned().ok();
        self.leave_place_if_idle();
        Ok(())
    }

    /// Records the end of a run. It has happened, so it is tried until it is recorded; meanwhile the
    /// session answers, and the run counts as active.
    async fn on_finish(&mut self, mut finish: Finish, closing: bool) {
        // A stop that was accepted holds, even if the agent was done at the same moment.
        if let Some(cause) = self.handle.remove(&finish.run).and_then(|handle| handle.stop_cause()) {
            finish.outcome = Outcome::Stopped(cause);
        }
        let (mut events, effects) = self.session.finish(finish.clone(), &self.next_agent(), &*self.deps.ids);
        if closing {
            // What waits is started when the session is opened again.
            events.retain(|event| !starts_a_run(event));
        }
        match self.append(events).await {
            Ok(()) => {
                self.trouble = None;
                self.leave_place_if_idle();
                self.effects.extend(effects);
            }
            // Another process has the session now, and has ended the run itself.
            Err(LogError::NotHeld { .. } | LogError::Conflict { .. }) => {}
            Err(_) if closing => {}
            Err(error) => {
                self.trouble = Some(error.to_string());
                let mailbox = self.mailbox.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(RETRY_RECORDING).await;
                    mailbox.send(ActorMessage::Finish(Box::new(finish))).await
                });
            }
        }
    }

    /// Takes back what was let go of the history, for whoever judges it as a whole.
    async fn look_back(&mut self) -> Result<(), LogError> {
        if !self.session.history.is_cached() {
            let (from, head) = (self.session.history.from(), self.session.head());
            self.session.history = recall(&*self.deps.log, &self.id, from, head).await?;
        }
        Ok(())
    }

    async fn forget_before(&mut self, kept_from: &MessageId, summary: String) -> Result<(), LogError> {
        self.look_back().await?;
        let events = self.session.forgotten(kept_from, summary, &*self.deps.ids);
        self.append(events).await?;
        self.let_go();
        Ok(())
    }

    /// Keeps no more of the history than an open session may.
    fn let_go(&mut self) {
        // A summary that is being written is about what is here.
        if self.compaction.is_none() {
            self.session.history.drop_beyond(KEPT_HISTORY_BYTES);
        }
    }

    async fn begin_compaction(
        &mut self,
        keep: usize,
        reply: oneshot::Sender<Result<SessionReply, SessionRefusal>>,
    ) {
        if self.compaction.is_some() {
            return drop(reply.send(Err(SessionRefusal::Compacting)));
        }
        if let Err(error) = self.look_back().await {
            return drop(reply.send(Err(refusal_of(error))));
        }
        let command = SessionCommand::Compact { keep };
        match self.session.decide(command, &self.fallback_agent(), &*self.deps.ids) {
            Err(refusal) => {
                self.let_go();
                drop(reply.send(Err(refusal)));
            }
            Ok(decision) => {
                self.compaction = Some(Compaction { keep, cancel: CancellationToken::new(), reply });
                self.effects.extend(decision.effects);
            }
        }
    }

    async fn on_summary(&mut self, summary: Result<String, Failure>) {
        let Some(Compaction { keep, reply, .. }) = self.compaction.take() else { return };
        let outcome = match summary {
            Err(failure) => {
                Err(SessionRefusal::NotCompacted { reason: clean_excerpt(&*self.redact, failure.message) })
            }
            Ok(summary) => {
                let summary = clean_excerpt(&*self.redact, summary);
                let decision = self.session.compacted(summary, keep, &*self.deps.ids);
                self.append(decision.events).await.map(|()| decision.reply).map_err(refusal_of)
            }
        };
        self.let_go();
        drop(reply.send(outcome));
    }

    pub(super) async fn append(&mut self, events: Vec<SessionEvent>) -> Result<(), LogError> {
        // What changes nothing needs no disk: a run can be stopped when it is full.
        if events.is_empty() {
            return Ok(());
        }
        let at = self.deps.clock.now();
        let draft = |event| NewEntry { id: EventId::generate(self.deps.ids.next()), at, event };
        let drafts: Vec<NewEntry> = events.into_iter().map(draft).collect();
        self.deps.log.append(&self.lease, self.session.head(), &drafts).await?;
        for NewEntry { id, at, event } in drafts {
            let seq = Seq(self.session.head().0 + 1);
            let entry = Arc::new(Entry { seq, id, at, event });
            self.session.apply(&entry);
            self.live.appended(&entry, text_bytes(&entry.event));
        }
        self.let_go();
        Ok(())
    }

    /// Does what was decided, now that it is recorded.
    fn act(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::StartRun(run) => self.perform(run),
                Effect::Steer(run, text) => {
                    if let Some(handle) = self.handle.get(&run) {
                        handle.steer(text);
                    }
                }
                Effect::Cancel(run, cause) => {
                    if let Some(handle) = self.handle.get(&run) {
                        handle.cancel(cause);
                    }
                }
                Effect::Summarize { keep } => self.summarize(keep),
            }
        }
    }

    fn perform(&mut self, run: RunId) {
        let Some((agent, input, message)) = self.session.beginning_of(&run) else { return };
        let agent = self.deps.agents.find(Some(&agent)).or_else(|_| self.deps.agents.find(None));
        let Ok((_, agent)) = agent else { return };
        let history = &self.session.history;
        let past = match self.session.history().split_last() {
            _ if !agent.looks_back() => HistorySource::Cached(Vec::new()),
            // The last is what is to be answered.
            Some((_, before)) => HistorySource::Cached(before.to_vec()),
            None => {
                let (session, from, until) = (self.id.clone(), history.from(), self.session.head());
                HistorySource::InLog { session, from, until }
            }
        };
        let Some(new_session) = self.session.new_session() else { return };
        let chosen = self.session.choice();
        let turn = Turn {
            run: run.clone(),
            message: Some(message),
            history: Vec::new(),
            system: new_session.system.clone(),
            model: input.choice.model.clone().or_else(|| chosen.model.clone()),
            reasoning: input.choice.reasoning.or(chosen.reasoning),
            folder: new_session.folder.clone(),
            input,
        };
        let (deps, live) = (Arc::clone(&self.deps), Arc::clone(&self.live));
        // Made for each run: it holds the folder open, which an idle session need not.
        let context = match self.context(new_session.folder.clone()) {
            Ok(context) => context,
            Err(failure) => {
                let finish = Finish::failed(run, failure, self.deps.clock.now());
                let mailbox = self.mailbox.clone();
                drop(tokio::spawn(async move { mailbox.send(ActorMessage::Finish(Box::new(finish))).await }));
                return;
            }
        };
        let mailbox = self.mailbox.clone();
        let (driver, handle) = RunDriver::new(run.clone(), deps, mailbox, live, &self.redact, &context);
        self.handle.insert(run, handle);
        tokio::spawn(driver.perform(agent, turn, past));
    }

    /// What the tools of a run may use.
    fn context(&self, folder: PathBuf) -> Result<ToolContext, Failure> {
        let policy = Policy::new([&folder]).map_err(|failure| {
            let message = format!("The working folder cannot be used: {}", failure.message);
            Failure { code: FailureCode::FolderUnusable, message, ..failure }
        })?;
        let policy = match &self.state_folder {
            Some(state) => policy.without_state(state),
            None => policy,
        };
        let context = ToolContext::with_policy(folder, policy.with_home_of(&self.deps.env));
        let (env, shells, ruby) = (Arc::clone(&self.deps.env), self.shells.clone(), self.ruby.clone());
        let redact = Arc::clone(&self.redact);
        Ok(ToolContext { env, shells, ruby, redact, cancel: self.broken.child_token(), ..context })
    }

    fn summarize(&mut self, keep: usize) {
        let Some(compaction) = &self.compaction else { return };
        let Ok((_, agent)) = self.deps.agents.find(self.session.wanted_agent(&AgentChoice::default())) else {
            return;
        };
        let (cancel, mailbox) = (compaction.cancel.clone(), self.mailbox.clone());
        let history = self.session.passages_before(keep).to_vec();
        let choice = self.session.choice().clone();
        tokio::spawn(async move {
            let stopped = || Failure {
                code: FailureCode::Stopped,
                message: "it was stopped".to_owned(),
                retryable: true,
            };
            let summary = tokio::select! {
                summary = contain(agent.summarize(&history, &choice)) => {
                    summary.unwrap_or_else(|panicked| Err(panicked.failure("The summary")))
                }
                () = cancel.cancelled() => Err(stopped()),
            };
            // The session task outlives what it waits for.
            let _ = mailbox.send(ActorMessage::Summarized(Box::new(summary))).await;
        });
    }
}

fn starts_a_run(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Run { event: RunEvent::Started { .. }, .. })
}
