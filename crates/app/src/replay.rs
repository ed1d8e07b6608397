//! `parlor replay`: what happened in a session, one event a line.

use std::io::{Write, stderr};

use clap::Args;
use parlor_engine::Sessions;
use parlor_vocab::{
    AgentChoice, MessageEvent, RunEnding, RunEvent, Seq, SessionEvent, SessionUpdate, StepEvent,
    SubagentEvent, ToolEvent,
};

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
    sessions: &Sessions,
    options: Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let record = pick(sessions, &options.session).await?;
    let session = record.id;
    let before = options.from.saturating_sub(1);
    let mut watcher = sessions.watch(&session, Seq(before)).await;
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
            SessionUpdate::Entry(entry) => place = entry.seq.0,
            // Of what is past, the event that follows has the whole text.
            SessionUpdate::Delta { .. } if place < record.head.0 => continue,
            SessionUpdate::Delta { .. } => {}
        }
        if options.json {
            json::write_seen(out, &session, &seen)?;
        } else if let SessionUpdate::Entry(entry) = &seen {
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
        SessionEvent::Created(new_session) => {
            format!("created through {}, in {}", new_session.door, new_session.folder.display())
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

fn chosen(choice: &AgentChoice) -> String {
    let agent = choice.agent.as_ref().map(|agent| format!("agent {agent}"));
    let model = choice.model.as_ref().map(|model| format!("model {model}"));
    let reasoning = choice.reasoning.map(|reasoning| format!("reasoning {reasoning:?}"));
    [agent, model, reasoning].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn run_line(event: &RunEvent) -> String {
    match event {
        RunEvent::Started { agent, input, .. } => format!("run of {agent}: {}", input.text),
        RunEvent::Steered { input, .. } => format!("steered: {}", input.text),
        RunEvent::Message(MessageEvent::Started { .. }) => "message begins".to_owned(),
        RunEvent::Message(MessageEvent::Completed { text, .. }) => format!("message: {text}"),
        RunEvent::Step(StepEvent::Started { step, title, .. }) => format!("{step} begins: {title}"),
        RunEvent::Step(StepEvent::Updated { step, headline, percent }) => {
            format!("{step} at {percent} %: {headline}")
        }
        RunEvent::Step(StepEvent::Completed { step, duration_ms, .. }) => {
            format!("{step} done after {}", duration(*duration_ms))
        }
        RunEvent::Step(StepEvent::Failed { step, failure, .. }) => {
            format!("{step} failed: {}", failure.message)
        }
        RunEvent::Step(StepEvent::Reasoned { text, .. }) => format!("thought: {text}"),
        RunEvent::Tool(ToolEvent::Called { tool, input, .. }) => format!("calls {tool} with {input}"),
        RunEvent::Tool(ToolEvent::Progressed { message, .. }) => format!("tool: {message}"),
        RunEvent::Tool(ToolEvent::Completed { output, duration_ms, .. }) => {
            format!("tool done after {}: {output}", duration(*duration_ms))
        }
        RunEvent::Tool(ToolEvent::Failed { failure, .. }) => format!("tool failed: {}", failure.message),
        RunEvent::Subagent(SubagentEvent::Started { name, task, .. }) => format!("asks {name}: {task}"),
        RunEvent::Subagent(SubagentEvent::Updated { status, .. }) => format!("subagent: {status}"),
        RunEvent::Subagent(SubagentEvent::Done { result: Ok(result), .. }) => {
            format!("subagent says: {result}")
        }
        RunEvent::Subagent(SubagentEvent::Done { result: Err(failure), .. }) => {
            format!("subagent failed: {}", failure.message)
        }
        RunEvent::ErrorRaised { failure, .. } => format!("error {}: {}", failure.code, failure.message),
        RunEvent::Consumed { usage, .. } => {
            format!("used {} + {} tokens", usage.input_tokens, usage.output_tokens)
        }
        RunEvent::Ended { ending, duration_ms } => match ending {
            RunEnding::Completed { .. } => format!("completed after {}", duration(*duration_ms)),
            RunEnding::Failed(failure) => format!("failed, {}: {}", failure.code, failure.message),
            RunEnding::Stopped { cause, .. } => format!("stopped: {}", cause.reason()),
        },
    }
}
