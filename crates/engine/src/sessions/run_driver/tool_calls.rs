//! Runs the tool calls of an agent, in parallel where the tools allow it.

use std::sync::PoisonError;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parlor_model::provider::Picture;
use parlor_model::{ToolCall, ToolCallOutput, TurnError};
use parlor_tools::{NO_OUTPUT, StreamRedactor, ToolContext, catch_panic, clean_long, progress};
use parlor_vocab::{
    ErrorScope, Failure, FailureCode, RunEvent, StepEvent, StepId, StreamKind, ToolCallId, ToolEvent,
    ToolImage, ToolOutput,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::RunDriver;
use crate::redact::clean_failure;
use crate::step_titles::tool_step;

/// How many tool calls of one run execute at the same time.
const PARALLEL_CALLS: usize = 8;

/// The progress in percent that is reported when a tool starts, so that clients show it as working.
const TOOL_STARTED_PERCENT: u8 = 10;

/// The result of a call, or an error that ends the run.
type CallOutcome = Result<Result<ToolOutput, Failure>, TurnError>;

/// A call with its ids in the log.
struct LoggedCall {
    call: ToolCall,
    id: ToolCallId,
    step: StepId,
}

impl RunDriver {
    /// Runs all calls and returns their results in the same order. Cancels those that are not done by `until`.
    pub(super) async fn run_calls(
        &mut self,
        calls: Vec<ToolCall>,
        until: Option<Instant>,
    ) -> Result<Vec<Result<ToolOutput, Failure>>, TurnError> {
        self.end_step().await?;
        let mut logged_calls = Vec::with_capacity(calls.len());
        for call in calls {
            let id = self.call_inputs.take_id(&self.live, &call, &self.redact).await;
            let id = id.unwrap_or_else(|| ToolCallId::generate(self.deps.ids.next()));
            logged_calls.push(LoggedCall { call, id, step: self.new_step() });
        }
        self.call_inputs.close_all(&self.live);
        let cancel = self.context.cancel.child_token();
        let mut work = std::pin::pin!(self.run_logged_calls(&logged_calls, &cancel));
        let Some(until) = until else { return work.await };
        tokio::select! {
            biased;
            results = &mut work => return results,
            () = sleep_until(until) => cancel.cancel(),
        }
        work.await
    }

    async fn run_logged_calls(
        &self,
        calls: &[LoggedCall],
        cancel: &CancellationToken,
    ) -> Result<Vec<Result<ToolOutput, Failure>>, TurnError> {
        let (mut results, mut rest) = (Vec::with_capacity(calls.len()), calls);
        while let Some((first, others)) = rest.split_first() {
            // Neighbours that may run in parallel run together; all other calls run alone.
            let companions = if self.is_parallel(&first.call) {
                others.iter().take_while(|other| self.is_parallel(&other.call)).count()
            } else {
                0
            };
            let (together, later) = rest.split_at(companions + 1);
            let work: Vec<BoxFuture<'_, CallOutcome>> =
                together.iter().map(|call| self.run_call(call, cancel).boxed()).collect();
            let outcomes: Vec<CallOutcome> = stream::iter(work).buffered(PARALLEL_CALLS).collect().await;
            for outcome in outcomes {
                results.push(outcome?);
            }
            rest = later;
        }
        Ok(results)
    }

    fn is_parallel(&self, call: &ToolCall) -> bool {
        call.refusal.is_some() || self.deps.tools.find(&call.tool).is_ok_and(|tool| tool.is_parallel())
    }

    /// Records a call, runs the tool, and records the result.
    async fn run_call(
        &self,
        LoggedCall { call, id, step }: &LoggedCall,
        cancel: &CancellationToken,
    ) -> CallOutcome {
        let started_at = self.deps.clock.now();
        let (kind, title) = tool_step(&call.tool);
        // Durable before the tool runs, so that after a crash the log shows that the tool may have run.
        self.record(vec![
            RunEvent::Step(StepEvent::Started { step: step.clone(), kind, title }),
            RunEvent::Tool(ToolEvent::Called {
                step: step.clone(),
                call: id.clone(),
                tool: call.tool.clone(),
                input: call.input.clone(),
            }),
            RunEvent::Tool(ToolEvent::Progressed {
                call: id.clone(),
                message: "At work".to_owned(),
                percent: TOOL_STARTED_PERCENT,
            }),
        ])
        .await?;
        let result = match &call.refusal {
            Some(failure) => Err(failure.clone()),
            None if cancel.is_cancelled() => Err(too_late()),
            None => self.run_tool(id, &call.tool, &call.input, cancel).await,
        };
        let duration_ms = self.since(started_at);
        let (step, call) = (step.clone(), id.clone());
        let is_stopped = self.context.cancel.is_cancelled();
        let result =
            if is_stopped { result.map_err(|failure| self.stopped_failure(failure)) } else { result };
        let mut events = match &result {
            Ok(output) => vec![
                RunEvent::Tool(ToolEvent::Completed { call, output: output.text.clone(), duration_ms }),
                RunEvent::Step(StepEvent::Completed { step, summary: String::new(), duration_ms }),
            ],
            Err(failure) => vec![
                RunEvent::Tool(ToolEvent::Failed {
                    call: call.clone(),
                    failure: failure.clone(),
                    duration_ms,
                }),
                RunEvent::ErrorRaised { scope: ErrorScope::Tool(call), failure: failure.clone() },
                RunEvent::Step(StepEvent::Failed { step, failure: failure.clone(), duration_ms }),
            ],
        };
        if is_stopped {
            // The end of a stopped run is no error of the tool.
            events.retain(|event| !matches!(event, RunEvent::ErrorRaised { .. }));
        }
        // Recorded even if the run was stopped meanwhile: the result has what the tool had done until then.
        self.record_for(&self.run, events).await?;
        Ok(result)
    }

    /// The failure of a call that was cancelled because the run was stopped: the reason of the stop, and from the next
    /// line on the output that the tool had.
    fn stopped_failure(&self, failure: Failure) -> Failure {
        let cause = self.shared.stop_cause.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(cause) = cause.filter(|_| failure.code == FailureCode::Cancelled) else { return failure };
        let output = failure.message.split_once('\n').map(|(_, output)| output);
        let message = match output.filter(|output| output.trim_end() != NO_OUTPUT) {
            Some(output) => format!("{}\n{output}", cause.reason()),
            None => cause.reason().to_owned(),
        };
        Failure { message, ..failure }
    }

    /// Runs a tool and shows its output while it runs.
    async fn run_tool(
        &self,
        call: &ToolCallId,
        tool: &str,
        input: &str,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, Failure> {
        let stream = StreamKind::ToolOutput(call.clone());
        self.live.open(&self.run, stream.clone());
        let mut redactor = StreamRedactor::new(&self.redact);
        let (progress, mut pieces) = progress();
        let context = ToolContext { progress, cancel: cancel.clone(), ..self.context.clone() };
        let work = async move {
            let called = catch_panic(self.deps.tools.call(tool, input, &context)).await;
            called.unwrap_or_else(|panicked| Err(panicked.failure("The tool")))
        };
        let mut work = std::pin::pin!(work);
        let result = loop {
            tokio::select! {
                biased;
                result = &mut work => break result,
                Some(piece) = pieces.next() => self.live.push(&stream, &redactor.push(&piece)),
            }
        };
        // The end of the call ends the output, not the drop of the last sender: a cancelled call can leave a blocking
        // thread behind that has a sender and that nothing can end.
        if let Some(piece) = pieces.pending() {
            self.live.push(&stream, &redactor.push(&piece));
        }
        self.live.push(&stream, &redactor.finish());
        // The agent gets the result without secrets too, because it sends what it reads to a provider.
        match result {
            Ok(output) => Ok(ToolOutput { text: clean_long(&self.redact, output.text).await, ..output }),
            Err(failure) => Err(clean_failure(&*self.redact, failure)),
        }
    }
}

/// The failure of a call that was not started because the run's time was over.
fn too_late() -> Failure {
    let message = "it was not begun, because the time of the run is over".to_owned();
    Failure { code: FailureCode::Cancelled, message, retryable: false }
}

/// The result of a call for an agent that can see pictures.
pub(super) fn call_output(output: ToolOutput) -> ToolCallOutput {
    let picture = |image: &ToolImage| Picture::new(image.mime.as_str(), &image.bytes);
    ToolCallOutput { pictures: output.images.iter().map(picture).collect(), text: output.text }
}
