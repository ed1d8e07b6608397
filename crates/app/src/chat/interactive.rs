//! An interactive chat on a terminal: reads lines, and decides what Ctrl-C does at the prompt.

use std::io::{self, Write, stderr, stdout};
use std::path::Path;

use parlor_vocab::{PolicyMode, RunId, WhenBusy};

use super::editor::{Editor, EditorEvent, PROMPT};
use super::exchange::{Conversation, Ended, ExchangeOutcome, Message};
use super::interrupts::{Interrupt, Interrupts};
use super::other_runs::{OtherMessages, OtherRuns};
use super::view::TerminalView;
use crate::console::Console;
use crate::sessions::pick::short_id;
use crate::settings::{AgentConfig, AgentKind};
use crate::undo::{diff_last, undo_last};

/// The file in the state folder with the lines that the user typed.
pub(crate) const HISTORY: &str = "history";

/// Lines that end the chat. All others but those below go to the agent, even if they start with a slash.
const EXIT_COMMANDS: [&str; 2] = ["/quit", "/exit"];

/// A line that undoes the last run of the session that changed files.
const UNDO_COMMAND: &str = "/undo";
/// A line that shows what that run changed.
const DIFF_COMMAND: &str = "/diff";

/// A line that chooses how far the tools of the session reach, followed by the mode.
const MODE_COMMAND: &str = "/mode";

/// A line that begins so adds its text to the run of another client.
const STEER_COMMAND: &str = "/steer ";

/// Reads messages and shows the answers until the user leaves.
pub(super) async fn run(
    conversation: &mut Conversation<'_>,
    agent: &AgentConfig,
    home: &Path,
    console: Console,
    interrupts: &mut Interrupts,
) -> anyhow::Result<()> {
    print_welcome(conversation, agent, console)?;
    let mut editor = Editor::start(&home.join(HISTORY), console)?;
    if let Some(session) = &conversation.session {
        conversation.seen = Some(conversation.sessions.view_without_history(session).await?.head());
    }
    // How many times in a row the user has pressed Ctrl-C, during an answer or at the prompt.
    let mut ctrl_c_count = 0;
    loop {
        editor.request_line();
        let mut others = match (&conversation.session, conversation.seen) {
            (Some(session), Some(seen)) => Some(OtherRuns::after(conversation.sessions, session, seen).await),
            _ => None,
        };
        let line =
            next_line(&mut editor, conversation, others.as_mut(), interrupts, &mut ctrl_c_count, console)
                .await?;
        let mut other_messages = OtherMessages::default();
        if let Some(others) = others {
            let (position, messages) = others.into_parts();
            (conversation.seen, other_messages) = (Some(position), messages);
        }
        match line {
            None => break,
            Some(text) if EXIT_COMMANDS.contains(&text.as_str()) => break,
            Some(text) if text.trim().is_empty() => {}
            Some(text) if [UNDO_COMMAND, DIFF_COMMAND].contains(&text.trim()) => {
                show_changes(conversation, text.trim() == UNDO_COMMAND, console).await?;
            }
            Some(text) if text.split_whitespace().next() == Some(MODE_COMMAND) => {
                choose_mode(conversation, &text, console)?;
            }
            Some(text) => {
                let (mut out, mut notices) = (stdout(), stderr());
                let mut view = TerminalView::new(&mut out, &mut notices, console);
                let message = match text.strip_prefix(STEER_COMMAND) {
                    Some(text) => Message { text: text.trim().to_owned(), when_busy: WhenBusy::Steer },
                    None => Message { text: text.trim_end().to_owned(), when_busy: WhenBusy::Enqueue },
                };
                match conversation.exchange(message, other_messages, &mut view, interrupts).await {
                    Ok(outcome) if outcome.should_exit => break,
                    Ok(outcome) => {
                        ctrl_c_count = outcome.interrupts;
                        print_outcome(outcome, console)?;
                    }
                    // The chat goes on: the next message may succeed.
                    Err(error) => writeln!(stderr(), "{}", console.style.red(&format!("Error: {error:#}")))?,
                }
            }
        }
    }
    drop(editor);
    print_farewell(conversation, console)?;
    Ok(())
}

/// Chooses the mode of the session that this line names. It holds from the next message on.
fn choose_mode(conversation: &mut Conversation<'_>, line: &str, console: Console) -> io::Result<()> {
    let mode = line.split_whitespace().nth(1).and_then(PolicyMode::parse);
    let notice = match mode {
        Some(mode) => {
            conversation.mode = Some(mode);
            format!("From the next message on, the mode of this session is {}.\n", mode.as_str())
        }
        None => "The modes are: /mode read-only, /mode workspace, /mode full (docs/policy.md).\n".to_owned(),
    };
    print_notice(console, &notice)
}

