//! Starts and resumes the runs of a session, and passes the answers to their questions on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parlor_model::{Agent, Turn};
use parlor_tools::{Policy, RubyInterpreter, ToolContext};
use parlor_undo::{ChangeRecorder, UndoStore};
use parlor_vocab::{
    AgentId, Failure, FailureCode, MessageId, QuestionId, QuestionOutcome, RunId, SessionRefusal,
};
use tokio::sync::oneshot;

use super::super::agents::Resolution;
use super::super::external_run::{self, BeginRun};
use super::super::handle::ActorMessage;
use super::super::history_loader::HistorySource;
use super::super::policy_source::{RunAttendance, RunRules};
use super::super::refusal_of;
use super::super::run_driver::{ResumedRun, RunDriver, RunHandle};
use super::Actor;
use crate::session::FinishedRun;

impl Actor {
    pub(super) fn start_run(&mut self, run: RunId) {
        self.drive(run, None);
    }

    /// Goes on with a run that waited for an answer when its process died.
    pub(super) fn resume_run(&mut self, run: RunId) {
        let Some(pending) = self.session.pending_question().cloned() else { return };
        let Some(origin) = self.session.open.get(&run).map(|open| open.origin) else { return };
        let session = self.id.clone();
        self.drive(run, Some(ResumedRun { session, origin, head: self.session.head(), pending }));
    }

    fn drive(&mut self, run: RunId, resumed: Option<ResumedRun>) {
        let Some((_, input, message)) = self.session.start_of(&run) else { return };
        let chosen = self.session.choice();
        let resolution = self.deps.agents.resolve(chosen, &input.choice);
        let Resolution { choice, agent } = resolution.unwrap_or_else(|_| self.deps.agents.resolve_default());
        let notice = self.session.notice_of(&run);
        let history = &self.session.history;
        let in_log = || {
            let (session, from, until) = (self.id.clone(), history.from(), self.session.head());
            HistorySource::InLog { session, from, until }
        };
        let source = match self.session.history().split_last() {
            _ if resumed.is_some() => in_log(),
            _ if !agent.needs_history() => HistorySource::Cached(Vec::new()),
            // The last item is the input that the run answers.
            Some((_, before)) => HistorySource::Cached(before.to_vec()),
            None => in_log(),
        };
        let Some(new_session) = self.session.new_session() else { return };
        let folder = new_session.folder.clone();
        let turn = Turn {
            run: run.clone(),
            message: Some(message),
            history: Vec::new(),
            resumed: Vec::new(),
            system: new_session.system.clone(),
            model: choice.model.clone(),
            reasoning: input.choice.reasoning.or(chosen.reasoning),
            folder: folder.clone(),
            input,
        };
        let (deps, live) = (Arc::clone(&self.deps), Arc::clone(&self.live));
        let (can_answer, is_attended) = (turn.input.can_answer, turn.input.is_attended);
        let asked = RunAttendance { can_answer, is_attended };
        let rules = || self.policy.for_run(&*agent, &folder, asked, &self.session);
        // Created for each run, because it holds the folder open and an idle session should not.
        let context = self
            .file_policy(&folder)
            .and_then(|policy| check_model(&choice.agent, &*agent, turn.model.as_deref()).map(|()| policy))
            .and_then(|policy| rules().map(|rules| (policy, rules)))
            .map(|(policy, rules)| (self.tool_context(folder.clone(), policy, rules.as_deref()), rules));
        let (context, rules) = match context {
            Ok(context) => context,
            Err(failure) => {
                self.run_handles.insert(run.clone(), RunHandle::without_driver());
                let finished = FinishedRun::failed(run, failure, self.deps.clock.now());
                let mailbox = self.mailbox.clone();
                drop(tokio::spawn(async move {
                    mailbox.send(ActorMessage::RunFinished(Box::new(finished))).await
                }));
                return;
            }
        };
        let sandbox = rules.as_ref().and_then(|rules| rules.sandbox(self.user_home(), &self.state_folders));
        let changes = self.change_recorder(&run, &context.policy);
        // One of its own: that of the session may run without a sandbox, or with that of other rules.
        let ruby = if sandbox.is_some() { RubyInterpreter::default() } else { context.ruby.clone() };
        let context = ToolContext { sandbox: sandbox.map(Arc::new), ruby, changes, ..context };
        let mailbox = self.mailbox.clone();
        let tools = Arc::new(self.tool_sources.for_run(&self.deps.tools, &self.id));
        let (driver, handle) =
            RunDriver::new(run.clone(), deps, mailbox, live, &self.redact, &context, tools);
        self.run_handles.insert(run, handle);
        let driver = driver.with_rules(rules);
        match resumed {
            Some(resumed) => drop(tokio::spawn(driver.resume(agent, turn, source, resumed))),
            None => drop(tokio::spawn(driver.run(agent, turn, source, notice))),
        }
    }

