//! `parlor replay`: what happened in a session, one event a line.

use std::io::{Write, stderr};

use clap::Args;
use parlor_engine::House;
use parlor_vocab::{Choice, RunEnding, RunEvent, Seen, Seq, SessionEvent};

use crate::console::Console;
use crate::json;
use crate::sessions::pick::{pick, short};
use crate::text::cut;
use crate::time::{duration, time};

/// How many columns an event takes where there is no terminal to fit.
const EVENT_COLUMNS: usize = 100;
/// An event gets at least so many columns, if need be beyond the edge.
const LEAST_EVENT: usize = 20;
/// What stands before an event: its place and its time.
const BEFORE_EVENT: usize = 6 + 2 + 19 + 2;

/// Which part of which session, and how.
#[derive(Args)]
pub(crate) struct Options {
    /// Its id, or the beginning of it; `parlor sessions` lists them
    session: String,
    /// Begin with this event
    #[arg(long, value_name = "N", default_value_t = 1)]
    from: u64,
    /// Go on printing what happens, until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// Print whole events, one JSON object a line (docs/events.md)
    #[arg(long)]
    json: bool,
}

/// Prints the events of a session from a place on; with `follow`, those to come too.
pub(crate) async fn replay(
    house: &House,
    options: Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let record = pick(house, &options.session).await?;
    let session = record.id;
    let before = options.from.saturating_sub(1);
    let mut watcher = house.watch(&session, Seq(before)).await;
    let mut place = before;
    if console.output && options.follow && place >= record.head.0 {
        writeln!(stderr(), "Nothing yet from event {} on; waiting. Ctrl-C ends.", options.from)?;
    }
    while options.follow || place < record.head.0 {
        let seen = tokio::select! {
            seen = watcher.next() => seen?,
            pressed = tokio::signal::ctrl_c() => {
                pressed?;
                return Ok(());
            }
        };
        match &seen {
            Seen::Entry(entry) => place = entry.seq.0,
            // Of what is past, the event that follows has the whole text.
            Seen::Delta { .. } if place < record.head.0 => continue,
            Seen::Delta { .. } => {}
        }
        if options.json {
            json::write_seen(out, &session, &seen)?;
        } else if let Seen::Entry(entry) = &seen {
            let room =
                if console.output { console.columns().saturating_sub(BEFORE_EVENT) } else { EVENT_COLUMNS };
            let event = cut(&line(&entry.event), room.max(LEAST_EVENT));
            writeln!(out, "{:>6}  {}  {event}", entry.seq.0, time(entry.at))?;
            out.flush()?;
        }
    }
    if console.output && !options.json {
        let session = short(&session);
        let said = format!(
            "Go on with it:  parlor chat --session {session}\nAll of it:      --json;  what comes: --follow"
        );
        writeln!(stderr(), "\n{}", console.style.dim(&said))?;
    }
    Ok(())
}

/// An event in a line.
fn line(event: &SessionEvent) -> String {
    match event {
        SessionEvent::Created(birth) => {
            format!("created through {}, in {}", birth.door, birth.folder.display())
        }
        SessionEvent::Renamed { title } => format!("renamed: {title}"),
        SessionEvent::Chosen(choice) => format!("chosen: {}", chosen(choice)),
        SessionEvent::Queued(queued) => format!("{} waits: {}", queued.run, queued.input.text),
        SessionEvent::Unqueued { runs } => format!("{} inputs will not run", runs.len()),
        SessionEvent::Cleared => "history cleared".to_owned(),
        SessionEvent::Compacted { summary, .. } => format!("history compacted: {}", summary.text),
        SessionEvent::MessageAdded(message) => format!("message: {}", message.text),
        SessionEvent::Run { sequence, event, .. } => format!("{sequence:>3}  {}", run_line(event)),
    }
}

fn chosen(choice: &Choice) -> String {
    let agent = choice.agent.as_ref().map(|agent| format!("agent {agent}"));
    let model = choice.model.as_ref().map(|model| format!("model {model}"));
    let reasoning = choice.reasoning.map(|reasoning| format!("reasoning {reasoning:?}"));
    [agent, model, reasoning].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn run_line(event: &RunEvent) -> String {
    match event {
        RunEvent::Started { agent, input, .. } => format!("run of {agent}: {}", input.text),
        RunEvent::Steered { input, .. } => format!("steered: {}", input.text),
        RunEvent::MessageStarted { .. } => "message begins".to_owned(),
        RunEvent::MessageCompleted { text, .. } => format!("message: {text}"),
        RunEvent::StepStarted { step, title, .. } => format!("{step} begins: {title}"),
        RunEvent::StepUpdated { step, headline, percent } => format!("{step} at {percent} %: {headline}"),
        RunEvent::StepCompleted { step, duration_ms, .. } => {
            format!("{step} done after {}", duration(*duration_ms))
        }
        RunEvent::StepFailed { step, failure, .. } => format!("{step} failed: {}", failure.message),
        RunEvent::Reasoned { text, .. } => format!("thought: {text}"),
        RunEvent::ToolCalled { tool, input, .. } => format!("calls {tool} with {input}"),
        RunEvent::ToolProgressed { message, .. } => format!("tool: {message}"),
        RunEvent::ToolCompleted { output, duration_ms, .. } => {
            format!("tool done after {}: {output}", duration(*duration_ms))
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
            RunEnding::Completed { .. } => format!("completed after {}", duration(*duration_ms)),
            RunEnding::Failed(failure) => format!("failed, {}: {}", failure.code, failure.message),
            RunEnding::Stopped { reason, .. } => format!("stopped: {reason}"),
        },
    }
}
