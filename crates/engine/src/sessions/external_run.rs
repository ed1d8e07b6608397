//! Runs that a client carries out itself, such as the commands of another agent at the exec door. The session only records
//! them: it is shown, watched and stopped as any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parlor_tools::Redact;
use parlor_vocab::{
    AgentId, ErrorScope, Failure, MessageId, NewSession, RunEvent, RunId, SessionId, SessionRefusal,
    StepEvent, StepId, Timestamp, ToolCallId, ToolEvent, UserInput,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::handle::ActorMessage;
use super::open_sessions::Route;
use super::{SessionDeps, Sessions, refusal_of};
use crate::redact::clean_events;
use crate::session::{FinishedRun, RunOutcome};
use crate::step_titles::tool_step;

/// How an actor begins an external run.
pub(super) struct BeginRun {
    pub(super) agent: AgentId,
    pub(super) input: UserInput,
    pub(super) reply: oneshot::Sender<Result<(RunId, CancellationToken), SessionRefusal>>,
}

/// A run that a client carries out. Dropping it ends the run.
pub struct ExternalRun {
    run: RunId,
    actor: mpsc::Sender<ActorMessage>,
    deps: Arc<SessionDeps>,
    redact: Arc<dyn Redact>,
    started: Timestamp,
    stopped: CancellationToken,
    /// How many steps the run has.
    steps: AtomicU64,
}

/// A tool call of an external run that has not ended.
#[derive(Debug)]
pub struct ExternalCall {
    step: StepId,
    call: ToolCallId,
    started: Timestamp,
}

impl Sessions {
    /// Begins a run in the session `id`, which is created if there is none. Refused while another run is active, and if another
    /// process has the session.
    pub async fn begin_external_run(
        &self,
        id: &SessionId,
        new_session: NewSession,
        agent: AgentId,
        input: UserInput,
    ) -> Result<ExternalRun, SessionRefusal> {
        let route = match self.route(id).await {
            Err(SessionRefusal::UnknownSession(_)) => {
                self.create(Some(id.clone()), new_session).await?;
                self.route(id).await?
            }
            route => route?,
        };
        let Route::Here(session) = route else {
            let holder = "another process".to_owned();
            return Err(SessionRefusal::SessionHeld { session: id.clone(), holder });
        };
        let (reply, begun) = oneshot::channel();
        let begin = BeginRun { agent, input, reply };
        session.send(ActorMessage::BeginExternalRun(Box::new(begin))).await?;
        let (run, stopped) = begun.await.map_err(|_| SessionRefusal::session_closing(id))??;
        let deps = Arc::clone(&self.shared.deps);
        let (redact, started) = (Arc::clone(&self.shared.redact), deps.clock.now());
        Ok(ExternalRun {
            run,
            actor: session.mailbox(),
            deps,
            redact,
            started,
            stopped,
            steps: AtomicU64::new(0),
        })
    }
}

impl ExternalRun {
    /// Cancelled when somebody stops the run, or the program ends.
    pub fn stopped(&self) -> &CancellationToken {
        &self.stopped
    }

    /// Records a call of a tool with `input`, which is JSON text.
    pub async fn begin_call(&self, tool: &str, input: String) -> Result<ExternalCall, SessionRefusal> {
        let number = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        let step = StepId::parse(&format!("step_{number:03}")).expect("a step number is a short id");
        let call = ToolCallId::generate(self.deps.ids.next());
        let (kind, title) = tool_step(tool);
        let called =
            ToolEvent::Called { step: step.clone(), call: call.clone(), tool: tool.to_owned(), input };
        let started = RunEvent::Step(StepEvent::Started { step: step.clone(), kind, title });
        self.record(vec![started, RunEvent::Tool(called)]).await?;
        Ok(ExternalCall { step, call, started: self.deps.clock.now() })
    }

    /// Records the result of a call.
    pub async fn end_call(
        &self,
        call: ExternalCall,
        result: Result<String, Failure>,
    ) -> Result<(), SessionRefusal> {
        let duration_ms = self.since(call.started);
        let ExternalCall { step, call, .. } = call;
        self.record(match result {
            Ok(output) => vec![
                RunEvent::Tool(ToolEvent::Completed { call, output, details: None, duration_ms }),
                RunEvent::Step(StepEvent::Completed { step, summary: String::new(), duration_ms }),
            ],
            Err(failure) => vec![
                RunEvent::Tool(ToolEvent::Failed {
                    call: call.clone(),
                    failure: failure.clone(),
                    duration_ms,
                }),
                RunEvent::ErrorRaised { scope: ErrorScope::Tool(call), failure: failure.clone() },
                RunEvent::Step(StepEvent::Failed { step, failure, duration_ms }),
            ],
        })
        .await
    }

    async fn record(&self, events: Vec<RunEvent>) -> Result<(), SessionRefusal> {
        let events = clean_events(&self.redact, events).await.ok_or(SessionRefusal::Internal)?;
        let (reply, recorded) = oneshot::channel();
        let record = ActorMessage::Record(self.run.clone(), events, reply);
        self.actor.send(record).await.map_err(|_| SessionRefusal::Internal)?;
        recorded.await.map_err(|_| SessionRefusal::Internal)?.map_err(refusal_of)
    }

    fn since(&self, start: Timestamp) -> u64 {
        u64::try_from(self.deps.clock.now().0.saturating_sub(start.0)).unwrap_or_default()
    }
}

impl Drop for ExternalRun {
    fn drop(&mut self) {
        let finished = FinishedRun {
            run: self.run.clone(),
            outcome: RunOutcome::Completed,
            open_message: None,
            open_reasoning: None,
            last_message: None,
            duration_ms: self.since(self.started),
            at: self.deps.clock.now(),
        };
        let (actor, message) = (self.actor.clone(), ActorMessage::RunFinished(Box::new(finished)));
        match actor.try_send(message) {
            Err(mpsc::error::TrySendError::Full(message)) => {
                // Without a runtime the program is ending, and the next one records that the run was interrupted.
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { actor.send(message).await });
                }
            }
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
    }
}

/// The first event of an external run.
pub(super) fn started(agent: AgentId, input: UserInput, message: MessageId) -> RunEvent {
    RunEvent::Started { parent: None, agent, model: None, missing_agent: None, input, message }
}
