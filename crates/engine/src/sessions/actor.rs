//! The task that alone writes a session: it decides what a message changes, appends the events, then starts the
//! effects.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parlor_log::{Lease, LogError};
use parlor_model::Turn;
use parlor_tools::{BackgroundProcesses, Policy, Redact, RubyInterpreter, ToolContext, catch_panic};
use parlor_vocab::{
    AgentChoice, AgentId, ClosingPart, Entry, EventId, Failure, FailureCode, MessageId, NewEntry, RunEvent,
    RunId, Seq, SessionCommand, SessionEvent, SessionId, SessionRefusal, SessionReply, StopCause,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::handle::{ActorMessage, OpenSession};
use super::history_loader::{CACHED_HISTORY_BYTES, HistorySource, load_history};
use super::run_driver::{RunDriver, RunHandle};
use super::text_bytes::text_bytes;
use super::{MAX_ACTIVE_RUNS, SessionDeps, SessionShared, refusal_of};
use crate::redact::clean_excerpt;
use crate::session::{Effect, FinishedRun, RunOutcome, Session};
use crate::sessions::live::LiveSession;

/// How many messages may wait for one actor.
const MAILBOX_CAPACITY: usize = 64;
/// How long the actor waits before it tries again to record the end of a run.
const RECORDING_RETRY: Duration = Duration::from_secs(1);

/// The state of a session's task.
pub(super) struct Actor {
    deps: Arc<SessionDeps>,
    redact: Arc<dyn Redact>,
    state_folder: Option<Arc<Path>>,
    id: SessionId,
    lease: Lease,
    session: Session,
    live: Arc<LiveSession>,
    /// Processes that tools of this session started in the background.
    background: BackgroundProcesses,
    /// The Ruby worker of this session's tools.
    ruby: RubyInterpreter,
    /// The handles of the run drivers.
    run_handles: HashMap<RunId, RunHandle>,
    compaction: Option<Compaction>,
    /// The registry's slots for active runs.
    run_slots: Arc<Semaphore>,
    /// This session's slot, while a run is active.
    run_permit: Option<OwnedSemaphorePermit>,
    /// Why the end of a run could not be recorded so far.
    recording_error: Option<String>,
    /// Cancelled if this task panics, to stop the run drivers.
    panicked: CancellationToken,
    /// Receives what is sent to `mailbox`.
    inbox: mpsc::Receiver<ActorMessage>,
    mailbox: mpsc::Sender<ActorMessage>,
    /// Effects of recorded events that are not started yet.
    effects: Vec<Effect>,
}

/// A compaction whose summary the agent is writing.
struct Compaction {
    keep: usize,
    cancel: CancellationToken,
    reply: oneshot::Sender<Result<SessionReply, SessionRefusal>>,
}

impl Actor {
    pub(super) fn new(shared: &SessionShared, id: SessionId, lease: Lease) -> Self {
        let (mailbox, inbox) = mpsc::channel(MAILBOX_CAPACITY);
        Self {
            deps: Arc::clone(&shared.deps),
            redact: Arc::clone(&shared.redact),
            state_folder: shared.state_folder.clone(),
            live: shared.live_sessions.of(&id),
            id,
            lease,
            session: Session::default(),
            background: BackgroundProcesses::default(),
            ruby: RubyInterpreter::default(),
            run_handles: HashMap::new(),
            compaction: None,
            run_slots: Arc::clone(&shared.run_slots),
            run_permit: None,
            recording_error: None,
            panicked: CancellationToken::new(),
            inbox,
            mailbox,
            effects: Vec::new(),
        }
    }

    pub(super) fn start(self) -> OpenSession {
        let (mailbox, id) = (self.mailbox.clone(), self.id.clone());
        OpenSession::new(mailbox, id, tokio::spawn(Box::new(self).run_and_catch_panic()))
    }

    /// Runs the actor to its end. After a panic it stops the session's runs and processes; the next use opens the
    /// session from its log, which records the interrupted run as failed.
    ///
    /// Boxed, because a future holds each argument twice, and there may be a thousand idle sessions.
    async fn run_and_catch_panic(self: Box<Self>) {
        let (panicked, live) = (self.panicked.clone(), Arc::clone(&self.live));
        let (background, ruby) = (self.background.clone(), self.ruby.clone());
        if catch_panic(self.run()).await.is_err() {
            panicked.cancel();
            live.reset();
            background.stop_all().await;
            ruby.stop().await;
        }
    }

    async fn run(mut self: Box<Self>) {
        self.start_effects();
        let mut closing = false;
        while !(closing && self.run_handles.is_empty() && self.compaction.is_none()) {
            // The actor itself holds a sender, so the channel cannot close.
            let Some(message) = self.inbox.recv().await else { return };
            match message {
                ActorMessage::Command(_, reply) if closing => drop(reply.send(Err(self.closing_refusal()))),
                ActorMessage::Command(command, reply) => self.on_command(*command, reply).await,
                ActorMessage::View(reply) => drop(reply.send(Box::new(self.session.clone()))),
                ActorMessage::RecordingError(reply) => drop(reply.send(self.recording_error.clone())),
                ActorMessage::Record(run, events, reply) => {
                    let events = self.session.record(&run, events);
                    drop(reply.send(self.append(events).await));
                }
                ActorMessage::CompactBefore(kept_from, summary, reply) => {
                    drop(reply.send(self.compact_before(&kept_from, summary).await));
                }
                ActorMessage::QueueLength(reply) => drop(reply.send(self.session.queue().len())),
                ActorMessage::Usage(reply) => drop(reply.send(self.session.usage())),
                ActorMessage::RunFinished(finished) => self.on_run_finished(*finished, closing).await,
                ActorMessage::Summarized(summary) => self.on_summary(*summary).await,
                ActorMessage::CloseIfIdle(reply) => {
                    let idle = self.check_idle();
                    closing |= idle.is_ok();
                    drop(reply.send(idle));
                }
                ActorMessage::Close => {
                    closing = true;
                    self.cancel_all(&StopCause::Shutdown);
                }
            }
            if !closing {
                self.start_effects();
            }
        }
        self.inbox.close();
        self.live.reset();
        // Background processes belong to the session and end with it.
        self.background.stop_all().await;
        self.ruby.stop().await;
        // Nobody is left to report an error to, and the lease becomes free when this process ends.
        let _ = self.deps.log.release(self.lease).await;
    }

    fn closing_refusal(&self) -> SessionRefusal {
        SessionRefusal::Closing { part: ClosingPart::Session(self.id.clone()) }
    }

    /// Fails if the session has work that closing it now would end.
    fn check_idle(&self) -> Result<(), SessionRefusal> {
        if let Some(active) = self.session.active() {
            return Err(SessionRefusal::Busy { active: active.clone() });
        }
        if self.compaction.is_some() {
            return Err(SessionRefusal::Compacting);
        }
        if self.background.list().iter().any(|process| process.exit.is_none()) {
            return Err(SessionRefusal::BackgroundProcesses);
        }
        Ok(())
    }

    fn cancel_all(&self, cause: &StopCause) {
        self.run_handles.values().for_each(|handle| handle.cancel(cause.clone()));
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
        drop(reply.send(self.execute(command).await));
    }

    async fn execute(&mut self, command: SessionCommand) -> Result<SessionReply, SessionRefusal> {
        let agent = match &command {
            SessionCommand::Send { input, .. } => self.agent_for(&input.choice)?,
            SessionCommand::ChooseAgent(choice) => self.agent_for(choice)?,
            SessionCommand::Stop { .. }
            | SessionCommand::ClearQueue
            | SessionCommand::ClearHistory
            | SessionCommand::Compact { .. }
            | SessionCommand::Rename { .. } => self.default_agent(),
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
                | SessionCommand::ChooseAgent(_)
                | SessionCommand::ClearQueue
                | SessionCommand::Compact { .. }
                | SessionCommand::Rename { .. } => {}
            }
        }
        let decision = self.session.decide(command, &agent, &*self.deps.ids)?;
        let starts_run = decision.effects.iter().any(|effect| matches!(effect, Effect::StartRun(_)));
        if starts_run && self.run_permit.is_none() {
            let permit = Arc::clone(&self.run_slots).try_acquire_owned();
            self.run_permit =
                Some(permit.map_err(|_| SessionRefusal::TooManyRuns { limit: MAX_ACTIVE_RUNS })?);
        }
        let recorded = self.append(decision.events).await;
        self.release_permit_if_idle();
        recorded.map_err(refusal_of)?;
        self.effects.extend(decision.effects);
        Ok(decision.reply)
    }

    fn release_permit_if_idle(&mut self) {
        if self.session.active().is_none() {
            self.run_permit = None;
        }
    }

    fn agent_for(&self, choice: &AgentChoice) -> Result<AgentId, SessionRefusal> {
        Ok(self.deps.agents.find(self.session.chosen_agent(choice))?.0)
    }

    fn default_agent(&self) -> AgentId {
        self.deps.agents.default.clone()
    }

    /// The agent for the first queued input. It was configured when the input was accepted; if it no longer is, the
    /// default agent answers.
    fn next_agent(&self) -> AgentId {
        let next = self.session.queue().next();
        next.and_then(|queued| self.agent_for(&queued.input.choice).ok())
            .unwrap_or_else(|| self.default_agent())
    }

    /// Takes over the state that was read from the log, and records an interrupted run as failed.
    pub(super) async fn recover(&mut self, session: Session) -> Result<(), LogError> {
        self.session = session;
        let (events, effects) =
            self.session.recover(&self.next_agent(), &*self.deps.ids, self.deps.clock.now());
        self.append(events).await?;
        self.effects.extend(effects);
        // The queued input was accepted before, so it starts even if no slot is free.
        self.run_permit = Arc::clone(&self.run_slots).try_acquire_owned().ok();
        self.release_permit_if_idle();
        Ok(())
    }

    /// Records the end of a run. If that fails, the actor tries again until it succeeds; meanwhile it answers
    /// commands, and the run counts as active.
    async fn on_run_finished(&mut self, mut finished: FinishedRun, closing: bool) {
        // An accepted stop decides the outcome, even if the agent completed at the same moment.
        if let Some(cause) = self.run_handles.remove(&finished.run).and_then(|handle| handle.stop_cause()) {
            finished.outcome = RunOutcome::Stopped(cause);
        }
        let (mut events, effects) =
            self.session.finish(finished.clone(), &self.next_agent(), &*self.deps.ids);
        if closing {
            // The next queued input starts when the session is opened again.
            events.retain(|event| !starts_a_run(event));
        }
        match self.append(events).await {
            Ok(()) => {
                self.recording_error = None;
                self.release_permit_if_idle();
                self.effects.extend(effects);
            }
            // Another process holds the session now, and has ended the run itself.
            Err(LogError::NotHeld { .. } | LogError::Conflict { .. }) => {}
            Err(_) if closing => {}
            Err(error) => {
                self.recording_error = Some(error.to_string());
                let mailbox = self.mailbox.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(RECORDING_RETRY).await;
                    mailbox.send(ActorMessage::RunFinished(Box::new(finished))).await
                });
            }
        }
    }

    /// Reads the history from the log if it was dropped, for work that needs all of it.
    async fn ensure_history(&mut self) -> Result<(), LogError> {
        if !self.session.history.is_cached() {
            let (from, head) = (self.session.history.from(), self.session.head());
            self.session.history = load_history(&*self.deps.log, &self.id, from, head).await?;
        }
        Ok(())
    }

    async fn compact_before(&mut self, kept_from: &MessageId, summary: String) -> Result<(), LogError> {
        self.ensure_history().await?;
        let events = self.session.compacted_before(kept_from, summary, &*self.deps.ids);
        self.append(events).await?;
        self.trim_history();
        Ok(())
    }

    /// Drops the cached history if it is larger than [`CACHED_HISTORY_BYTES`].
    fn trim_history(&mut self) {
        // A compaction still needs the items that its summary is about.
        if self.compaction.is_none() {
            self.session.history.drop_beyond(CACHED_HISTORY_BYTES);
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
        if let Err(error) = self.ensure_history().await {
            return drop(reply.send(Err(refusal_of(error))));
        }
        let command = SessionCommand::Compact { keep };
        match self.session.decide(command, &self.default_agent(), &*self.deps.ids) {
            Err(refusal) => {
                self.trim_history();
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
        self.trim_history();
        drop(reply.send(outcome));
    }

    pub(super) async fn append(&mut self, events: Vec<SessionEvent>) -> Result<(), LogError> {
        // A command without events needs no disk, so a run can be stopped when the disk is full.
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
            self.live.on_append(&entry, text_bytes(&entry.event));
        }
        self.trim_history();
        Ok(())
    }

    /// Starts the effects of events that are recorded by now.
    fn start_effects(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::StartRun(run) => self.start_run(run),
                Effect::Steer(run, text) => {
                    if let Some(handle) = self.run_handles.get(&run) {
                        handle.steer(text);
                    }
                }
                Effect::Cancel(run, cause) => {
                    if let Some(handle) = self.run_handles.get(&run) {
                        handle.cancel(cause);
                    }
                }
                Effect::Summarize { keep } => self.summarize(keep),
            }
        }
    }

    fn start_run(&mut self, run: RunId) {
        let Some((agent, input, message)) = self.session.start_of(&run) else { return };
        let agent = self.deps.agents.find(Some(&agent)).or_else(|_| self.deps.agents.find(None));
        let Ok((_, agent)) = agent else { return };
        let history = &self.session.history;
        let source = match self.session.history().split_last() {
            _ if !agent.needs_history() => HistorySource::Cached(Vec::new()),
            // The last item is the input that the run answers.
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
        // Created for each run, because it holds the folder open and an idle session should not.
        let context = match self.tool_context(new_session.folder.clone()) {
            Ok(context) => context,
            Err(failure) => {
                let finished = FinishedRun::failed(run, failure, self.deps.clock.now());
                let mailbox = self.mailbox.clone();
                drop(tokio::spawn(async move {
                    mailbox.send(ActorMessage::RunFinished(Box::new(finished))).await
                }));
                return;
            }
        };
        let mailbox = self.mailbox.clone();
        let (driver, handle) = RunDriver::new(run.clone(), deps, mailbox, live, &self.redact, &context);
        self.run_handles.insert(run, handle);
        tokio::spawn(driver.run(agent, turn, source));
    }

    /// The folder, environment and limits for the tools of a run.
    fn tool_context(&self, folder: PathBuf) -> Result<ToolContext, Failure> {
        let policy = Policy::new([&folder]).map_err(|failure| {
            let message = format!("The working folder cannot be used: {}", failure.message);
            Failure { code: FailureCode::FolderUnusable, message, ..failure }
        })?;
        let policy = match &self.state_folder {
            Some(state) => policy.without_state(state),
            None => policy,
        };
        let context = ToolContext::with_policy(folder, policy.with_home_of(&self.deps.env));
        let (env, background, ruby) =
            (Arc::clone(&self.deps.env), self.background.clone(), self.ruby.clone());
        let redact = Arc::clone(&self.redact);
        Ok(ToolContext { env, background, ruby, redact, cancel: self.panicked.child_token(), ..context })
    }

    /// Has the agent write the summary of a compaction.
    fn summarize(&mut self, keep: usize) {
        let Some(compaction) = &self.compaction else { return };
        let Ok((_, agent)) = self.deps.agents.find(self.session.chosen_agent(&AgentChoice::default())) else {
            return;
        };
        let (cancel, mailbox) = (compaction.cancel.clone(), self.mailbox.clone());
        let history = self.session.items_before_last(keep).to_vec();
        let choice = self.session.choice().clone();
        tokio::spawn(async move {
            let stopped = || Failure {
                code: FailureCode::Stopped,
                message: "it was stopped".to_owned(),
                retryable: true,
            };
            let summary = tokio::select! {
                summary = catch_panic(agent.summarize(&history, &choice)) => {
                    summary.unwrap_or_else(|panicked| Err(panicked.failure("The summary")))
                }
                () = cancel.cancelled() => Err(stopped()),
            };
            // The actor runs until its compaction has ended, so it is there to receive this.
            let _ = mailbox.send(ActorMessage::Summarized(Box::new(summary))).await;
        });
    }
}

fn starts_a_run(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Run { event: RunEvent::Started { .. }, .. })
}
