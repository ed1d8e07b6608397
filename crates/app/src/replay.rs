//! `parlor replay`: prints the events of a session, one per line.

mod door_frames;

use std::io::{Write, stderr};
use std::sync::Arc;

use clap::Args;
use parlor_engine::{Sessions, visible};
use parlor_vocab::{
    AgentChoice, MessageEvent, QuestionEvent, RunEnding, RunEvent, Seq, SessionEvent, SessionUpdate,
    StepEvent, SubagentEvent, ToolEvent,
};

use self::door_frames::{ReplayDoor, print_frames};
use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;
use crate::json;
use crate::sessions::pick::{pick_session, short_id};
use crate::text::truncate;
use crate::time::{duration, time};

/// How many columns an event gets if output is not a terminal.
const EVENT_COLUMNS: usize = 100;
/// An event gets at least this many columns, even if the line is then wider than the terminal.
const MIN_EVENT_COLUMNS: usize = 20;
/// The columns of the number and the time before an event, with the spaces between.
const PREFIX_COLUMNS: usize = 6 + 2 + 19 + 2;

/// The arguments of `parlor replay`.
#[derive(Args)]
pub(crate) struct Options {
    /// The id of the session, or the start of it; `parlor sessions` lists the ids
    session: String,
    /// Start with this event
    #[arg(long, value_name = "N", default_value_t = 1)]
    from: u64,
    /// Keep printing new events until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// With --follow: also print text while it is written, also by other processes
    #[arg(long, requires = "follow")]
    live: bool,
    /// Print whole events, one JSON object per line (docs/events.md)
    #[arg(long)]
    json: bool,
    /// Print the whole session as the frames that a client of this door would have got, one JSON object per line
    #[arg(long = "as", value_name = "DOOR", conflicts_with_all = ["from", "follow", "json"])]
    door: Option<ReplayDoor>,
}

impl Options {
    /// Whether text is shown while it is written, in whichever process.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }
}

/// Prints the events of a session from a position on; with `follow`, also events that happen later.
pub(crate) async fn replay(
    home: &Home,
    environment: &Environment,
    sessions: &Arc<Sessions>,
    options: Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let record = pick_session(sessions, &options.session).await?;
    if let Some(door) = options.door {
        return print_frames(door, home, environment, sessions, record, out).await;
    }
    let session = record.id;
    let before = options.from.saturating_sub(1);
    let mut watcher = match options.live {
        true => sessions.join(&session, Seq(before)).await,
        false => sessions.watch(&session, Seq(before)).await,
    };
    let mut position = before;
    // Whether the last line is a text that is being written.
    let mut is_writing = false;
    if console.stdout_is_terminal && options.follow && position >= record.head.0 {
        writeln!(stderr(), "No event {} yet; waiting. Ctrl-C ends.", options.from)?;
    }
    while options.follow || position < record.head.0 {
        let update = tokio::select! {
            update = watcher.next() => update?,
            pressed = tokio::signal::ctrl_c() => {
                pressed?;
                return Ok(());
            }
        };
        match &update {
            SessionUpdate::Entry(entry) => position = entry.seq.0,
            // Skip deltas of the past: a later event has the whole text. Without --live, so has every event.
            SessionUpdate::Delta { .. } if position < record.head.0 || !options.live => continue,
            SessionUpdate::Delta { .. } => {}
        }
        if options.json {
            json::write_update(out, &session, &update)?;
            continue;
        }
        match &update {
            SessionUpdate::Delta { text, .. } => {
                is_writing = true;
                write!(out, "{}", visible(text))?;
            }
            SessionUpdate::Entry(entry) => {
                if std::mem::take(&mut is_writing) {
                    writeln!(out)?;
                }
                let columns = if console.stdout_is_terminal {
                    console.columns().saturating_sub(PREFIX_COLUMNS)
                } else {
                    EVENT_COLUMNS
                };
                let event = truncate(&event_text(&entry.event), columns.max(MIN_EVENT_COLUMNS));
                writeln!(out, "{:>6}  {}  {event}", entry.seq.0, time(entry.at))?;
            }
        }
        out.flush()?;
    }
    if console.stdout_is_terminal && !options.json {
        let session = short_id(&session);
        let hints = format!(
            "Continue the session:  parlor chat --session {session}\nWhole events:          --json;  new events: --follow"
        );
        writeln!(stderr(), "\n{}", console.style.dim(&hints))?;
    }
    Ok(())
}

/// An event as text for people.
fn event_text(event: &SessionEvent) -> String {
    match event {
        SessionEvent::Created(new_session) => {
            format!("created through {}, in {}", new_session.door, new_session.folder.display())
        }
        SessionEvent::Renamed { title } => format!("renamed: {title}"),
        SessionEvent::AgentChosen(choice) => format!("chosen: {}", choice_text(choice)),
        SessionEvent::ModeChosen { mode } => format!("mode: {}", mode.as_str()),
        SessionEvent::Queued(queued) => format!("{} waits: {}", queued.run, queued.input.text),
        SessionEvent::Unqueued { runs } => format!("{} queued inputs were removed", runs.len()),
        SessionEvent::Cleared => "history cleared".to_owned(),
        SessionEvent::Compacted { summary, .. } => format!("history compacted: {}", summary.text),
        SessionEvent::MessageAdded(message) => format!("message: {}", message.text),
        SessionEvent::Run { sequence, event, .. } => format!("{sequence:>3}  {}", run_event_text(event)),
    }
}

fn choice_text(choice: &AgentChoice) -> String {
    let agent = choice.agent.as_ref().map(|agent| format!("agent {agent}"));
    let model = choice.model.as_ref().map(|model| format!("model {model}"));
    let reasoning = choice.reasoning.map(|reasoning| format!("reasoning {reasoning:?}"));
    [agent, model, reasoning].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn run_event_text(event: &RunEvent) -> String {
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
        RunEvent::Question(QuestionEvent::Asked(question)) => {
            format!("asks: {}, because {}", question.title, question.reason)
        }
        RunEvent::Question(QuestionEvent::Settled { outcome, .. }) => {
            format!("question settled: {}", outcome.as_str())
        }
        RunEvent::Subagent(SubagentEvent::Started { name, task, .. }) => {
            format!("subagent {name} starts: {task}")
        }
        RunEvent::Subagent(SubagentEvent::Updated { status, .. }) => format!("subagent: {status}"),
        RunEvent::Subagent(SubagentEvent::Done { result: Ok(result), .. }) => {
            format!("subagent result: {result}")
        }
        RunEvent::Subagent(SubagentEvent::Done { result: Err(failure), .. }) => {
            format!("subagent failed: {}", failure.message)
        }
        RunEvent::ErrorRaised { failure, .. } => format!("error {}: {}", failure.code, failure.message),
        RunEvent::UsageAdded { usage, .. } => {
            format!("used {} + {} tokens", usage.input_tokens, usage.output_tokens)
        }
        RunEvent::Ended { ending, duration_ms } => match ending {
            RunEnding::Completed { .. } => format!("completed after {}", duration(*duration_ms)),
            RunEnding::Failed(failure) => format!("failed, {}: {}", failure.code, failure.message),
            RunEnding::Stopped { cause, .. } => format!("stopped: {}", cause.reason()),
        },
    }
}
