//! Decides what a run driver's reports change: events of a run, and its end (completed, failed or stopped) with the
//! events that close it.

use parlor_vocab::{
    ErrorScope, Failure, FailureCode, IdSource, MessageEvent, MessageId, RunEnding, RunEvent, RunId,
    SessionEvent, StepEvent, StepId, StopCause, Timestamp, ToolEvent,
};

use super::questions::withdrawn;
use super::{Effect, OpenRun, ResolvedChoice, Session};

/// A run driver's report of the end of its run.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedRun {
    /// The run that ended.
    pub run: RunId,
    /// How the run ended.
    pub outcome: RunOutcome,
    /// The message that the agent was writing, with its text so far.
    pub open_message: Option<(MessageId, String)>,
    /// The step in which the agent was reasoning, with the reasoning text so far.
    pub open_reasoning: Option<(StepId, String)>,
    /// The last completed message. It is the answer if there is no `open_message`.
    pub last_message: Option<MessageId>,
    /// The duration of the run in milliseconds.
    pub duration_ms: u64,
    /// When the run ended.
    pub at: Timestamp,
}

impl FinishedRun {
    /// The failure at `at` of a run that has no driver.
    pub fn failed(run: RunId, failure: Failure, at: Timestamp) -> Self {
        let outcome = RunOutcome::Failed(failure);
        Self {
            run,
            outcome,
            open_message: None,
            open_reasoning: None,
            last_message: None,
            duration_ms: 0,
            at,
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// The agent completed its answer.
    Completed,
    /// The agent failed.
    Failed(Failure),
    /// Someone or something stopped the run.
    Stopped(StopCause),
}

impl Session {
    /// Numbers the events of a run for the log. Returns none if the run has ended or never started: then its driver
    /// reports too late.
    pub fn record(&self, run: &RunId, events: Vec<RunEvent>) -> Vec<SessionEvent> {
        let starts = matches!(events.first(), Some(RunEvent::Started { .. }));
        if !starts && !self.open.contains_key(run) {
            return Vec::new();
        }
        self.numbered(run, events)
    }

    /// Ends a run: closes its open steps and calls, records its ending, and starts the next queued input.
    /// `next` answers that input.
    pub fn finish(
        &self,
        finish: FinishedRun,
        next: &ResolvedChoice,
        ids: &dyn IdSource,
    ) -> (Vec<SessionEvent>, Vec<Effect>) {
        let Some(open) = self.open.get(&finish.run) else { return (Vec::new(), Vec::new()) };
        let FinishedRun { run, outcome, open_message, open_reasoning, last_message, duration_ms, at } =
            finish;
        let mut events = Vec::new();
        if let Some((step, text)) = open_reasoning {
            events.push(RunEvent::Step(StepEvent::Reasoned { step, text }));
        }
        let open_message_id = open_message.as_ref().map(|(message, _)| message.clone());
        if let Some((message, text)) = open_message {
            events.push(RunEvent::Message(MessageEvent::Completed { message, text, media: Vec::new() }));
        }
        let reason = match &outcome {
            RunOutcome::Completed => None,
            RunOutcome::Failed(failure) => Some(failure.clone()),
            RunOutcome::Stopped(cause) => Some(cancelled(cause.reason())),
        };
        events.extend(closing_events(open, reason.as_ref(), at));
        let ending = match outcome {
            RunOutcome::Completed => RunEnding::Completed { message: open_message_id.or(last_message) },
            RunOutcome::Failed(failure) => {
                events.push(RunEvent::ErrorRaised { scope: ErrorScope::Run, failure: failure.clone() });
                RunEnding::Failed(failure)
            }
            RunOutcome::Stopped(cause) => {
                let message = MessageId::generate(ids.next());
                let (text, media) = (cause.reason().to_owned(), Vec::new());
                events.push(RunEvent::Message(MessageEvent::Completed {
                    message: message.clone(),
                    text,
                    media,
                }));
                RunEnding::Stopped { cause, message }
            }
        };
        events.push(RunEvent::Ended { ending, duration_ms });
        let mut events = self.numbered(&run, events);
        let mut effects = Vec::new();
        if self.active.as_ref() == Some(&run) {
            events.splice(0..0, self.end_subagents(&run, duration_ms, at));
        }
        if self.active.as_ref() == Some(&run) {
            self.start_next(next, ids, &mut events, &mut effects);
        }
        (events, effects)
    }

    /// Decides what to record when a session is opened: a run that only waited for an answer when its process died waits
    /// on; any other active run fails, and the next queued input starts. `message` is the message that the run was writing, with the text that was kept.
    pub fn recover(
        &self,
        message: Option<(MessageId, String)>,
        next: &ResolvedChoice,
        ids: &dyn IdSource,
        at: Timestamp,
    ) -> (Vec<SessionEvent>, Vec<Effect>) {
        let failure = Failure {
            code: FailureCode::RunInterrupted,
            message: "The run was cut off when its process ended. Send the input again to retry.".to_owned(),
            retryable: true,
        };
        let Some(run) = self.active.clone() else {
            let (mut events, mut effects) = (Vec::new(), Vec::new());
            self.start_next(next, ids, &mut events, &mut effects);
            return (events, effects);
        };
        if self.only_waits(&run) {
            return (Vec::new(), vec![Effect::ResumeRun(run)]);
        }
        let finished = FinishedRun { open_message: message, ..FinishedRun::failed(run, failure, at) };
        self.finish(finished, next, ids)
    }

    /// The events that end the open runs of subagents, before the run that they work for.
    fn end_subagents(&self, run: &RunId, duration_ms: u64, at: Timestamp) -> Vec<SessionEvent> {
        let failure = cancelled("The run that it worked for is over.");
        let others = self.open.iter().filter(|(other, _)| *other != run);
        others
            .flat_map(|(other, open)| {
                let mut events = closing_events(open, Some(&failure), at);
                events.push(RunEvent::Ended { ending: RunEnding::Failed(failure.clone()), duration_ms });
                self.numbered(other, events)
            })
            .collect()
    }

    /// Adds what starts the first queued input, if there is one.
    fn start_next(
        &self,
        resolved: &ResolvedChoice,
        ids: &dyn IdSource,
        events: &mut Vec<SessionEvent>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(next) = self.queue.front() {
            events.push(self.started_event(next.run.clone(), next.input.clone(), resolved, ids));
            effects.push(Effect::StartRun(next.run.clone()));
        }
    }
}

/// The events that end a run's open tool calls and steps, at the time `at`.
fn closing_events(open: &OpenRun, reason: Option<&Failure>, at: Timestamp) -> Vec<RunEvent> {
    let since = |started: Timestamp| u64::try_from(at.0 - started.0).unwrap_or(0);
    let call_ends = open.calls.iter().map(|(call, started)| {
        RunEvent::Tool(ToolEvent::Failed {
            call: call.clone(),
            failure: reason.cloned().unwrap_or_else(|| cancelled("The run is over.")),
            duration_ms: since(*started),
        })
    });
    let step_ends = open.steps.iter().map(|(step, started)| {
        let (step, duration_ms) = (step.clone(), since(*started));
        match reason.cloned() {
            None => RunEvent::Step(StepEvent::Completed { step, summary: String::new(), duration_ms }),
            Some(failure) => RunEvent::Step(StepEvent::Failed { step, failure, duration_ms }),
        }
    });
    withdrawn(open).into_iter().chain(call_ends).chain(step_ends).collect()
}

fn cancelled(reason: &str) -> Failure {
    Failure { code: FailureCode::Cancelled, message: reason.to_owned(), retryable: false }
}
