//! What follows from what a driver reports: steps on the way, and the end.

use parlor_vocab::{
    AgentId, ErrorScope, Failure, FailureCode, IdSource, MessageEvent, MessageId, RunEnding, RunEvent, RunId,
    SessionEvent, StepEvent, StepId, StopCause, Timestamp, ToolEvent,
};

use super::{Effect, OpenRun, Session};

/// How a performance ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// Which run.
    pub run: RunId,
    /// How.
    pub outcome: Outcome,
    /// The message that was being spoken: its id and all of its text.
    pub spoken: Option<(MessageId, String)>,
    /// The thought that was being thought: its step and all of its text.
    pub thought: Option<(StepId, String)>,
    /// The answer: the last message that was completed before, if `spoken` is none.
    pub answer: Option<MessageId>,
    /// How long the run took.
    pub duration_ms: u64,
    /// When it ended.
    pub at: Timestamp,
}

impl Finish {
    /// The end of a run that nobody performs, known at this moment.
    pub fn failed(run: RunId, failure: Failure, at: Timestamp) -> Self {
        let outcome = Outcome::Failed(failure);
        Self { run, outcome, spoken: None, thought: None, answer: None, duration_ms: 0, at }
    }
}

/// The three ways to end.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The agent is done.
    Completed,
    /// The agent cannot go on.
    Failed(Failure),
    /// It was stopped, for this reason.
    Stopped(StopCause),
}

impl Session {
    /// Records what happened in a run. Nothing if the run is over or was never there: its driver
    /// is late, and one end is enough.
    pub fn record(&self, run: &RunId, events: Vec<RunEvent>) -> Vec<SessionEvent> {
        let starts = matches!(events.first(), Some(RunEvent::Started { .. }));
        if !starts && !self.open.contains_key(run) {
            return Vec::new();
        }
        self.numbered(run, events)
    }

    /// Ends a run: closes what is open, says how it ended, and starts the input that waited next.
    /// `next_agent` answers that one.
    pub fn finish(
        &self,
        finish: Finish,
        next_agent: &AgentId,
        ids: &dyn IdSource,
    ) -> (Vec<SessionEvent>, Vec<Effect>) {
        let Some(open) = self.open.get(&finish.run) else { return (Vec::new(), Vec::new()) };
        let Finish { run, outcome, spoken, thought, answer, duration_ms, at } = finish;
        let mut events = Vec::new();
        if let Some((step, text)) = thought {
            events.push(RunEvent::Step(StepEvent::Reasoned { step, text }));
        }
        let spoken_id = spoken.as_ref().map(|(message, _)| message.clone());
        if let Some((message, text)) = spoken {
            events.push(RunEvent::Message(MessageEvent::Completed { message, text, media: Vec::new() }));
        }
        let reason = match &outcome {
            Outcome::Completed => None,
            Outcome::Failed(failure) => Some(failure.clone()),
            Outcome::Stopped(cause) => Some(cancelled(cause.reason())),
        };
        events.extend(closings(open, reason.as_ref(), at));
        let ending = match outcome {
            Outcome::Completed => RunEnding::Completed { message: spoken_id.or(answer) },
            Outcome::Failed(failure) => {
                events.push(RunEvent::ErrorRaised { scope: ErrorScope::Run, failure: failure.clone() });
                RunEnding::Failed(failure)
            }
            Outcome::Stopped(cause) => {
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
            self.start_next(next_agent, ids, &mut events, &mut effects);
        }
        (events, effects)
    }

    /// What a session needs when it is opened again: a run that was alive when its process died is
    /// ended, and what waited goes on.
    pub fn recover(
        &self,
        next_agent: &AgentId,
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
            self.start_next(next_agent, ids, &mut events, &mut effects);
            return (events, effects);
        };
        self.finish(Finish::failed(run, failure, at), next_agent, ids)
    }

    /// Subagents end before the run that they work for.
    fn end_subagents(&self, run: &RunId, duration_ms: u64, at: Timestamp) -> Vec<SessionEvent> {
        let failure = cancelled("The run that it worked for is over.");
        let others = self.open.iter().filter(|(other, _)| *other != run);
        others
            .flat_map(|(other, open)| {
                let mut events = closings(open, Some(&failure), at);
                events.push(RunEvent::Ended { ending: RunEnding::Failed(failure.clone()), duration_ms });
                self.numbered(other, events)
            })
            .collect()
    }

    fn start_next(
        &self,
        agent: &AgentId,
        ids: &dyn IdSource,
        events: &mut Vec<SessionEvent>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(next) = self.queue.front() {
            events.push(self.started(next.run.clone(), next.input.clone(), agent.clone(), ids));
            effects.push(Effect::StartRun(next.run.clone()));
        }
    }
}

/// The ends of what a run has open, at a moment.
fn closings(open: &OpenRun, reason: Option<&Failure>, at: Timestamp) -> Vec<RunEvent> {
    let since = |begun: Timestamp| u64::try_from(at.0 - begun.0).unwrap_or(0);
    let call_ends = open.calls.iter().map(|(call, begun)| {
        RunEvent::Tool(ToolEvent::Failed {
            call: call.clone(),
            failure: reason.cloned().unwrap_or_else(|| cancelled("The run is over.")),
            duration_ms: since(*begun),
        })
    });
    let step_ends = open.steps.iter().map(|(step, begun)| {
        let (step, duration_ms) = (step.clone(), since(*begun));
        match reason.cloned() {
            None => RunEvent::Step(StepEvent::Completed { step, summary: String::new(), duration_ms }),
            Some(failure) => RunEvent::Step(StepEvent::Failed { step, failure, duration_ms }),
        }
    });
    call_ends.chain(step_ends).collect()
}

fn cancelled(reason: &str) -> Failure {
    Failure { code: FailureCode::Cancelled, message: reason.to_owned(), retryable: false }
}
