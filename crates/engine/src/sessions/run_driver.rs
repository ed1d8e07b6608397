//! The stage on which an agent performs one run: what it does there is recorded and shown.

mod text;
mod tool_calls;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use parlor_log::LogError;
use parlor_model::provider::ToolSpec;
use parlor_model::{Agent, AgentContext, Call, CallOutput, SpentSoFar, ToolResult, Turn, TurnError};
use parlor_tools::{Redact, StreamRedactor, ToolContext, clean};
use parlor_vocab::{
    AgentId, Failure, FailureCode, Media, MessageEvent, MessageId, RunEnding, RunEvent, RunId, StepEvent,
    StepId, StepKind, StopCause, StreamKind, SubagentEvent, Timestamp, Usage, UserInput,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::text::{Inputs, Written};
use super::SessionDeps;
use super::daily_spend::spent_today;
use super::handle::ActorMessage;
use super::history_loader::HistorySource;
use crate::redact::{clean_event, clean_excerpt, clean_failure};
use crate::session::{Finish, Outcome};
use crate::sessions::live::Live;
use parlor_tools::contain;

/// How much steering text may wait to be heard.
const MAX_HEARD: usize = 64;

/// How a session reaches the driver of one of its runs.
pub(super) struct RunHandle {
    cancel: CancellationToken,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    heard: Mutex<VecDeque<String>>,
    stop_cause: Mutex<Option<StopCause>>,
}

impl RunHandle {
    /// Text that joins the turn. What a driver does not listen to in time is dropped, oldest
    /// first; it is in the log all the same.
    pub(super) fn steer(&self, text: String) {
        let mut heard = self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.push_back(text);
        if heard.len() > MAX_HEARD {
            heard.pop_front();
        }
    }

    /// Who or what stopped the run, if it was stopped.
    pub(super) fn stop_cause(&self) -> Option<StopCause> {
        self.shared.stop_cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops the run. A later cause replaces an earlier one.
    pub(super) fn cancel(&self, cause: StopCause) {
        *self.shared.stop_cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
        self.cancel.cancel();
    }
}

pub(super) struct RunDriver {
    run: RunId,
    deps: Arc<SessionDeps>,
    session: mpsc::Sender<ActorMessage>,
    live: Arc<Live>,
    redact: Arc<dyn Redact>,
    context: ToolContext,
    shared: Arc<Shared>,
    begun: Timestamp,
    /// The step of thinking and speaking that is open, and since when.
    step: Option<(StepId, Timestamp)>,
    steps: u32,
    message: Option<(MessageId, String)>,
    /// What is spoken passes here.
    speech: StreamRedactor,
    thought: Option<String>,
    /// What is thought passes here.
    thinking: StreamRedactor,
    /// The calls whose inputs are being written.
    inputs: Inputs,
    answer: Option<MessageId>,
    /// What was said last, for whoever delegated.
    said: String,
}

impl RunDriver {
    pub(super) fn new(
        run: RunId,
        deps: Arc<SessionDeps>,
        session: mpsc::Sender<ActorMessage>,
        live: Arc<Live>,
        redact: &Arc<dyn Redact>,
        context: &ToolContext,
    ) -> (Self, RunHandle) {
        let shared = Arc::new(Shared::default());
        let cancel = context.cancel.child_token();
        let context = ToolContext { cancel: cancel.clone(), ..context.clone() };
        let handle = RunHandle { cancel, shared: Arc::clone(&shared) };
        let begun = deps.clock.now();
        let driver = Self {
            run,
            deps,
            session,
            live,
            redact: Arc::clone(redact),
            context,
            shared,
            begun,
            step: None,
            steps: 0,
            message: None,
            speech: StreamRedactor::new(redact),
            thought: None,
            thinking: StreamRedactor::new(redact),
            inputs: Inputs::default(),
            answer: None,
            said: String::new(),
        };
        (driver, handle)
    }

    /// Performs the run, before which this was said, to its end and tells the session.
    pub(super) async fn perform(mut self, agent: Arc<dyn Agent>, turn: Turn, past: HistorySource) {
        let halt = match past.told(&*self.deps.log).await {
            Ok(history) => self.have_answered(&*agent, &Turn { history, ..turn }).await,
            Err(error) => Err(TurnError::Failed(unrecorded(&error))),
        };
        let outcome = match halt {
            Ok(()) => Outcome::Completed,
            Err(TurnError::Failed(failure)) => Outcome::Failed(clean_failure(&*self.redact, failure)),
            // The session's task knows the cause, and puts it in.
            Err(TurnError::Stopped) => Outcome::Stopped(StopCause::Client { reason: String::new() }),
        };
        let finish = self.last_report(outcome);
        let (session, live) = (self.session.clone(), Arc::clone(&self.live));
        let subjects = [
            finish.spoken.as_ref().map(|(message, _)| StreamKind::Message(message.clone())),
            finish.thought.as_ref().map(|(step, _)| StreamKind::Thought(step.clone())),
        ];
        // The session task outlives its drivers; if it is gone, so is whom this is for.
        let _ = session.send(ActorMessage::Finish(Box::new(finish))).await;
        subjects.iter().flatten().for_each(|subject| live.close(subject));
    }

    /// Has `agent` answer. One that panics has failed.
    async fn have_answered(&mut self, agent: &dyn Agent, turn: &Turn) -> Result<(), TurnError> {
        contain(agent.answer(turn, self))
            .await
            .unwrap_or_else(|panicked| Err(TurnError::Failed(panicked.failure("The run"))))
    }

    fn last_report(&mut self, outcome: Outcome) -> Finish {
        self.inputs.let_go(&self.live);
        // What breaks off may do so within a secret.
        if outcome == Outcome::Completed {
            self.speak_rest();
            self.think_rest();
        }
        let clean = |text: String| clean(&*self.redact, text);
        let thought =
            self.thought.take().zip(self.step.as_ref()).map(|(text, (step, _))| (step.clone(), clean(text)));
        Finish {
            run: self.run.clone(),
            outcome,
            spoken: self.message.take().map(|(message, text)| (message, clean(text))),
            thought,
            answer: self.answer.clone(),
            duration_ms: self.since(self.begun),
            at: self.deps.clock.now(),
        }
    }

    /// Speaks what was held back: nothing more follows in this message.
    fn speak_rest(&mut self) {
        let Some((message, spoken)) = &mut self.message else { return };
        let rest = self.speech.rest();
        spoken.push_str(&rest);
        self.said.push_str(&rest);
        self.live.push(&StreamKind::Message(message.clone()), &rest);
    }

    /// Thinks what was held back: nothing more follows in this thought.
    fn think_rest(&mut self) {
        let (Some(thought), Some((step, _))) = (&mut self.thought, &self.step) else { return };
        let rest = self.thinking.rest();
        thought.push_str(&rest);
        self.live.push(&StreamKind::Thought(step.clone()), &rest);
    }

    fn since(&self, begun: Timestamp) -> u64 {
        u64::try_from(self.deps.clock.now().0 - begun.0).unwrap_or(0)
    }

    /// Records facts about this run; returns when they are durable.
    async fn record(&self, events: Vec<RunEvent>) -> Result<(), TurnError> {
        if self.context.cancel.is_cancelled() {
            return Err(TurnError::Stopped);
        }
        self.record_for(&self.run, events).await
    }

    async fn record_for(&self, run: &RunId, events: Vec<RunEvent>) -> Result<(), TurnError> {
        let (reply, answer) = oneshot::channel();
        let events = events.into_iter().map(|event| clean_event(&*self.redact, event)).collect();
        let gone = |_| TurnError::Stopped;
        self.session
            .send(ActorMessage::Record(run.clone(), events, reply))
            .await
            .map_err(|_| TurnError::Stopped)?;
        answer.await.map_err(gone)?.map_err(|error| TurnError::Failed(unrecorded(&error)))
    }

    fn new_step(&mut self) -> StepId {
        self.steps += 1;
        StepId::parse(&format!("step_{:03}", self.steps)).expect("a short text")
    }

    /// Opens a step for thinking and speaking, if none is open.
    async fn ensure_step(&mut self) -> Result<StepId, TurnError> {
        self.ensure_step_and(Vec::new()).await
    }

    /// The same, and records what follows it: together, since each record waits for the disk.
    async fn ensure_step_and(&mut self, more: Vec<RunEvent>) -> Result<StepId, TurnError> {
        if let Some((step, _)) = &self.step {
            let step = step.clone();
            if !more.is_empty() {
                self.record(more).await?;
            }
            return Ok(step);
        }
        let (kind, title) = if self.steps == 0 {
            (StepKind::Planning, "Answering")
        } else {
            (StepKind::Reasoning, "Going on")
        };
        let step = self.new_step();
        let started =
            RunEvent::Step(StepEvent::Started { step: step.clone(), kind, title: title.to_owned() });
        self.record(std::iter::once(started).chain(more).collect()).await?;
        self.step = Some((step.clone(), self.deps.clock.now()));
        Ok(step)
    }

    /// The thought is complete.
    async fn end_thought(&mut self) -> Result<(), TurnError> {
        self.think_rest();
        let (Some(text), Some((step, _))) = (self.thought.clone(), self.step.clone()) else { return Ok(()) };
        // Closed first: whoever has read the event takes what is open then as the step's next thought.
        self.live.close(&StreamKind::Thought(step.clone()));
        self.record(vec![RunEvent::Step(StepEvent::Reasoned { step, text })]).await?;
        self.thought = None;
        Ok(())
    }

    /// The message is complete.
    async fn end_message(&mut self) -> Result<(), TurnError> {
        self.speak_rest();
        let Some((message, text)) = self.message.clone() else { return Ok(()) };
        let event =
            RunEvent::Message(MessageEvent::Completed { message: message.clone(), text, media: Vec::new() });
        self.record(vec![event]).await?;
        self.message = None;
        self.live.close(&StreamKind::Message(message.clone()));
        self.answer = Some(message);
        Ok(())
    }

    async fn end_step(&mut self) -> Result<(), TurnError> {
        self.end_thought().await?;
        self.end_message().await?;
        let Some((step, begun)) = self.step.take() else { return Ok(()) };
        let duration_ms = self.since(begun);
        self.record(vec![RunEvent::Step(StepEvent::Completed { step, summary: String::new(), duration_ms })])
            .await
    }
}

#[async_trait]
impl AgentContext for RunDriver {
    async fn say(&mut self, text: &str) -> Result<(), TurnError> {
        self.end_thought().await?;
        let begins = self.message.is_none();
        if begins {
            let message = MessageId::generate(self.deps.ids.next());
            self.live.open(&self.run, StreamKind::Message(message.clone()));
            self.ensure_step_and(vec![RunEvent::Message(MessageEvent::Started { message: message.clone() })])
                .await?;
            self.message = Some((message, String::new()));
            self.said.clear();
        }
        // A message that was told to have begun has its first words, although it may be stopped by then.
        if !begins && self.context.cancel.is_cancelled() {
            return Err(TurnError::Stopped);
        }
        if let Some((message, spoken)) = &mut self.message {
            let text = self.speech.push(text);
            spoken.push_str(&text);
            self.said.push_str(&text);
            self.live.push(&StreamKind::Message(message.clone()), &text);
        }
        Ok(())
    }

    async fn think(&mut self, text: &str) -> Result<(), TurnError> {
        self.end_message().await?;
        let step = self.ensure_step().await?;
        if self.thought.is_none() {
            self.live.open(&self.run, StreamKind::Thought(step.clone()));
        }
        let text = self.thinking.push(text);
        self.thought.get_or_insert_default().push_str(&text);
        self.live.push(&StreamKind::Thought(step), &text);
        if self.context.cancel.is_cancelled() { Err(TurnError::Stopped) } else { Ok(()) }
    }

    async fn write_input(&mut self, name: &str, tool: &str, text: &str) -> Result<(), TurnError> {
        self.ensure_step().await?;
        let tool = clean(&*self.redact, tool.to_owned());
        let piece = Written { run: &self.run, name, tool, text };
        self.inputs.write(&self.live, piece, &self.redact, || self.deps.ids.next());
        if self.context.cancel.is_cancelled() { Err(TurnError::Stopped) } else { Ok(()) }
    }

    async fn call(&mut self, tool: &str, input: &str) -> Result<ToolResult, TurnError> {
        let call =
            Call { name: String::new(), tool: tool.to_owned(), input: input.to_owned(), refusal: None };
        let mut brought = self.perform_calls(vec![call], None).await?;
        Ok(brought.remove(0).map(|output| output.text))
    }

    async fn call_all(
        &mut self,
        calls: Vec<Call>,
        until: Option<Instant>,
    ) -> Result<Vec<Result<CallOutput, Failure>>, TurnError> {
        let brought = self.perform_calls(calls, until).await?;
        Ok(brought.into_iter().map(|result| result.map(tool_calls::given)).collect())
    }

    fn tools(&self) -> Vec<ToolSpec> {
        let spec = |tool: &Arc<dyn parlor_tools::Tool>| ToolSpec {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            schema: tool.schema().to_string(),
        };
        self.deps.tools.iter().map(spec).collect()
    }

    async fn delegate(
        &mut self,
        name: &str,
        task: &str,
        agent: &dyn Agent,
    ) -> Result<Result<String, Failure>, TurnError> {
        self.end_step().await?;
        let child = RunId::generate(self.deps.ids.next());
        let (name, task) = (name.to_owned(), task.to_owned());
        self.record(vec![RunEvent::Subagent(SubagentEvent::Started {
            child: child.clone(),
            name: name.clone(),
            task: task.clone(),
        })])
        .await?;
        let begun = self.deps.clock.now();
        let input = UserInput { text: task, ..UserInput::default() };
        let started = RunEvent::Started {
            parent: Some(self.run.clone()),
            agent: AgentId::parse(&name).map_err(|error| TurnError::Failed(unusable(&error.to_string())))?,
            model: None,
            input: input.clone(),
            message: MessageId::generate(self.deps.ids.next()),
        };
        self.record_for(&child, vec![started]).await?;
        let (mut driver, _reins) = Self::new(
            child.clone(),
            Arc::clone(&self.deps),
            self.session.clone(),
            Arc::clone(&self.live),
            &self.redact,
            &self.context,
        );
        let turn = Turn {
            run: child.clone(),
            input,
            message: None,
            history: Vec::new(),
            system: None,
            model: None,
            reasoning: None,
            folder: self.context.folder.clone(),
        };
        let ended = driver.have_answered(agent, &turn).await;
        let result = driver.end_as_child(ended, begun).await?;
        let duration_ms = self.since(begun);
        self.record(vec![RunEvent::Subagent(SubagentEvent::Done {
            child,
            result: result.clone(),
            duration_ms,
        })])
        .await?;
        Ok(result)
    }

    async fn consume(&mut self, usage: Usage, model: Option<&str>) -> Result<(), TurnError> {
        self.record(vec![RunEvent::Consumed { usage, model: model.map(str::to_owned) }]).await
    }

    async fn spent(&mut self) -> Result<SpentSoFar, TurnError> {
        let unreadable = |error| TurnError::Failed(unrecorded(&error));
        let today_micros = spent_today(&*self.deps.log, self.deps.clock.now()).await.map_err(unreadable)?;
        let (reply, answer) = oneshot::channel();
        self.session.send(ActorMessage::Usage(reply)).await.map_err(|_| TurnError::Stopped)?;
        let session_micros = answer.await.map_err(|_| TurnError::Stopped)?.cost_micros;
        Ok(SpentSoFar { session_micros, today_micros })
    }

    fn clean(&self, text: &str) -> String {
        self.redact.redact(text).into_owned()
    }

    async fn note(&mut self, headline: &str) -> Result<(), TurnError> {
        let step = self.ensure_step().await?;
        self.record(vec![RunEvent::Step(StepEvent::Updated {
            step,
            headline: headline.to_owned(),
            percent: 0,
        })])
        .await
    }

    async fn next_step(&mut self) -> Result<(), TurnError> {
        self.end_step().await
    }

    async fn break_off(&mut self) -> Result<usize, TurnError> {
        self.inputs.let_go(&self.live);
        self.thinking.forget();
        let unsaid = self.speech.forget();
        self.end_step().await?;
        Ok(unsaid)
    }

    async fn forget_before(&mut self, kept_from: &MessageId, summary: &str) -> Result<(), TurnError> {
        let (reply, answer) = oneshot::channel();
        let ask =
            ActorMessage::Forget(kept_from.clone(), clean_excerpt(&*self.redact, summary.to_owned()), reply);
        self.session.send(ask).await.map_err(|_| TurnError::Stopped)?;
        answer.await.map_err(|_| TurnError::Stopped)?.map_err(|error| TurnError::Failed(unrecorded(&error)))
    }

    async fn file(&mut self, media: &Media, max_bytes: u64) -> Result<Option<Vec<u8>>, TurnError> {
        tokio::select! {
            () = self.context.cancel.cancelled() => Err(TurnError::Stopped),
            content = self.deps.media.read(&media.id, max_bytes) => Ok(content.ok()),
        }
    }

    fn stopped(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.context.cancel.clone().cancelled_owned())
    }

    async fn pause(&mut self, duration: Duration) -> Result<(), TurnError> {
        tokio::select! {
            () = self.context.cancel.cancelled() => Err(TurnError::Stopped),
            () = tokio::time::sleep(duration) => Ok(()),
        }
    }

    fn heard(&mut self) -> Vec<String> {
        self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

impl RunDriver {
    /// Ends a subagent's run, as a part of the run that delegated.
    async fn end_as_child(
        &mut self,
        ended: Result<(), TurnError>,
        begun: Timestamp,
    ) -> Result<Result<String, Failure>, TurnError> {
        let duration_ms = self.since(begun);
        let failure = match ended {
            Ok(()) => {
                self.end_step().await?;
                None
            }
            Err(TurnError::Failed(failure)) => Some(failure),
            Err(TurnError::Stopped) => return Err(TurnError::Stopped),
        };
        let ending = match &failure {
            None => RunEnding::Completed { message: self.answer.clone() },
            Some(failure) => RunEnding::Failed(failure.clone()),
        };
        self.record(vec![RunEvent::Ended { ending, duration_ms }]).await?;
        Ok(failure.map_or_else(|| Ok(self.said.clone()), Err))
    }
}

fn unrecorded(error: &LogError) -> Failure {
    Failure { code: FailureCode::LogUnavailable, message: error.to_string(), retryable: true }
}

fn unusable(why: &str) -> Failure {
    Failure { code: FailureCode::InvalidInput, message: why.to_owned(), retryable: false }
}
