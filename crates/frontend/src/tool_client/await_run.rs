//! Waits for the end of a run, and tells what its agent has written.

use std::sync::Arc;
use std::time::Duration;

use parlor_engine::{Sessions, Watcher};
use parlor_vocab::{
    MessageEvent, MessageId, QuestionEvent, RunEnding, RunEvent, RunId, RunReport, RunState, Seq,
    SessionEvent, SessionId, SessionRefusal, SessionUpdate, StepEvent, StreamKind, truncate_middle,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::read_log::unavailable;

/// How many bytes of an agent's text a report has at most, without the note about what is left out.
pub const RUN_TEXT_BYTES: usize = 64 << 10;

/// How many events are searched first for the start of a run. Each further search covers four times as many.
const FIRST_SEARCH_EVENTS: u64 = 256;

/// Waits until `run` has ended, `limit` is over or `cancel` is cancelled, whichever comes first. `None` stands for the
/// active run, or else the last one. Returns `None` if there is no such run.
pub(super) async fn await_run(
    sessions: &Arc<Sessions>,
    session: &SessionId,
    run: Option<RunId>,
    limit: Duration,
    cancel: &CancellationToken,
    report: impl Fn(String),
) -> Result<Option<RunReport>, SessionRefusal> {
    let until = Instant::now() + limit;
    // Opens the session, so that a run that was cut off by a crash is recorded as failed.
    let view = sessions.view_without_history(session).await?;
    let is_queued = run.as_ref().is_some_and(|run| view.queue().any(|queued| queued.run == *run));
    let run = run.or_else(|| view.active().cloned());
    let found = match is_queued {
        true => run.map(|run| (run, view.head())),
        false => find_start(sessions, session, run.as_ref(), view.head()).await?,
    };
    let Some((run, start)) = found else { return Ok(None) };
    let mut watcher = sessions.join(session, start).await;
    let mut progress = RunProgress::new(run);
    // What is in the log already is told even to a client that does not wait.
    while !progress.has_ended() {
        let update = watcher.try_next().await.map_err(|error| unavailable(&error))?;
        let Some(update) = update else { break };
        if let Some(news) = progress.apply(&update) {
            report(news);
        }
    }
    while !progress.has_ended() {
        tokio::select! {
            biased;
            update = watcher.next() => {
                if let Some(news) = progress.apply(&update.map_err(|error| unavailable(&error))?) {
                    report(news);
                }
            }
            () = sleep_until(until) => break,
            () = cancel.cancelled() => break,
        }
    }
    Ok(Some(progress.into_report()))
}

/// The run and the position before its first event. Searches backwards, because clients mostly ask for the last run.
async fn find_start(
    sessions: &Arc<Sessions>,
    session: &SessionId,
    run: Option<&RunId>,
    head: Seq,
) -> Result<Option<(RunId, Seq)>, SessionRefusal> {
    let mut span = FIRST_SEARCH_EVENTS;
    loop {
        let from = Seq(head.0.saturating_sub(span));
        let watcher = sessions.watch(session, from).await;
        let found = last_start(watcher, run, head).await?;
        if found.is_some() || from == Seq::START {
            return Ok(found);
        }
        span = span.saturating_mul(4);
    }
}

/// The last start of `run`, or of any run, up to `head`.
async fn last_start(
    mut watcher: Watcher,
    run: Option<&RunId>,
    head: Seq,
) -> Result<Option<(RunId, Seq)>, SessionRefusal> {
    let mut found = None;
    while let Some(update) = watcher.try_next().await.map_err(|error| unavailable(&error))? {
        let SessionUpdate::Entry(entry) = update else { continue };
        if let SessionEvent::Run { run: started, event: RunEvent::Started { parent: None, .. }, .. } =
            &entry.event
            && run.is_none_or(|run| run == started)
        {
            found = Some((started.clone(), Seq(entry.seq.0 - 1)));
        }
        if entry.seq >= head {
            break;
        }
    }
    Ok(found)
}

/// What is known of a run.
struct RunProgress {
    run: RunId,
    state: RunState,
    /// The texts of complete messages.
    text: String,
    /// The message that is being written, and its text so far.
    open: Option<(MessageId, String)>,
}

impl RunProgress {
    fn new(run: RunId) -> Self {
        Self { run, state: RunState::Queued, text: String::new(), open: None }
    }

    fn has_ended(&self) -> bool {
        !matches!(self.state, RunState::Queued | RunState::Running)
    }

    /// Applies an update, and returns what to tell people about it.
    fn apply(&mut self, update: &SessionUpdate) -> Option<String> {
        match update {
            SessionUpdate::Delta { run, stream: StreamKind::Message(message), text } if *run == self.run => {
                match &mut self.open {
                    Some((open, written)) if open == message => push_bounded(written, text),
                    open => *open = Some((message.clone(), text.clone())),
                }
                None
            }
            SessionUpdate::Delta { .. } => None,
            SessionUpdate::Entry(entry) => {
                if let SessionEvent::Run { run, event, .. } = &entry.event
                    && *run == self.run
                {
                    return self.on_event(event);
                }
                if let SessionEvent::Unqueued { runs } = &entry.event
                    && runs.contains(&self.run)
                {
                    self.state = RunState::Stopped("It was removed from the queue.".to_owned());
                }
                None
            }
        }
    }

    fn on_event(&mut self, event: &RunEvent) -> Option<String> {
        match event {
            RunEvent::Started { .. } => self.state = RunState::Running,
            RunEvent::Message(MessageEvent::Completed { text, .. }) => {
                self.open = None;
                if !self.text.is_empty() {
                    self.text.push_str("\n\n");
                }
                push_bounded(&mut self.text, text);
            }
            RunEvent::Step(StepEvent::Started { title, .. }) => return Some(title.clone()),
            RunEvent::Step(StepEvent::Updated { headline, .. }) => return Some(headline.clone()),
            RunEvent::Question(QuestionEvent::Asked(question)) => {
                return Some(format!("Waits for an answer: {}", question.title));
            }
            RunEvent::Ended { ending, .. } => {
                self.state = match ending {
                    RunEnding::Completed { .. } => RunState::Completed,
                    RunEnding::Failed(failure) => RunState::Failed(failure.clone()),
                    RunEnding::Stopped { cause, .. } => RunState::Stopped(cause.reason().to_owned()),
                };
            }
            RunEvent::Steered { .. }
            | RunEvent::Question(QuestionEvent::Settled { .. })
            | RunEvent::Message(MessageEvent::Started { .. })
            | RunEvent::Step(_)
            | RunEvent::Tool(_)
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::UsageAdded { .. } => {}
        }
        None
    }

    fn into_report(self) -> RunReport {
        let mut text = self.text;
        if let Some((_, open)) = self.open.filter(|(_, open)| !open.is_empty()) {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(&open);
        }
        RunReport {
            run: self.run,
            state: self.state,
            text: truncate_middle(&text, RUN_TEXT_BYTES).into_owned(),
        }
    }
}

/// Appends `more`. Leaves out the middle once the text is twice as long as a report can be.
fn push_bounded(text: &mut String, more: &str) {
    text.push_str(more);
    if text.len() > 2 * RUN_TEXT_BYTES {
        *text = truncate_middle(text, RUN_TEXT_BYTES).into_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_stays_bounded_and_keeps_its_beginning_and_its_end() {
        let mut text = "begin ".to_owned();
        for _ in 0..100 {
            push_bounded(&mut text, &"\u{e4}".repeat(RUN_TEXT_BYTES / 10));
        }
        push_bounded(&mut text, " end");
        let report = RunProgress { text, ..RunProgress::new(RunId::parse("r").unwrap()) }.into_report();
        assert!(report.text.len() < RUN_TEXT_BYTES + 200);
        assert!(report.text.starts_with("begin ") && report.text.ends_with(" end"));
    }
}
