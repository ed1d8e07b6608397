//! The task that alone writes a session: it decides what a message changes, appends the events, then starts the
//! effects.

mod compaction;
mod partial_text;
mod runs;
mod snapshot;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_log::{Lease, LogError};
use parlor_tools::{BackgroundProcesses, Redact, RubyInterpreter, catch_panic};
use parlor_undo::UndoStore;
use parlor_vocab::{
    AgentChoice, Entry, EventId, NewEntry, QuestionId, QuestionOutcome, RunEvent, RunId, Seq, SessionCommand,
    SessionEvent, SessionId, SessionRefusal, SessionReply, SessionTotals, StopCause, Timestamp,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::compaction::Compaction;
use self::partial_text::KeptText;
pub use self::partial_text::{PARTIAL_TEXT_BYTES, PARTIAL_TEXT_INTERVAL};
pub use self::snapshot::SNAPSHOT_EVENTS;
use super::handle::{ActorMessage, CommandError, CommandReply, OpenSession};
use super::history_loader::{CACHED_HISTORY_BYTES, load_history};
use super::policy_source::PolicySource;
use super::run_driver::RunHandle;
use super::state_loader::LoadedState;
use super::text_bytes::text_bytes;
use super::tool_sources::ToolSources;
use super::{MAX_ACTIVE_RUNS, SessionDeps, SessionShared, refusal_of};
use crate::session::{Effect, FinishedRun, ResolvedChoice, RunOutcome, Session};
use crate::sessions::live::LiveSession;

/// How many messages may wait for one actor.
const MAILBOX_CAPACITY: usize = 64;
/// How long the actor waits before it tries again to record the end of a run.
const RECORDING_RETRY: Duration = Duration::from_secs(1);

/// The state of a session's task.
pub(super) struct Actor {
    deps: Arc<SessionDeps>,
    redact: Arc<dyn Redact>,
    state_folders: Vec<Arc<Path>>,
    tool_sources: ToolSources,
    undo: Option<UndoStore>,
    policy: PolicySource,
    id: SessionId,
    lease: Lease,
    session: Session,
    /// The id of the session's last event.
    last_event: Option<EventId>,
    /// The head of the session when a snapshot was last kept or tried to be kept.
    snapshot_at: Seq,
    live: Arc<LiveSession>,
    /// Processes that tools of this session started in the background.
    background: BackgroundProcesses,
    /// The Ruby worker of this session's tools.
    ruby: RubyInterpreter,
    /// The handles of the run drivers.
    run_handles: HashMap<RunId, RunHandle>,
    /// The run drivers that wait for an answer to their question.
    waiting: HashMap<QuestionId, oneshot::Sender<QuestionOutcome>>,
    /// The run whose driver ends without an end of the run, because the run waits for an answer and the next process can
    /// go on with it.
    suspended: Option<RunId>,
    compaction: Option<Compaction>,
    kept_text: KeptText,
    /// The registry's slots for active runs.
    run_slots: Arc<Semaphore>,
    /// This session's slot, while a run is active.
    run_permit: Option<OwnedSemaphorePermit>,
    /// Why the end of a run could not be recorded so far.
    recording_error: Option<String>,
    /// Becomes true when the lease is lost. Only while tools may run: an idle session notices at its next append.
    lease_loss: Option<watch::Receiver<bool>>,
    is_lease_lost: bool,
    /// Cancelled if this task panics or loses its lease, to stop the run drivers.
    abandoned: CancellationToken,
    /// Receives what is sent to `mailbox`.
    inbox: mpsc::Receiver<ActorMessage>,
    mailbox: mpsc::Sender<ActorMessage>,
    /// Effects of recorded events that are not started yet.
    effects: Vec<Effect>,
}

impl Actor {
    pub(super) fn new(shared: &SessionShared, id: SessionId, lease: Lease) -> Self {
        let (mailbox, inbox) = mpsc::channel(MAILBOX_CAPACITY);
        Self {
            deps: Arc::clone(&shared.deps),
            redact: Arc::clone(&shared.redact),
            state_folders: shared.state_folders.clone(),
            tool_sources: shared.tool_sources.clone(),
            undo: shared.undo.clone(),
            policy: shared.policy.clone(),
            live: shared.live_sessions.of(&id),
            id,
            lease,
            session: Session::default(),
            last_event: None,
            snapshot_at: Seq::START,
            background: BackgroundProcesses::default(),
            ruby: RubyInterpreter::default(),
            run_handles: HashMap::new(),
            waiting: HashMap::new(),
            suspended: None,
            compaction: None,
            kept_text: KeptText::default(),
            run_slots: Arc::clone(&shared.run_slots),
            run_permit: None,
            recording_error: None,
            lease_loss: None,
            is_lease_lost: false,
            abandoned: CancellationToken::new(),
            inbox,
            mailbox,
            effects: Vec::new(),
        }
    }

    pub(super) fn start(self) -> OpenSession {
        let (mailbox, id) = (self.mailbox.clone(), self.id.clone());
        let closed = CancellationToken::new();
        let (actor, ended) = (Box::new(self), closed.clone().drop_guard());
        let task = tokio::spawn(async move {
            actor.run_and_catch_panic().await;
            drop(ended);
        });
        OpenSession::new(mailbox, id, task, closed)
    }

    /// Runs the actor to its end. After a panic this stops the session's runs and processes; the next use opens the
    /// session from its log, which records the interrupted run as failed.
    ///
    /// Boxed, because a future holds each argument twice, and there may be a thousand idle sessions.
    async fn run_and_catch_panic(self: Box<Self>) {
        let (abandoned, live) = (self.abandoned.clone(), Arc::clone(&self.live));
        let (background, ruby) = (self.background.clone(), self.ruby.clone());
        if catch_panic(self.run()).await.is_err() {
            abandoned.cancel();
            live.reset();
            background.stop_all().await;
            ruby.stop().await;
        }
    }

    async fn run(mut self: Box<Self>) {
        self.start_effects();
        self.keep_snapshot_if_due().await;
        let mut closing = false;
        while !(closing && self.run_handles.is_empty() && self.compaction.is_none()) {
            let Some(message) = self.next_message().await else { break };
            match message {
                ActorMessage::Command(_, reply) if closing => {
                    drop(reply.send(Err(SessionRefusal::session_closing(&self.id).into())));
                }
                ActorMessage::Command(command, reply) => self.on_command(*command, reply).await,
                ActorMessage::View(reply) => drop(reply.send(Box::new(self.session.clone()))),
                ActorMessage::RecordingError(reply) => drop(reply.send(self.recording_error.clone())),
                ActorMessage::BeginExternalRun(begin) if closing => {
                    drop(begin.reply.send(Err(SessionRefusal::session_closing(&self.id))));
                }
                ActorMessage::BeginExternalRun(begin) => self.begin_external_run(*begin).await,
                ActorMessage::Record(run, events, reply) => {
                    let events = self.session.record(&run, events);
                    drop(reply.send(self.append(events).await));
                }
                ActorMessage::CompactBefore(kept_from, summary, reply) => {
                    drop(reply.send(self.compact_before(&kept_from, summary).await));
                }
                ActorMessage::QueueLength(reply) => drop(reply.send(self.session.queue().len())),
                ActorMessage::Usage(reply) => drop(reply.send(self.session.usage())),
                ActorMessage::Totals(reply) => drop(reply.send(self.totals().await)),
                ActorMessage::AwaitAnswer(question, reply) => self.await_answer(question, reply),
                ActorMessage::ExpireQuestion(question) => self.expire_question(&question).await,
                ActorMessage::RunFinished(finished) => self.on_run_finished(*finished, closing).await,
                ActorMessage::Summarized(summary) => self.on_summary(*summary).await,
                ActorMessage::CloseIfIdle(reply) => {
                    let idle = self.check_idle();
                    closing |= idle.is_ok();
                    if idle.is_ok() {
                        self.suspend_waiting_run();
                        self.cancel_all(&StopCause::Shutdown);
                    }
                    drop(reply.send(idle));
                }
                ActorMessage::Close => {
                    closing = true;
                    self.suspend_waiting_run();
                    self.cancel_all(&StopCause::Shutdown);
                }
            }
            if !closing {
                self.start_effects();
            }
            self.keep_snapshot_if_due().await;
        }
        self.inbox.close();
        if self.is_lease_lost {
            self.return_commands().await;
        }
        // If the lease was lost, runs may still be active: another process has recorded their ends.
        self.abandoned.cancel();
        self.live.reset();
        // Background processes belong to the session and end with it.
        self.background.stop_all().await;
        self.ruby.stop().await;
        // Nobody is left to report an error to, and the lease becomes free when this process ends.
        let has_work = self.session.active().is_some() || self.session.queue().len() > 0;
        let _ = match has_work {
            true => self.deps.log.abandon(self.lease).await,
            false => self.deps.log.release(self.lease).await,
        };
    }

    /// Returns the commands that were not executed to their senders, who find out who has the session now.
    async fn return_commands(&mut self) {
        if let Some(Compaction { cancel, reply, .. }) = self.compaction.take() {
            cancel.cancel();
            drop(reply.send(Err(CommandError::OwnerLost)));
        }
        while let Some(message) = self.inbox.recv().await {
            if let ActorMessage::Command(_, reply) = message {
                drop(reply.send(Err(CommandError::OwnerLost)));
            }
        }
    }

    /// Receives the next message, or `None` when the lease is lost.
    async fn receive(&mut self) -> Option<ActorMessage> {
        if self.is_lease_lost {
            return None;
        }
        // The actor itself holds a sender, so the channel cannot close.
        let has_work = !self.run_handles.is_empty() || self.has_background_processes();
        // A lost lease matters if there is something to stop, or if somebody in this process watches: watchers wait for
        // the actor, and would miss what another process writes.
        if !has_work && !self.live.is_watched() {
            self.lease_loss = None;
            tokio::select! {
                biased;
                message = self.inbox.recv() => return message,
                () = self.live.watched() => {}
            }
        }
        let loss = self.lease_loss.get_or_insert_with(|| self.deps.log.lost(&self.lease));
        tokio::select! {
            biased;
            _ = loss.wait_for(|is_lost| *is_lost) => {
                self.is_lease_lost = true;
                None
            }
            message = self.inbox.recv() => message,
        }
    }

    fn has_background_processes(&self) -> bool {
        self.background.list().iter().any(|process| process.exit.is_none())
    }

    /// Fails if the session has work that closing it now would end.
    fn check_idle(&self) -> Result<(), SessionRefusal> {
        // A run that only waits for an answer goes on in the process that opens the session next.
        if let Some(active) = self.session.active().filter(|run| !self.session.only_waits(run)) {
            return Err(SessionRefusal::Busy { active: active.clone() });
        }
        if self.compaction.is_some() {
            return Err(SessionRefusal::Compacting);
        }
        if self.has_background_processes() {
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

    async fn on_command(&mut self, command: SessionCommand, reply: CommandReply) {
        if let SessionCommand::Compact { keep } = command {
            return self.begin_compaction(keep, reply).await;
        }
        let outcome = self.execute(command).await.map_err(|refusal| self.command_error(refusal));
        drop(reply.send(outcome));
    }

    /// The error of a command that was not executed because of `refusal`.
    fn command_error(&self, refusal: SessionRefusal) -> CommandError {
        match self.is_lease_lost {
            true => CommandError::OwnerLost,
            false => CommandError::Refused(refusal),
        }
    }

    async fn execute(&mut self, command: SessionCommand) -> Result<SessionReply, SessionRefusal> {
        let command = match command {
            SessionCommand::ChooseAgent(choice) => {
                SessionCommand::ChooseAgent(self.deps.agents.recorded(self.session.choice(), choice)?)
            }
            command @ (SessionCommand::Send { .. }
            | SessionCommand::Stop { .. }
            | SessionCommand::ClearQueue
            | SessionCommand::Unqueue(_)
            | SessionCommand::ClearHistory
            | SessionCommand::Compact { .. }
            | SessionCommand::ChooseMode(_)
            | SessionCommand::AnswerQuestion { .. }
            | SessionCommand::Rename { .. }) => command,
        };
        let resolved = match &command {
            SessionCommand::Send { input, .. } => self.resolve(&input.choice)?,
            SessionCommand::ChooseAgent(_)
            | SessionCommand::Stop { .. }
            | SessionCommand::ClearQueue
            | SessionCommand::Unqueue(_)
            | SessionCommand::ClearHistory
            | SessionCommand::Compact { .. }
            | SessionCommand::ChooseMode(_)
            | SessionCommand::AnswerQuestion { .. }
            | SessionCommand::Rename { .. } => self.deps.agents.resolve_default().choice,
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
                | SessionCommand::Unqueue(_)
                | SessionCommand::Compact { .. }
                | SessionCommand::ChooseMode(_)
                | SessionCommand::AnswerQuestion { .. }
                | SessionCommand::Rename { .. } => {}
            }
        }
        let decision = self.session.decide(command, &resolved, &*self.deps.ids)?;
        // A run without a handle was ended by another process, so a stop could not reach it any more.
        if let [Effect::Cancel(run, _)] = &decision.effects[..]
            && !self.run_handles.contains_key(run)
        {
            return Err(SessionRefusal::NoActiveRun);
        }
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

    /// What answers an input with this choice.
    fn resolve(&self, choice: &AgentChoice) -> Result<ResolvedChoice, SessionRefusal> {
        Ok(self.deps.agents.resolve(self.session.choice(), choice)?.choice)
    }

    /// What answers the first queued input. Its agent was configured when the input was accepted; if it no longer is,
    /// the default agent answers.
    fn resolve_next(&self) -> ResolvedChoice {
        let next = self.session.queue().next();
        next.and_then(|queued| self.resolve(&queued.input.choice).ok())
            .unwrap_or_else(|| self.deps.agents.resolve_default().choice)
    }

    /// Takes over the state that was read from the log, and records an interrupted run as failed.
    /// The next queued input starts if `starts_queued`.
    pub(super) async fn recover(&mut self, loaded: LoadedState, starts_queued: bool) -> Result<(), LogError> {
        let LoadedState { session, last_event, snapshot_at } = loaded;
        (self.session, self.last_event, self.snapshot_at) = (session, last_event, snapshot_at);
        let message = self.interrupted_message().await?;
        let (mut events, mut effects) =
            self.session.recover(message, &self.resolve_next(), &*self.deps.ids, self.deps.clock.now());
        if !starts_queued {
            events.retain(|event| !starts_a_run(event));
            effects.retain(|effect| !matches!(effect, Effect::StartRun(_)));
        }
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
        if self.suspended.as_ref() == Some(&finished.run) && self.session.only_waits(&finished.run) {
            self.run_handles.remove(&finished.run);
            return;
        }
        // An accepted stop decides the outcome, even if the agent completed at the same moment. The handle stays until the
        // end is recorded, because the session accepts stops until then.
        if let Some(cause) = self.run_handles.get(&finished.run).and_then(RunHandle::stop_cause) {
            finished.outcome = RunOutcome::Stopped(cause);
        }
        let run = finished.run.clone();
        let (mut events, effects) =
            self.session.finish(finished.clone(), &self.resolve_next(), &*self.deps.ids);
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
            // If the lease was lost, another process has ended the run itself.
            Err(_) if closing || self.is_lease_lost => {}
            Err(error) => {
                self.recording_error = Some(error.to_string());
                let mailbox = self.mailbox.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(RECORDING_RETRY).await;
                    mailbox.send(ActorMessage::RunFinished(Box::new(finished))).await
                });
                return;
            }
        }
        self.run_handles.remove(&run);
    }

    /// Reads the history from the log if it was dropped, for work that needs all of it.
    async fn ensure_history(&mut self) -> Result<(), LogError> {
        if !self.session.history.is_cached() {
            let (from, head) = (self.session.history.from(), self.session.head());
            self.session.history = load_history(&*self.deps.log, &self.id, from, head).await?;
        }
        Ok(())
    }

    async fn totals(&mut self) -> Result<SessionTotals, LogError> {
        if self.session.history.message_count().is_none() {
            self.ensure_history().await?;
            self.trim_history();
        }
        let messages = self.session.history.message_count().unwrap_or_default();
        Ok(SessionTotals { messages, usage: self.session.usage() })
    }

    /// Drops the cached history if it is larger than [`CACHED_HISTORY_BYTES`].
    fn trim_history(&mut self) {
        // A compaction still needs the items that its summary is about.
        if self.compaction.is_none() {
            self.session.history.drop_beyond(CACHED_HISTORY_BYTES);
        }
    }

    async fn append(&mut self, events: Vec<SessionEvent>) -> Result<(), LogError> {
        let now = self.deps.clock.now();
        self.append_at(events.into_iter().map(|event| (now, event)).collect()).await
    }

    /// Appends events that happened at these times.
    pub(super) async fn append_at(&mut self, events: Vec<(Timestamp, SessionEvent)>) -> Result<(), LogError> {
        // A command without events needs no disk, so a run can be stopped when the disk is full.
        if events.is_empty() {
            return Ok(());
        }
        let draft = |(at, event)| NewEntry { id: EventId::generate(self.deps.ids.next()), at, event };
        let drafts: Vec<NewEntry> = events.into_iter().map(draft).collect();
        if let Err(error) = self.deps.log.append(&self.lease, self.session.head(), &drafts).await {
            // After a conflict too: somebody else wrote the session, so the state here is out of date.
            self.is_lease_lost |= matches!(error, LogError::NotHeld { .. } | LogError::Conflict { .. });
            return Err(error);
        }
        for NewEntry { id, at, event } in drafts {
            let seq = Seq(self.session.head().0 + 1);
            let entry = Arc::new(Entry { seq, id, at, event });
            self.session.apply(&entry);
            self.last_event = Some(entry.id.clone());
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
                Effect::ResumeRun(run) => self.resume_run(run),
                Effect::Settle(question, outcome) => self.tell_driver(&question, outcome),
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
}

fn starts_a_run(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Run { event: RunEvent::Started { .. }, .. })
}
