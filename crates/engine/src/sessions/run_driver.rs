//! Drives one run: it gives the agent its [`AgentContext`], and records and shows what the agent does.

pub(crate) mod approval;
mod call_inputs;
pub(crate) mod hosts;
mod project_servers;
mod project_trust;
mod resume;
mod run_handle;
mod subagent;
pub(crate) mod tool_calls;
mod tool_details;
mod wider_rights;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use parlor_log::LogError;
use parlor_model::{
    Agent, AgentContext, AvailableTools, SpentSoFar, SubagentResult, ToolCall, ToolCallOutput, ToolResult,
    Turn, TurnError,
};
use parlor_tools::{Redact, StreamRedactor, ToolContext, catch_panic, clean, clean_long};
use parlor_vocab::{
    AgentId, Failure, FailureCode, Media, MessageEvent, MessageId, RunEvent, RunId, StepEvent, StepId,
    StopCause, StreamKind, SubagentEvent, Timestamp, Usage, UserInput,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::approval::AnswerWaits;
use self::call_inputs::{CallInputs, InputPiece};
pub(super) use self::hosts::{HostRules, RunHosts};
pub(super) use self::resume::ResumedRun;
pub(super) use self::run_handle::RunHandle;
use self::run_handle::Shared;
use super::SessionDeps;
use super::daily_spend::spent_today;
use super::handle::ActorMessage;
use super::history_loader::HistorySource;
use super::policy_source::RunRules;
use super::tool_sources::RunTools;
use super::undo::{background, record_changes};
use crate::redact::{clean_events, clean_excerpt, clean_failure};
use crate::session::{FinishedRun, RunOutcome};
use crate::sessions::live::LiveSession;
use crate::step_titles::writing_step;

/// Drives one run.
pub(super) struct RunDriver {
    run: RunId,
    deps: Arc<SessionDeps>,
    actor: mpsc::Sender<ActorMessage>,
    live: Arc<LiveSession>,
    redact: Arc<dyn Redact>,
    context: ToolContext,
    tools: Arc<RunTools>,
    /// The policy; `None` if the agent is not under it.
    rules: Option<Arc<RunRules>>,
    /// How long the run has waited for answers to its questions.
    waits: Mutex<AnswerWaits>,
    shared: Arc<Shared>,
    started_at: Timestamp,
    /// The open step for reasoning and messages, with its start time.
    step: Option<(StepId, Timestamp)>,
    /// How many steps the run has had.
    step_count: u32,
    /// The open message with its text so far.
    message: Option<(MessageId, String)>,
    /// Removes secrets from the open message.
    message_redactor: StreamRedactor,
    /// The open reasoning text.
    reasoning: Option<String>,
    /// Removes secrets from the open reasoning text.
    reasoning_redactor: StreamRedactor,
    /// The calls whose inputs the agent is writing.
    call_inputs: CallInputs,
    /// The last completed message.
    last_message: Option<MessageId>,
    /// The text of the last message, open or completed. For a subagent's run it is the result.
    last_text: String,
}

impl RunDriver {
    pub(super) fn new(
        run: RunId,
        deps: Arc<SessionDeps>,
        actor: mpsc::Sender<ActorMessage>,
        live: Arc<LiveSession>,
        redact: &Arc<dyn Redact>,
        context: &ToolContext,
        tools: Arc<RunTools>,
    ) -> (Self, RunHandle) {
        let shared = Arc::new(Shared::default());
        let cancel = context.cancel.child_token();
        let context = ToolContext { cancel: cancel.clone(), ..context.clone() };
        let handle = RunHandle { cancel, shared: Arc::clone(&shared) };
        let started_at = deps.clock.now();
        let driver = Self {
            run,
            deps,
            actor,
            live,
            redact: Arc::clone(redact),
            context,
            tools,
            rules: None,
            waits: Mutex::default(),
            shared,
            started_at,
            step: None,
            step_count: 0,
            message: None,
            message_redactor: StreamRedactor::new(redact),
            reasoning: None,
            reasoning_redactor: StreamRedactor::new(redact),
            call_inputs: CallInputs::default(),
            last_message: None,
            last_text: String::new(),
        };
        (driver, handle)
    }

    /// The same driver, under the policy `rules`.
    pub(super) fn with_rules(self, rules: Option<Arc<RunRules>>) -> Self {
        Self { rules, ..self }
    }

    /// Runs the agent to its end and reports the end to the actor. `history` gives what happened before the run;
    /// `notice` is reported before the agent answers.
    pub(super) async fn run(
        mut self,
        agent: Arc<dyn Agent>,
        turn: Turn,
        history: HistorySource,
        notice: Option<String>,
    ) {
        let result = match history.load(&*self.deps.log).await {
            Ok(history) => self.run_agent(&*agent, &Turn { history, ..turn }, notice.as_deref()).await,
            Err(error) => Err(TurnError::Failed(log_failure(&error))),
        };
        self.report_end(result).await;
    }

    /// Reports the end of the run to the actor.
    async fn report_end(mut self, result: Result<(), TurnError>) {
        let outcome = match result {
            Ok(()) => RunOutcome::Completed,
            Err(TurnError::Failed(failure)) => RunOutcome::Failed(clean_failure(&*self.redact, failure)),
            // A placeholder: the actor knows the cause and replaces it.
            Err(TurnError::Stopped) => RunOutcome::Stopped(StopCause::Client { reason: String::new() }),
        };
        let finished = self.finish(outcome).await;
        if self.context.sandbox.is_some() {
            self.context.ruby.stop().await;
        }
        let beside = background(&self.context.background);
        record_changes(&self.context.changes, move |changes| changes.finish(beside)).await;
        let (actor, live) = (self.actor.clone(), Arc::clone(&self.live));
        let streams = [
            finished.open_message.as_ref().map(|(message, _)| StreamKind::Message(message.clone())),
            finished.open_reasoning.as_ref().map(|(step, _)| StreamKind::Reasoning(step.clone())),
        ];
        // The actor outlives its run drivers. If it has panicked, nobody needs the report.
        let _ = actor.send(ActorMessage::RunFinished(Box::new(finished))).await;
        streams.iter().flatten().for_each(|stream| live.close(stream));
    }

    /// Has `agent` answer the turn, after the notice. A panic of the agent becomes a failure.
    async fn run_agent(
        &mut self,
        agent: &dyn Agent,
        turn: &Turn,
        notice: Option<&str>,
    ) -> Result<(), TurnError> {
        if let Some(notice) = notice {
            self.report_progress(notice).await?;
        }
        catch_panic(agent.answer(turn, self))
            .await
            .unwrap_or_else(|panicked| Err(TurnError::Failed(panicked.failure("The run"))))
    }

    /// Closes the streams of call inputs, and collects what the actor needs for the end of the run.
    async fn finish(&mut self, outcome: RunOutcome) -> FinishedRun {
        self.call_inputs.close_all(&self.live);
        // A run that broke off may have done so within a secret, so the text that the redactors hold back is dropped.
        if outcome == RunOutcome::Completed {
            self.flush_message();
            self.flush_reasoning();
        }
        let open_reasoning = match self.reasoning.take().zip(self.step.as_ref()) {
            Some((text, (step, _))) => Some((step.clone(), clean_long(&self.redact, text).await)),
            None => None,
        };
        let open_message = match self.message.take() {
            Some((message, text)) => Some((message, clean_long(&self.redact, text).await)),
            None => None,
        };
        FinishedRun {
            run: self.run.clone(),
            outcome,
            open_message,
            open_reasoning,
            last_message: self.last_message.clone(),
            duration_ms: self.since(self.started_at),
            at: self.deps.clock.now(),
        }
    }

    /// Adds the text that the redactor held back, at the end of the message.
    fn flush_message(&mut self) {
        let Some((message, text)) = &mut self.message else { return };
        let rest = self.message_redactor.finish();
        text.push_str(&rest);
        self.last_text.push_str(&rest);
        self.live.push(&StreamKind::Message(message.clone()), &rest);
    }

    /// Adds the text that the redactor held back, at the end of the reasoning.
    fn flush_reasoning(&mut self) {
        let (Some(reasoning), Some((step, _))) = (&mut self.reasoning, &self.step) else { return };
        let rest = self.reasoning_redactor.finish();
        reasoning.push_str(&rest);
        self.live.push(&StreamKind::Reasoning(step.clone()), &rest);
    }

    /// Milliseconds since `started_at`.
    fn since(&self, started_at: Timestamp) -> u64 {
        u64::try_from(self.deps.clock.now().0 - started_at.0).unwrap_or(0)
    }

    /// Records events of this run; returns when they are durable. Fails if the run was stopped.
    async fn record(&self, events: Vec<RunEvent>) -> Result<(), TurnError> {
        if self.context.cancel.is_cancelled() {
            return Err(TurnError::Stopped);
        }
        self.record_for(&self.run, events).await
    }

    async fn record_for(&self, run: &RunId, events: Vec<RunEvent>) -> Result<(), TurnError> {
        let (reply, answer) = oneshot::channel();
        let events = clean_events(&self.redact, events).await.ok_or(TurnError::Stopped)?;
        self.actor
            .send(ActorMessage::Record(run.clone(), events, reply))
            .await
            .map_err(|_| TurnError::Stopped)?;
        answer.await.map_err(|_| TurnError::Stopped)?.map_err(|error| TurnError::Failed(log_failure(&error)))
    }

    fn new_step(&mut self) -> StepId {
        self.step_count += 1;
        StepId::parse(&format!("step_{:03}", self.step_count)).expect("a step number is a short id")
    }

    /// Opens a step for reasoning and messages, if none is open.
    async fn ensure_step(&mut self) -> Result<StepId, TurnError> {
        self.ensure_step_and_record(Vec::new()).await
    }

    /// Like [`ensure_step`](Self::ensure_step), and records `more` together with it, because each record waits for
    /// the disk.
    async fn ensure_step_and_record(&mut self, more: Vec<RunEvent>) -> Result<StepId, TurnError> {
        if let Some((step, _)) = &self.step {
            let step = step.clone();
            if !more.is_empty() {
                self.record(more).await?;
            }
            return Ok(step);
        }
        let (kind, title) = writing_step(self.step_count == 0);
        let step = self.new_step();
        let started = RunEvent::Step(StepEvent::Started { step: step.clone(), kind, title });
        self.record(std::iter::once(started).chain(more).collect()).await?;
        self.step = Some((step.clone(), self.deps.clock.now()));
        Ok(step)
    }

    /// Completes the open reasoning text.
    async fn end_reasoning(&mut self) -> Result<(), TurnError> {
        self.flush_reasoning();
        let (Some(text), Some((step, _))) = (self.reasoning.clone(), self.step.clone()) else {
            return Ok(());
        };
        // Closed before the event is recorded: else a watcher that has read the event would take the open text for the
        // beginning of the step's next reasoning.
        self.live.close(&StreamKind::Reasoning(step.clone()));
        self.record(vec![RunEvent::Step(StepEvent::Reasoned { step, text })]).await?;
        self.reasoning = None;
        Ok(())
    }

    /// Completes the open message.
    async fn end_message(&mut self) -> Result<(), TurnError> {
        self.flush_message();
        let Some((message, text)) = self.message.clone() else { return Ok(()) };
        let event =
            RunEvent::Message(MessageEvent::Completed { message: message.clone(), text, media: Vec::new() });
        self.record(vec![event]).await?;
        self.message = None;
        // Closed after the event is recorded: until then watchers see the open text, and the actor saves it for the case
        // of a crash. No later message has the same id.
        self.live.close(&StreamKind::Message(message.clone()));
        self.last_message = Some(message);
        Ok(())
    }

    /// Completes the open step with its reasoning and message.
    async fn end_step(&mut self) -> Result<(), TurnError> {
        self.end_reasoning().await?;
        self.end_message().await?;
        let Some((step, started_at)) = self.step.take() else { return Ok(()) };
        let duration_ms = self.since(started_at);
        self.record(vec![RunEvent::Step(StepEvent::Completed { step, summary: String::new(), duration_ms })])
            .await
    }
}

#[async_trait]
impl AgentContext for RunDriver {
    async fn write_text(&mut self, text: &str) -> Result<(), TurnError> {
        self.end_reasoning().await?;
        let begins = self.message.is_none();
        if begins {
            let message = MessageId::generate(self.deps.ids.next());
            self.live.open(&self.run, StreamKind::Message(message.clone()));
            self.ensure_step_and_record(vec![RunEvent::Message(MessageEvent::Started {
                message: message.clone(),
            })])
            .await?;
            self.message = Some((message, String::new()));
            self.last_text.clear();
        }
        // A message whose start was recorded gets its first text, even if the run was stopped meanwhile.
        if !begins && self.context.cancel.is_cancelled() {
            return Err(TurnError::Stopped);
        }
        if let Some((message, message_text)) = &mut self.message {
            let (stream, last_text, live) =
                (StreamKind::Message(message.clone()), &mut self.last_text, &self.live);
            let show = |text: &str| {
                message_text.push_str(text);
                last_text.push_str(text);
                live.push(&stream, text);
            };
            self.message_redactor.push_in_slices(text, show).await;
        }
        Ok(())
    }

    async fn write_reasoning(&mut self, text: &str) -> Result<(), TurnError> {
        self.end_message().await?;
        let step = self.ensure_step().await?;
        if self.reasoning.is_none() {
            self.live.open(&self.run, StreamKind::Reasoning(step.clone()));
        }
        let (stream, reasoning, live) =
            (StreamKind::Reasoning(step), self.reasoning.get_or_insert_default(), &self.live);
        let show = |text: &str| {
            reasoning.push_str(text);
            live.push(&stream, text);
        };
        self.reasoning_redactor.push_in_slices(text, show).await;
        if self.context.cancel.is_cancelled() { Err(TurnError::Stopped) } else { Ok(()) }
    }

    async fn write_call_input(&mut self, streamed_id: &str, tool: &str, text: &str) -> Result<(), TurnError> {
        self.ensure_step().await?;
        let tool = clean(&*self.redact, tool.to_owned());
        let piece = InputPiece { run: &self.run, streamed_id, tool, text };
        self.call_inputs.write(&self.live, piece, &self.redact, || self.deps.ids.next()).await;
        if self.context.cancel.is_cancelled() { Err(TurnError::Stopped) } else { Ok(()) }
    }

    async fn call_tool(&mut self, tool: &str, input: &str) -> Result<ToolResult, TurnError> {
        let call = ToolCall {
            streamed_id: String::new(),
            tool: tool.to_owned(),
            input: input.to_owned(),
            refusal: None,
        };
        let mut results = self.run_calls(vec![call], None).await?;
        Ok(results.remove(0).map(|output| output.text))
    }

    async fn call_tools(
        &mut self,
        calls: Vec<ToolCall>,
        until: Option<Instant>,
    ) -> Result<Vec<Result<ToolCallOutput, Failure>>, TurnError> {
        let results = self.run_calls(calls, until).await?;
        Ok(results.into_iter().map(|result| result.map(tool_calls::call_output)).collect())
    }

    async fn tools(&mut self) -> Result<AvailableTools, TurnError> {
        self.available_tools().await
    }

    async fn trusts_project(&mut self, files: &[PathBuf]) -> Result<bool, TurnError> {
        self.is_project_trusted(files).await
    }

    async fn delegate(
        &mut self,
        name: &str,
        task: &str,
        agent: &dyn Agent,
    ) -> Result<SubagentResult, TurnError> {
        self.end_step().await?;
        let child = RunId::generate(self.deps.ids.next());
        let (name, task) = (name.to_owned(), task.to_owned());
        self.record(vec![RunEvent::Subagent(SubagentEvent::Started {
            child: child.clone(),
            name: name.clone(),
            task: task.clone(),
        })])
        .await?;
        let started_at = self.deps.clock.now();
        let input = UserInput { text: task, ..UserInput::default() };
        let started = RunEvent::Started {
            parent: Some(self.run.clone()),
            agent: AgentId::parse(&name)
                .map_err(|error| TurnError::Failed(invalid_input(&error.to_string())))?,
            model: None,
            missing_agent: None,
            input: input.clone(),
            message: MessageId::generate(self.deps.ids.next()),
        };
        self.record_for(&child, vec![started]).await?;
        let (driver, _handle) = Self::new(
            child.clone(),
            Arc::clone(&self.deps),
            self.actor.clone(),
            Arc::clone(&self.live),
            &self.redact,
            &self.context,
            Arc::clone(&self.tools),
        );
        let mut driver = driver.with_rules(self.rules.clone());
        let turn = Turn {
            run: child.clone(),
            input,
            message: None,
            history: Vec::new(),
            resumed: Vec::new(),
            system: None,
            model: None,
            reasoning: None,
            folder: self.context.folder.clone(),
        };
        let ended = driver.run_agent(agent, &turn, None).await;
        let waited = driver.take_waited();
        self.waits.get_mut().unwrap_or_else(PoisonError::into_inner).add(waited);
        let result = driver.end_subagent_run(ended, started_at).await?;
        let duration_ms = self.since(started_at);
        self.record(vec![RunEvent::Subagent(SubagentEvent::Done {
            child,
            result: result.clone(),
            duration_ms,
        })])
        .await?;
        Ok(result)
    }

    async fn record_usage(&mut self, usage: Usage, model: Option<&str>) -> Result<(), TurnError> {
        self.record(vec![RunEvent::UsageAdded { usage, model: model.map(str::to_owned) }]).await
    }

    async fn spent(&mut self) -> Result<SpentSoFar, TurnError> {
        let unreadable = |error| TurnError::Failed(log_failure(&error));
        let today_micros = spent_today(&*self.deps.log, self.deps.clock.now()).await.map_err(unreadable)?;
        let (reply, answer) = oneshot::channel();
        self.actor.send(ActorMessage::Usage(reply)).await.map_err(|_| TurnError::Stopped)?;
        let session_micros = answer.await.map_err(|_| TurnError::Stopped)?.cost_micros;
        Ok(SpentSoFar { session_micros, today_micros })
    }

    fn redact(&self, text: &str) -> String {
        self.redact.redact(text).into_owned()
    }

    async fn report_progress(&mut self, headline: &str) -> Result<(), TurnError> {
        let step = self.ensure_step().await?;
        self.record(vec![RunEvent::Step(StepEvent::Updated {
            step,
            headline: headline.to_owned(),
            percent: 0,
        })])
        .await
    }

    async fn finish_step(&mut self) -> Result<(), TurnError> {
        self.end_step().await
    }

    async fn end_interrupted_step(&mut self) -> Result<usize, TurnError> {
        self.call_inputs.close_all(&self.live);
        self.reasoning_redactor.discard();
        let dropped_bytes = self.message_redactor.discard();
        self.end_step().await?;
        Ok(dropped_bytes)
    }

    async fn replace_history_before(
        &mut self,
        kept_from: &MessageId,
        summary: &str,
    ) -> Result<(), TurnError> {
        let (reply, answer) = oneshot::channel();
        let message = ActorMessage::CompactBefore(
            kept_from.clone(),
            clean_excerpt(&*self.redact, summary.to_owned()),
            reply,
        );
        self.actor.send(message).await.map_err(|_| TurnError::Stopped)?;
        answer.await.map_err(|_| TurnError::Stopped)?.map_err(|error| TurnError::Failed(log_failure(&error)))
    }

    async fn read_media(&mut self, media: &Media, max_bytes: u64) -> Result<Option<Vec<u8>>, TurnError> {
        tokio::select! {
            () = self.context.cancel.cancelled() => Err(TurnError::Stopped),
            content = self.deps.media.read(&media.id, max_bytes) => Ok(content.ok()),
        }
    }

    async fn media_path(&mut self, media: &Media) -> Result<Option<PathBuf>, TurnError> {
        let Ok(path) = self.deps.media.path(&media.id).await else { return Ok(None) };
        let (policy, allowed) = (Arc::clone(&self.context.policy), path.clone());
        let granted = tokio::task::spawn_blocking(move || policy.allow_reading(&allowed).is_ok()).await;
        Ok(granted.unwrap_or(false).then_some(path))
    }

    fn take_waited(&mut self) -> Duration {
        self.waits.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn stopped(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.context.cancel.clone().cancelled_owned())
    }

    async fn sleep(&mut self, duration: Duration) -> Result<(), TurnError> {
        tokio::select! {
            () = self.context.cancel.cancelled() => Err(TurnError::Stopped),
            () = tokio::time::sleep(duration) => Ok(()),
        }
    }

    fn take_steering(&mut self) -> Vec<String> {
        self.shared.steering.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

fn log_failure(error: &LogError) -> Failure {
    Failure { code: FailureCode::LogUnavailable, message: error.to_string(), retryable: true }
}

fn invalid_input(message: &str) -> Failure {
    Failure { code: FailureCode::InvalidInput, message: message.to_owned(), retryable: false }
}
