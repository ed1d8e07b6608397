//! How a driver calls tools: one, or several of which some run side by side.

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parlor_model::provider::Picture;
use parlor_model::{Call, CallOutput, TurnError};
use parlor_tools::{StreamRedactor, ToolContext, ToolImage, ToolResultOutput, clean, progress};
use parlor_vocab::{
    ErrorScope, Failure, FailureCode, RunEvent, StepEvent, StepId, StepKind, StreamKind, ToolCallId,
    ToolEvent,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::RunDriver;
use crate::redact::clean_failure;
use parlor_tools::contain;

/// How many tools of one run work at the same time.
const PARALLEL_CALLS: usize = 8;

/// How far a tool has come when it was called, in percent: those who watch see that it works.
const TOOL_BEGUN_PERCENT: u8 = 10;

/// What came of a call, unless the run was stopped.
type CallOutcome = Result<Result<ToolResultOutput, Failure>, TurnError>;

/// A call with the names that the log knows it by.
struct Named {
    call: Call,
    id: ToolCallId,
    step: StepId,
}

impl RunDriver {
    /// Calls all of them; what they bring is in their order. Those that are not done by `until` are ended.
    pub(super) async fn perform_calls(
        &mut self,
        calls: Vec<Call>,
        until: Option<Instant>,
    ) -> Result<Vec<Result<ToolResultOutput, Failure>>, TurnError> {
        self.end_step().await?;
        let mut named = Vec::with_capacity(calls.len());
        for call in calls {
            let id = self.inputs.made(&self.live, &call, &*self.redact);
            let id = id.unwrap_or_else(|| ToolCallId::generate(self.deps.ids.next()));
            named.push(Named { call, id, step: self.new_step() });
        }
        self.inputs.let_go(&self.live);
        let cancel = self.context.cancel.child_token();
        let mut work = std::pin::pin!(self.perform_named(&named, &cancel));
        let Some(until) = until else { return work.await };
        tokio::select! {
            biased;
            brought = &mut work => return brought,
            () = sleep_until(until) => cancel.cancel(),
        }
        work.await
    }

    async fn perform_named(
        &self,
        named: &[Named],
        cancel: &CancellationToken,
    ) -> Result<Vec<Result<ToolResultOutput, Failure>>, TurnError> {
        let (mut brought, mut rest) = (Vec::with_capacity(named.len()), named);
        while let Some((first, others)) = rest.split_first() {
            let company = if self.is_parallel(&first.call) {
                others.iter().take_while(|other| self.is_parallel(&other.call)).count()
            } else {
                0
            };
            let (together, later) = rest.split_at(company + 1);
            let work: Vec<BoxFuture<'_, CallOutcome>> =
                together.iter().map(|named| self.perform_call(named, cancel).boxed()).collect();
            let results: Vec<CallOutcome> = stream::iter(work).buffered(PARALLEL_CALLS).collect().await;
            for result in results {
                brought.push(result?);
            }
            rest = later;
        }
        Ok(brought)
    }

    fn is_parallel(&self, call: &Call) -> bool {
        call.refusal.is_some() || self.deps.tools.find(&call.tool).is_ok_and(|tool| tool.is_parallel())
    }

    /// One call, from its record to its record.
    async fn perform_call(
        &self,
        Named { call, id, step }: &Named,
        cancel: &CancellationToken,
    ) -> CallOutcome {
        let begun = self.deps.clock.now();
        let title = format!("Using {}", call.tool);
        // Durable before it is run: a tool with effects is never run twice in silence.
        self.record(vec![
            RunEvent::Step(StepEvent::Started { step: step.clone(), kind: StepKind::Tool, title }),
            RunEvent::Tool(ToolEvent::Called {
                step: step.clone(),
                call: id.clone(),
                tool: call.tool.clone(),
                input: call.input.clone(),
            }),
            RunEvent::Tool(ToolEvent::Progressed {
                call: id.clone(),
                message: "At work".to_owned(),
                percent: TOOL_BEGUN_PERCENT,
            }),
        ])
        .await?;
        let result = match &call.refusal {
            Some(failure) => Err(failure.clone()),
            None if cancel.is_cancelled() => Err(too_late()),
            None => self.run_tool(id, &call.tool, &call.input, cancel).await,
        };
        let duration_ms = self.since(begun);
        let (step, call) = (step.clone(), id.clone());
        let events = match &result {
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
        self.record(events).await?;
        Ok(result)
    }

    /// Runs a tool and shows what it puts out while it works.
    async fn run_tool(
        &self,
        call: &ToolCallId,
        tool: &str,
        input: &str,
        cancel: &CancellationToken,
    ) -> Result<ToolResultOutput, Failure> {
        let subject = StreamKind::Tool(call.clone());
        self.live.open(&self.run, subject.clone());
        let mut sieve = StreamRedactor::new(&self.redact);
        let (progress, mut pieces) = progress();
        let context = ToolContext { progress, cancel: cancel.clone(), ..self.context.clone() };
        let show = async {
            while let Some(piece) = pieces.next().await {
                self.live.push(&subject, &sieve.push(&piece));
            }
            self.live.push(&subject, &sieve.rest());
        };
        let work = async move {
            let called = contain(self.deps.tools.call(tool, input, &context)).await;
            called.unwrap_or_else(|panicked| Err(panicked.failure("The tool")))
        };
        let (result, ()) = tokio::join!(work, show);
        // The agent reads it without secrets as well, since it passes on what it reads.
        result
            .map(|output| ToolResultOutput { text: clean(&*self.redact, output.text), ..output })
            .map_err(|failure| clean_failure(&*self.redact, failure))
    }
}

/// A call that was not begun because the time was over.
fn too_late() -> Failure {
    let message = "it was not begun, because the time of the run is over".to_owned();
    Failure { code: FailureCode::Cancelled, message, retryable: false }
}

/// What a call brought, for an agent that can see.
pub(super) fn given(output: ToolResultOutput) -> CallOutput {
    let picture = |image: &ToolImage| Picture::new(image.mime, &image.bytes);
    CallOutput { pictures: output.images.iter().map(picture).collect(), text: output.text }
}
