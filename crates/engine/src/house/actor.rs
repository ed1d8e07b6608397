//! The one task that writes a session: it decides, records, then acts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parlor_log::{Lease, LogError};
use parlor_model::Turn;
use parlor_tools::{Context, Interpreter, Policy, Redact, Shells};
use parlor_vocab::{
    AgentId, Choice, Draft, Entry, EventId, Failure, MessageId, PROGRAM_ENDS, Refusal, RunEvent, RunId, Seq,
    SessionCommand, SessionEvent, SessionId, SessionReply,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::opened::{Ask, OpenSession};
use super::performer::{Performer, Reins};
use super::recall::{KEPT_HISTORY_BYTES, Past, recall};
use super::spending::Spending;
use super::weight::weight;
use super::{MAX_ACTIVE_RUNS, Means, Rooms, refusal_of};
use crate::contain::contain;
use crate::live::Live;
use crate::redact::clean_excerpt;
use crate::session::{Effect, Finish, Outcome, Session};

/// How many questions may wait for one session.
const MAILBOX: usize = 64;
/// How long an end that cannot be recorded waits before it is tried again.
const RETRY_RECORDING: Duration = Duration::from_secs(1);
/// The code of a run whose working folder cannot be used.
const FOLDER_UNUSABLE: &str = "FOLDER_UNUSABLE";

pub(super) struct Actor {
    means: Arc<Means>,
    spending: Arc<Spending>,
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
    reins: HashMap<RunId, Reins>,
    compaction: Option<Compaction>,
    /// The house's places for active runs, and the one that is ours.
    places: Arc<Semaphore>,
    place: Option<OwnedSemaphorePermit>,
    /// Why the end of a run cannot be recorded.
    trouble: Option<String>,
    /// Cancelled if this task panics: stops those who perform.
    broken: CancellationToken,
    asks: mpsc::Receiver<Ask>,
    mailbox: mpsc::Sender<Ask>,
    effects: Vec<Effect>,
}

/// A summary that is being written.
struct Compaction {
    keep: usize,
    cancel: CancellationToken,
    reply: oneshot::Sender<Result<SessionReply, Refusal>>,
}

impl Actor {
    pub(super) fn new(rooms: &Rooms, id: SessionId, lease: Lease) -> Self {
        let (mailbox, asks) = mpsc::channel(MAILBOX);
        Self {
            means: Arc::clone(&rooms.means),
            spending: Arc::clone(&rooms.spending),
            redact: Arc::clone(&rooms.redact),
            state_folder: rooms.state_folder.clone(),
            live: rooms.lives.of(&id),
            id,
            lease,
            session: Session::default(),
            shells: Shells::default(),
            ruby: Interpreter::default(),
            reins: HashMap::new(),
            compaction: None,
            places: Arc::clone(&rooms.places),
            place: None,
            trouble: None,
            broken: CancellationToken::new(),
            asks,
            mailbox,
            effects: Vec::new(),
        }
    }

    pub(super) fn start(self) -> OpenSession {
        let (asks, id) = (self.mailbox.clone(), self.id.clone());
        OpenSession::new(asks, id, tokio::spawn(Box::new(self).run_or_break()))
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
        while !(closing && self.reins.is_empty() && self.compaction.is_none()) {
            // We hold a sender, so the channel cannot close.
            let Some(ask) = self.asks.recv().await else { return };
            match ask {
                Ask::Command(_, reply) if closing => drop(reply.send(Err(self.closing()))),
                Ask::Command(command, reply) => self.on_command(*command, reply).await,
                Ask::View(reply) => drop(reply.send(Box::new(self.session.clone()))),
                Ask::Trouble(reply) => drop(reply.send(self.trouble.clone())),
                Ask::Record(run, events, reply) => {
                    let events = self.session.record(&run, events);
                    drop(reply.send(self.append(events).await));
                }
                Ask::Forget(kept_from, summary, reply) => {
                    drop(reply.send(self.forget_before(&kept_from, summary).await));
                }
                Ask::Waiting(reply) => drop(reply.send(self.session.queue().len())),
                Ask::Usage(reply) => drop(reply.send(self.session.usage())),
                Ask::Finish(finish) => self.on_finish(*finish, closing).await,
                Ask::Summarized(summary) => self.on_summary(*summary).await,
                Ask::Leave(reply) => {
                    let leaves = self.may_leave();
                    closing |= leaves.is_ok();
                    drop(reply.send(leaves));
                }
                Ask::Close => {
                    closing = true;
                    self.halt_all(PROGRAM_ENDS);
                }
            }
            if !closing {
                self.act();
            }
        }
        self.asks.close();
        self.live.forget();
        // What was sent to the background belongs to the session, and ends with it.
        self.shells.end_all().await;
        self.ruby.end().await;
        // Nobody is left to tell; the lease of a process that has ended is free in any case.
        let _ = self.means.log.release(self.lease).await;
    }

    fn closing(&self) -> Refusal {
        Refusal::LogUnavailable { reason: format!("session {} is being closed", self.id) }
    }

    /// Whether nothing would be lost by closing the session now.
    fn may_leave(&self) -> Result<(), Refusal> {
        if let Some(active) = self.session.active() {
            return Err(Refusal::Busy { active: active.clone() });
        }
        if self.compaction.is_some() {
            return Err(Refusal::Compacting);
        }
        if self.shells.list().iter().any(|shell| shell.ending.is_none()) {
            return Err(Refusal::BackgroundProcesses);
        }
        Ok(())
    }

    fn halt_all(&self, reason: &str) {
        self.reins.values().for_each(|reins| reins.halt(reason));
        if let Some(compaction) = &self.compaction {
            compaction.cancel.cancel();
        }
    }

    async fn on_command(
        &mut self,
        command: SessionCommand,
        reply: oneshot::Sender<Result<SessionReply, Refusal>>,
    ) {
        if let SessionCommand::Compact { keep } = command {
            return self.begin_compaction(keep, reply).await;
        }
        drop(reply.send(self.carry_out(command).await));
    }

    async fn carry_out(&mut self, command: SessionCommand) -> Result<SessionReply, Refusal> {
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
                    return Err(Refusal::Compacting);
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
        let decision = self.session.decide(command, &agent, &*self.means.ids)?;
        let performs = decision.effects.iter().any(|effect| matches!(effect, Effect::Perform(_)));
        if performs && self.place.is_none() {
            let place = Arc::clone(&self.places).try_acquire_owned();
            self.place = Some(place.map_err(|_| Refusal::TooManyRuns { limit: MAX_ACTIVE_RUNS })?);
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

    fn agent_for(&self, choice: &Choice) -> Result<AgentId, Refusal> {
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

    /// Takes over what the log tells, and ends what was cut off.
    pub(super) async fn recover(&mut self, session: Session) -> Result<(), LogError> {
        self.session = session;
        let (events, effects) =
            self.session.recover(&self.next_agent(), &*self.means.ids, self.means.clock.now());
        self.append(events).await?;
        self.effects.extend(effects);
        // What waited was accepted before, so it goes on even where there is no place.
        self.place = Arc::clone(&self.places).try_acquire_owned().ok();
        self.leave_place_if_idle();
        Ok(())
    }

    /// Records the end of a run. It has happened, so it is tried until it is recorded; meanwhile the
    /// session answers, and the run counts as active.
    async fn on_finish(&mut self, mut finish: Finish, closing: bool) {
        // A stop that was accepted holds, even if the agent was done at the same moment.
        if let Some(reason) = self.reins.remove(&finish.run).and_then(|reins| reins.halted()) {
            finish.outcome = Outcome::Stopped(reason);
        }
        let (mut events, effects) = self.session.finish(finish.clone(), &self.next_agent(), &*self.means.ids);
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
                    mailbox.send(Ask::Finish(Box::new(finish))).await
                });
            }
        }
    }

    /// Takes back what was let go of the history, for whoever judges it as a whole.
    async fn look_back(&mut self) -> Result<(), LogError> {
        if !self.session.history.is_at_hand() {
            let (from, head) = (self.session.history.from(), self.session.head());
            self.session.history = recall(&*self.means.log, &self.id, from, head).await?;
        }
        Ok(())
    }

    async fn forget_before(&mut self, kept_from: &MessageId, summary: String) -> Result<(), LogError> {
        self.look_back().await?;
        let events = self.session.forgotten(kept_from, summary, &*self.means.ids);
        self.append(events).await?;
        self.let_go();
        Ok(())
    }

    /// Keeps no more of the history than an open session may.
    fn let_go(&mut self) {
        // A summary that is being written is about what is here.
        if self.compaction.is_none() {
            self.session.history.let_go_beyond(KEPT_HISTORY_BYTES);
        }
    }

    async fn begin_compaction(&mut self, keep: usize, reply: oneshot::Sender<Result<SessionReply, Refusal>>) {
        if self.compaction.is_some() {
            return drop(reply.send(Err(Refusal::Compacting)));
        }
        if let Err(error) = self.look_back().await {
            return drop(reply.send(Err(refusal_of(error))));
        }
        let command = SessionCommand::Compact { keep };
        match self.session.decide(command, &self.fallback_agent(), &*self.means.ids) {
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
                Err(Refusal::NotCompacted { reason: clean_excerpt(&*self.redact, failure.message) })
            }
            Ok(summary) => {
                let summary = clean_excerpt(&*self.redact, summary);
                let decision = self.session.compacted(summary, keep, &*self.means.ids);
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
        let at = self.means.clock.now();
        let draft = |event| Draft { id: EventId::generate(self.means.ids.next()), at, event };
        let drafts: Vec<Draft> = events.into_iter().map(draft).collect();
        self.means.log.append(&self.lease, self.session.head(), &drafts).await?;
        for Draft { id, at, event } in drafts {
            let seq = Seq(self.session.head().0 + 1);
            let entry = Arc::new(Entry { seq, id, at, event });
            self.session.apply(&entry);
            self.live.appended(&entry, weight(&entry.event));
        }
        self.let_go();
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
                Effect::Summarize { keep } => self.summarize(keep),
            }
        }
    }

    fn perform(&mut self, run: RunId) {
        let Some((agent, input, message)) = self.session.beginning_of(&run) else { return };
        let agent = self.means.agents.find(Some(&agent)).or_else(|_| self.means.agents.find(None));
        let Ok((_, agent)) = agent else { return };
        let history = &self.session.history;
        let past = match self.session.history().split_last() {
            _ if !agent.looks_back() => Past::AtHand(Vec::new()),
            // The last is what is to be answered.
            Some((_, before)) => Past::AtHand(before.to_vec()),
            None => {
                let (session, from, until) = (self.id.clone(), history.from(), self.session.head());
                Past::InLog { session, from, until }
            }
        };
        let Some(birth) = self.session.birth() else { return };
        let chosen = self.session.choice();
        let turn = Turn {
            run: run.clone(),
            message: Some(message),
            history: Vec::new(),
            system: birth.system.clone(),
            model: input.choice.model.clone().or_else(|| chosen.model.clone()),
            reasoning: input.choice.reasoning.or(chosen.reasoning),
            folder: birth.folder.clone(),
            input,
        };
        let (means, live) = (Arc::clone(&self.means), Arc::clone(&self.live));
        // Made for each run: it holds the folder open, which an idle session need not.
        let context = match self.context(birth.folder.clone()) {
            Ok(context) => context,
            Err(failure) => {
                let finish = Finish::failed(run, failure, self.means.clock.now());
                let mailbox = self.mailbox.clone();
                drop(tokio::spawn(async move { mailbox.send(Ask::Finish(Box::new(finish))).await }));
                return;
            }
        };
        let (spending, mailbox) = (Arc::clone(&self.spending), self.mailbox.clone());
        let (performer, reins) =
            Performer::new(run.clone(), means, spending, mailbox, live, &self.redact, &context);
        self.reins.insert(run, reins);
        tokio::spawn(performer.perform(agent, turn, past));
    }

    /// What the tools of a run may use.
    fn context(&self, folder: PathBuf) -> Result<Context, Failure> {
        let policy = Policy::new([&folder]).map_err(|failure| {
            let message = format!("The working folder cannot be used: {}", failure.message);
            Failure { code: FOLDER_UNUSABLE.to_owned(), message, ..failure }
        })?;
        let policy = match &self.state_folder {
            Some(state) => policy.without_state(state),
            None => policy,
        };
        let context = Context::with_policy(folder, policy.with_home_of(&self.means.env));
        let (env, shells, ruby) = (Arc::clone(&self.means.env), self.shells.clone(), self.ruby.clone());
        let redact = Arc::clone(&self.redact);
        Ok(Context { env, shells, ruby, redact, cancel: self.broken.child_token(), ..context })
    }

    fn summarize(&mut self, keep: usize) {
        let Some(compaction) = &self.compaction else { return };
        let Ok((_, agent)) = self.means.agents.find(self.session.wanted_agent(&Choice::default())) else {
            return;
        };
        let (cancel, mailbox) = (compaction.cancel.clone(), self.mailbox.clone());
        let history = self.session.passages_before(keep).to_vec();
        let choice = self.session.choice().clone();
        tokio::spawn(async move {
            let stopped = || Failure {
                code: "STOPPED".to_owned(),
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
            let _ = mailbox.send(Ask::Summarized(Box::new(summary))).await;
        });
    }
}

fn starts_a_run(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Run { event: RunEvent::Started { .. }, .. })
}