    /// Begins a run that a client carries out: it has a handle, by which it is stopped, and no driver.
    pub(super) async fn begin_external_run(&mut self, begin: BeginRun) {
        let BeginRun { agent, input, reply } = begin;
        let begun = match self.session.active() {
            Some(active) => Err(SessionRefusal::Busy { active: active.clone() }),
            None => {
                let run = RunId::generate(self.deps.ids.next());
                let message = MessageId::generate(self.deps.ids.next());
                let events = self.session.record(&run, vec![external_run::started(agent, input, message)]);
                match self.append(events).await {
                    Ok(()) => {
                        let handle = RunHandle::without_driver();
                        let stopped = handle.token();
                        self.run_handles.insert(run.clone(), handle);
                        Ok((run, stopped))
                    }
                    Err(error) => Err(refusal_of(error)),
                }
            }
        };
        drop(reply.send(begun));
    }

    /// Records what a run changes, if parlor keeps that.
    fn change_recorder(&self, run: &RunId, policy: &Arc<Policy>) -> ChangeRecorder {
        let now = self.deps.clock.now();
        let recorder = |store: &UndoStore| store.recorder(&self.id, run, now, Arc::clone(policy));
        self.undo.as_ref().map(recorder).unwrap_or_default()
    }

    /// Which files the tools of a run may open.
    fn file_policy(&self, folder: &Path) -> Result<Policy, Failure> {
        let policy = Policy::new([folder]).map_err(|failure| {
            let message = format!("The working folder cannot be used: {}", failure.message);
            Failure { code: FailureCode::FolderUnusable, message, ..failure }
        })?;
        let policy = self.state_folders.iter().fold(policy, |policy, folder| policy.without_state(folder));
        Ok(policy.with_home_of(&self.deps.env))
    }

    /// The user's folder, whose secrets are hidden.
    fn user_home(&self) -> Option<&Path> {
        self.deps.env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| Path::new(home))
    }

    /// The folder, environment and limits for the tools of a run.
    fn tool_context(&self, folder: PathBuf, policy: Policy, rules: Option<&RunRules>) -> ToolContext {
        let confining = rules.filter(|rules| rules.is_confined());
        let policy = match confining {
            Some(rules) => policy.without_obeyed_changes().without_secrets(rules.secrets(self.user_home())),
            None => policy,
        };
        let context = ToolContext::with_policy(folder, policy);
        let (env, background, ruby) =
            (Arc::clone(&self.deps.env), self.background.clone(), self.ruby.clone());
        let redact = Arc::clone(&self.redact);
        ToolContext { env, background, ruby, redact, cancel: self.abandoned.child_token(), ..context }
    }

    /// Sends the outcome of a question to its driver, at once if it is settled already.
    pub(super) fn await_answer(&mut self, question: QuestionId, reply: oneshot::Sender<QuestionOutcome>) {
        match self.session.outcome_of(&question) {
            // A driver that does not wait any more was stopped.
            Some(outcome) => drop(reply.send(outcome.clone())),
            None => drop(self.waiting.insert(question, reply)),
        }
    }

    pub(super) fn tell_driver(&mut self, question: &QuestionId, outcome: QuestionOutcome) {
        if let Some(driver) = self.waiting.remove(question) {
            drop(driver.send(outcome));
        }
    }

    /// Records that nobody answered in time, unless somebody has just answered.
    pub(super) async fn expire_question(&mut self, question: &QuestionId) {
        let (events, effects) = self.session.expire(question);
        // If the log cannot be written, the driver asks again.
        if self.append(events).await.is_ok() {
            self.effects.extend(effects);
        }
    }

    /// Keeps the active run open for the next process if it only waits for an answer: nothing of it is lost.
    pub(super) fn suspend_waiting_run(&mut self) {
        let active = self.session.active().filter(|run| self.session.only_waits(run));
        self.suspended = active.cloned();
    }
}

/// Fails if a client chose a model, and the agent answers without one. An agent's own name is no model.
fn check_model(id: &AgentId, agent: &dyn Agent, chosen: Option<&str>) -> Result<(), Failure> {
    let Some(model) = chosen.filter(|model| *model != id.as_str() && !agent.takes_models()) else {
        return Ok(());
    };
    let message = format!(
        "the model {model:?} cannot be used: the agent {id} answers without a model, and no other agent is chosen. Run: \
         parlor login PROVIDER --key, or configure a model in parlor.toml; to talk to the agent {id}, choose the model {id}"
    );
    Err(Failure { code: FailureCode::UnknownModel, message, retryable: false })
}
