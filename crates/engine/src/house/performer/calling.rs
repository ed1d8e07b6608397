//! How a performer calls tools: one, or several of which some run side by side.

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parlor_model::provider::Picture;
use parlor_model::{Call, Given, Halt};
use parlor_tools::{Context, Image, Output, Sieve, clean, progress};
use parlor_vocab::{Failure, RunEvent, Scope, StepId, StepKind, Subject, ToolCallId};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Performer;
use crate::contain::contain;
use crate::redact::clean_failure;

/// How many tools of one run work at the same time.
const PARALLEL_CALLS: usize = 8;

/// How far a tool has come when it was called, in percent: those who watch see that it works.
const TOOL_BEGUN_PERCENT: u8 = 10;

/// What came of a call, unless the run was stopped.
type Performed = Result<Result<Output, Failure>, Halt>;

/// A call with the names that the log knows it by.
struct Named {
    call: Call,
    id: ToolCallId,
    step: StepId,
}

impl Performer {
    /// Calls all of them; what they bring is in their order. Those that are not done by `until` are ended.
    pub(super) async fn perform_calls(
        &mut self,
        calls: Vec<Call>,
        until: Option<Instant>,
    ) -> Result<Vec<Result<Output, Failure>>, Halt> {
        self.end_step().await?;
        let mut named = Vec::with_capacity(calls.len());
        for call in calls {
            let id = self.inputs.made(&self.live, &call, &*self.redact);
            let id = id.unwrap_or_else(|| ToolCallId::generate(self.means.ids.next()));
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
    ) -> Result<Vec<Result<Output, Failure>>, Halt> {
        let (mut brought, mut rest) = (Vec::with_capacity(named.len()), named);
        while let Some((first, others)) = rest.split_first() {
            let company = if self.is_parallel(&first.call) {
                others.iter().take_while(|other| self.is_parallel(&other.call)).count()
            } else {
                0
            };
            let (together, later) = rest.split_at(company + 1);
            let work: Vec<BoxFuture<'_, Performed>> =
                together.iter().map(|named| self.perform_call(named, cancel).boxed()).collect();
            let results: Vec<Performed> = stream::iter(work).buffered(PARALLEL_CALLS).collect().await;
            for result in results {
                brought.push(result?);
            }
            rest = later;
        }
        Ok(brought)
    }

    fn is_parallel(&self, call: &Call) -> bool {
        call.refusal.is_some() || self.means.tools.find(&call.tool).is_ok_and(|tool| tool.is_parallel())
    }

    /// One call, from its record to its record.
    async fn perform_call(&self, Named { call, id, step }: &Named, cancel: &CancellationToken) -> Performed {
        let begun = self.means.clock.now();
        let title = format!("Using {}", call.tool);
        // Durable before it is run: a tool with effects is never run twice in silence.
        self.record(vec![
            RunEvent::StepStarted { step: step.clone(), kind: StepKind::Tool, title },
            RunEvent::ToolCalled {
                step: step.clone(),
                call: id.clone(),
                tool: call.tool.clone(),
                input: call.input.clone(),
            },
            RunEvent::ToolProgressed {
                call: id.clone(),
                message: "At work".to_owned(),
                percent: TOOL_BEGUN_PERCENT,
            },
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
                RunEvent::ToolCompleted { call, output: output.text.clone(), duration_ms },
                RunEvent::StepCompleted { step, summary: String::new(), duration_ms },
            ],
            Err(failure) => vec![
                RunEvent::ToolFailed { call: call.clone(), failure: failure.clone(), duration_ms },
                RunEvent::ErrorRaised { scope: Scope::Tool(call), failure: failure.clone() },
                RunEvent::StepFailed { step, failure: failure.clone(), duration_ms },
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
    ) -> Result<Output, Failure> {
        let subject = Subject::Tool(call.clone());
        self.live.open(&self.run, subject.clone());
        let mut sieve = Sieve::new(&self.redact);
        let (progress, mut pieces) = progress();
        let context = Context { progress, cancel: cancel.clone(), ..self.context.clone() };
        let show = async {
            while let Some(piece) = pieces.next().await {
                self.live.push(&subject, &sieve.push(&piece));
            }
            self.live.push(&subject, &sieve.rest());
        };
        let work = async move {
            let called = contain(self.means.tools.call(tool, input, &context)).await;
            called.unwrap_or_else(|panicked| Err(panicked.failure("The tool")))
        };
        let (result, ()) = tokio::join!(work, show);
        // The agent reads it without secrets as well, since it passes on what it reads.
        result
            .map(|output| Output { text: clean(&*self.redact, output.text), ..output })
            .map_err(|failure| clean_failure(&*self.redact, failure))
    }
}

/// A call that was not begun because the time was over.
fn too_late() -> Failure {
    let message = "it was not begun, because the time of the run is over".to_owned();
    Failure { code: "CANCELLED".to_owned(), message, retryable: false }
}

/// What a call brought, for an agent that can see.
pub(super) fn given(output: Output) -> Given {
    let picture = |image: &Image| Picture::new(image.mime, &image.bytes);
    Given { pictures: output.images.iter().map(picture).collect(), text: output.text }
}