/// Undoes or shows what the last run of the session changed.
async fn show_changes(conversation: &Conversation<'_>, undo: bool, console: Console) -> io::Result<()> {
    let shown = match &conversation.session {
        None => Err(anyhow::anyhow!("no message was sent, so nothing was changed")),
        Some(session) if undo => undo_last(conversation.sessions, session, console, &mut stdout()).await,
        Some(session) => diff_last(conversation.sessions, session, console, &mut stdout()).await,
    };
    match shown {
        Ok(()) => writeln!(stderr()),
        Err(error) => writeln!(stderr(), "{}", console.style.red(&format!("Error: {error:#}"))),
    }
}

/// The next line, or `None` if the user leaves instead. Meanwhile prints what other clients say in the session.
async fn next_line(
    editor: &mut Editor,
    conversation: &Conversation<'_>,
    mut others: Option<&mut OtherRuns>,
    interrupts: &mut Interrupts,
    ctrl_c_count: &mut usize,
    console: Console,
) -> io::Result<Option<String>> {
    // The run of another client that the user has stopped.
    let mut stopped: Option<RunId> = None;
    loop {
        // Usually the editor reports Ctrl-C. A signal comes from another program, or from a terminal without line
        // editing; then the editor is still reading the line.
        let (event, still_reading) = tokio::select! {
            event = editor.next() => (event, false),
            interrupt = interrupts.next() => match interrupt {
                Interrupt::CtrlC => (EditorEvent::Interrupt, true),
                Interrupt::Terminate => (EditorEvent::End, true),
            },
            message = next_message(&mut others) => {
                editor.print_above(format!("{}\n", console.style.dim(&message)));
                continue;
            }
        };
        if still_reading {
            writeln!(stderr())?;
        }
        match event {
            EditorEvent::Text(text) => {
                *ctrl_c_count = 0;
                return Ok(Some(text));
            }
            EditorEvent::End => return Ok(None),
            EditorEvent::Notice(notice) => print_notice(console, &notice)?,
            EditorEvent::Interrupt => {
                let active = others.as_deref().and_then(OtherRuns::active).cloned();
                let notice = match active.filter(|run| stopped.as_ref() != Some(run)) {
                    Some(run) => {
                        conversation.stop(&run);
                        stopped = Some(run);
                        "Stopping the run of another client. Press Ctrl-C again or Ctrl-D to leave."
                    }
                    None if *ctrl_c_count > 0 => return Ok(None),
                    None => "Press Ctrl-C again or Ctrl-D to leave, or type a message and press Enter.",
                };
                *ctrl_c_count += 1;
                print_notice(console, notice)?;
                if still_reading {
                    write!(stderr(), "{PROMPT}")?;
                } else {
                    editor.request_line();
                }
            }
        }
    }
}

async fn next_message(others: &mut Option<&mut OtherRuns>) -> String {
    match others {
        Some(others) => others.next().await,
        None => std::future::pending().await,
    }
}

fn print_welcome(conversation: &Conversation<'_>, agent: &AgentConfig, console: Console) -> io::Result<()> {
    let task = match (&conversation.session, std::env::current_dir()) {
        (Some(session), _) => format!("continues session {}", short_id(session)),
        (None, Ok(folder)) => format!("works in {}", folder.display()),
        (None, Err(_)) => "is ready".to_owned(),
    };
    let name = &agent.name;
    let (what, hint) = match agent.kind {
        AgentKind::Local { .. } => {
            ("the built-in agent, no model", "Try !ls to run a command, or /help to see what else it can do.")
        }
        AgentKind::Script(_) => ("a script", "Type a message and press Enter."),
        AgentKind::Model(_) => ("a model with tools", "Describe what to do and press Enter."),
    };
    let mut out = stderr();
    writeln!(out, "{}", console.style.bold(&format!("{name} ({what}) {task}.")))?;
    writeln!(out, "{hint}")?;
    if conversation.session.is_some() {
        writeln!(
            out,
            "What other clients do in the session is shown here; /steer TEXT adds a text to their run."
        )?;
    }
    writeln!(out, "/undo puts back the files that the last answer changed; /diff shows them.")?;
    writeln!(out, "/mode read-only, workspace or full chooses how far the tools of the agent reach.")?;
    writeln!(out, "Ctrl-C stops an answer. Ctrl-D or /quit leaves; the session is saved.\n")
}

fn print_outcome(outcome: ExchangeOutcome, console: Console) -> io::Result<()> {
    if outcome.ended == Ended::Stopped {
        let hint = if outcome.interrupts > 0 { " Press Ctrl-C again to leave." } else { "" };
        print_notice(console, &format!("Stopped.{hint}"))?;
    }
    writeln!(stderr())
}

fn print_farewell(conversation: &Conversation<'_>, console: Console) -> io::Result<()> {
    let Some(session) = &conversation.session else {
        return print_notice(console, "No message was sent, so no session was saved.");
    };
    let session = short_id(session);
    print_notice(console, &format!("Continue this session:  parlor chat --session {session}"))?;
    print_notice(console, &format!("Print its events:       parlor replay {session}"))
}

fn print_notice(console: Console, text: &str) -> io::Result<()> {
    writeln!(stderr(), "{}", console.style.dim(text))
}
