//! `parlor sessions` and `parlor replay`.

use std::io::Write;

use anyhow::Context;
use parlor_engine::{House, Seen};
use parlor_log::PageRequest;
use parlor_vocab::{RunEnding, RunEvent, Seq, SessionEvent, SessionId};

use crate::show::{cut, time};

/// How many sessions are listed at a time.
const PAGE: usize = 100;
/// How many characters of a title or a text are shown on a line.
const LINE_CHARS: usize = 100;

/// Lists all sessions, the last used first.
pub(crate) async fn list(house: &House, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut request = PageRequest::first(PAGE);
    let mut any = false;
    loop {
        let page = house.list(request).await?;
        for record in &page.records {
            if !any {
                writeln!(
                    out,
                    "{:<36}  {:<19}  {:<8}  {:>8}  {:<8}  TITLE",
                    "SESSION", "LAST USED (UTC)", "DOOR", "MESSAGES", "STATE"
                )?;
                any = true;
            }
            let state = if record.running.is_some() { "running" } else { "idle" };
            let title = cut(record.title.as_deref().unwrap_or("-"), LINE_CHARS);
            let (id, updated, door, messages) =
                (&record.id, time(record.updated), &record.door, record.messages);
            writeln!(out, "{id:<36}  {updated}  {door:<8}  {messages:>8}  {state:<8}  {title}")?;
        }
        match page.next {
            Some(next) => request = PageRequest { after: Some(next), limit: PAGE },
            None => break,
        }
    }
    if any {
        writeln!(
            out,
            "\nparlor replay SESSION shows what happened in one; parlor chat --session SESSION goes on with it."
        )?;
    } else {
        writeln!(out, "No sessions yet. parlor chat starts one.")?;
    }
    Ok(())
}

/// Prints the events of a session from a place on; with `follow`, those to come too.
pub(crate) async fn replay(
    house: &House,
    session: &SessionId,
    from: u64,
    follow: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let record = house.record(session).await.context("parlor sessions lists what there is")?;
    let mut watcher = house.watch(session, Seq(from.saturating_sub(1))).await;
    let mut place = from.saturating_sub(1);
    while follow || place < record.head.0 {
        if let Seen::Entry(entry) = watcher.next().await? {
            place = entry.seq.0;
            writeln!(out, "{:>6}  {}  {}", entry.seq.0, time(entry.at), line(&entry.event))?;
            out.flush()?;
        }
    }
    Ok(())
}

/// An event in a line.
fn line(event: &SessionEvent) -> String {
    let text = match event {
        SessionEvent::Created(birth) => {
            format!("created through {}, in {}", birth.door, birth.folder.display())
        }
        SessionEvent::Renamed { title } => format!("renamed: {title}"),
        SessionEvent::Chosen(choice) => format!("chosen: {choice:?}"),
        SessionEvent::Queued(queued) => format!("{} waits: {}", queued.run, queued.input.text),
        SessionEvent::Unqueued { runs } => format!("{} inputs will not run", runs.len()),
        SessionEvent::Cleared => "history cleared".to_owned(),
        SessionEvent::Compacted { .. } => "history compacted".to_owned(),
        SessionEvent::MessageAdded(message) => format!("message: {}", message.text),
        SessionEvent::Run { sequence, event, .. } => format!("{sequence:>3}  {}", run_line(event)),
    };
    cut(&text.replace(['\n', '\r'], " "), LINE_CHARS)
}

fn run_line(event: &RunEvent) -> String {
    match event {
        RunEvent::Started { agent, input, .. } => format!("run of {agent}: {}", input.text),
        RunEvent::Steered { text, .. } => format!("steered: {text}"),
        RunEvent::MessageStarted { .. } => "message begins".to_owned(),
        RunEvent::MessageCompleted { text, .. } => format!("message: {text}"),
        RunEvent::StepStarted { step, title, .. } => format!("{step} begins: {title}"),
        RunEvent::StepUpdated { step, headline, percent } => format!("{step} at {percent} %: {headline}"),
        RunEvent::StepCompleted { step, duration_ms, .. } => format!("{step} done after {duration_ms} ms"),
        RunEvent::StepFailed { step, failure, .. } => format!("{step} failed: {}", failure.message),
        RunEvent::Reasoned { text, .. } => format!("thought: {text}"),
        RunEvent::ToolCalled { tool, input, .. } => format!("calls {tool} with {input}"),
        RunEvent::ToolProgressed { message, .. } => format!("tool: {message}"),
        RunEvent::ToolCompleted { output, duration_ms, .. } => {
            format!("tool done after {duration_ms} ms: {output}")
        }
        RunEvent::ToolFailed { failure, .. } => format!("tool failed: {}", failure.message),
        RunEvent::SubagentStarted { name, task, .. } => format!("asks {name}: {task}"),
        RunEvent::SubagentUpdated { status, .. } => format!("subagent: {status}"),
        RunEvent::SubagentDone { result: Ok(result), .. } => format!("subagent says: {result}"),
        RunEvent::SubagentDone { result: Err(failure), .. } => {
            format!("subagent failed: {}", failure.message)
        }
        RunEvent::ErrorRaised { failure, .. } => format!("error {}: {}", failure.code, failure.message),
        RunEvent::Consumed { usage, .. } => {
            format!("used {} + {} tokens", usage.input_tokens, usage.output_tokens)
        }
        RunEvent::Ended { ending, duration_ms } => match ending {
            RunEnding::Completed { .. } => format!("completed after {duration_ms} ms"),
            RunEnding::Failed(failure) => format!("failed, {}: {}", failure.code, failure.message),
            RunEnding::Stopped { reason, .. } => format!("stopped: {reason}"),
        },
    }
}
