//! A chat on a terminal, from the welcome to the farewell.

use std::io::{self, Write, stderr, stdout};
use std::path::Path;

use super::editor::{Editor, Line, PROMPT};
use super::exchange::{Conversation, Ended, Outcome};
use super::interrupts::{InterruptPress, Interrupts};
use super::view::Talk;
use crate::console::Console;
use crate::sessions::pick::short;
use crate::settings::{AgentConfig, AgentKind};

/// The file in the state folder that remembers what was typed.
pub(crate) const HISTORY: &str = "history";

/// What the chat keeps for itself. Everything else is the agent's, also what begins with a slash.
const LEAVE: [&str; 2] = ["/quit", "/exit"];

/// Talks until the user leaves.
pub(super) async fn talk(
    conversation: &mut Conversation<'_>,
    agent: &AgentConfig,
    home: &Path,
    console: Console,
    interrupts: &mut Interrupts,
) -> anyhow::Result<()> {
    welcome(conversation, agent, console)?;
    let mut editor = Editor::start(&home.join(HISTORY), console)?;
    // How often in a row the user has pressed Ctrl-C, at an answer or at the prompt.
    let mut presses = 0;
    loop {
        editor.ask();
        match next(&mut editor, interrupts, &mut presses, console).await? {
            None => break,
            Some(text) if LEAVE.contains(&text.as_str()) => break,
            Some(text) if text.trim().is_empty() => {}
            Some(text) => {
                let (mut out, mut aside) = (stdout(), stderr());
                let mut view = Talk::new(&mut out, &mut aside, console);
                match conversation.exchange(text.trim_end().to_owned(), &mut view, interrupts).await {
                    Ok(outcome) if outcome.leave => break,
                    Ok(outcome) => {
                        presses = outcome.presses;
                        after(outcome, console)?;
                    }
                    // What one message met, the next may not.
                    Err(error) => writeln!(stderr(), "{}", console.style.red(&format!("Error: {error:#}")))?,
                }
            }
        }
    }
    drop(editor);
    farewell(conversation, console)?;
    Ok(())
}

/// The next line, or `None` if the user leaves instead.
async fn next(
    editor: &mut Editor,
    interrupts: &mut Interrupts,
    presses: &mut usize,
    console: Console,
) -> io::Result<Option<String>> {
    loop {
        // A signal comes from another program, or from a terminal that edits lines itself. Then the
        // line is still being typed.
        let (line, typing) = tokio::select! {
            line = editor.line() => (line, false),
            press = interrupts.next() => match press {
                InterruptPress::Interrupt => (Line::Interrupt, true),
                InterruptPress::End => (Line::End, true),
            },
        };
        if typing {
            writeln!(stderr())?;
        }
        match line {
            Line::Text(text) => {
                *presses = 0;
                return Ok(Some(text));
            }
            Line::End => return Ok(None),
            Line::Remark(remark) => aside(console, &remark)?,
            Line::Interrupt if *presses > 0 => return Ok(None),
            Line::Interrupt => {
                *presses += 1;
                aside(
                    console,
                    "Ctrl-C again or Ctrl-D leaves. What you write is answered when you press Enter.",
                )?;
                if typing {
                    write!(stderr(), "{PROMPT}")?;
                } else {
                    editor.ask();
                }
            }
        }
    }
}

fn welcome(conversation: &Conversation<'_>, agent: &AgentConfig, console: Console) -> io::Result<()> {
    let place = match (&conversation.session, std::env::current_dir()) {
        (Some(session), _) => format!("goes on with session {}", short(session)),
        (None, Ok(folder)) => format!("works in {}", folder.display()),
        (None, Err(_)) => "answers".to_owned(),
    };
    let name = &agent.name;
    let (what, hint) = match agent.kind {
        AgentKind::Local => {
            ("the built-in agent, no model", "Try !ls to run a command, or /help to see what else it can do.")
        }
        AgentKind::Script(_) => ("a script", "Write something and press Enter."),
        AgentKind::Model(_) => ("a model with tools", "Say what is to be done and press Enter."),
    };
    let mut aside = stderr();
    writeln!(aside, "{}", console.style.bold(&format!("{name} ({what}) {place}.")))?;
    writeln!(aside, "{hint}")?;
    writeln!(aside, "Ctrl-C stops an answer. Ctrl-D or /quit leaves; what was said is kept.\n")
}

fn after(outcome: Outcome, console: Console) -> io::Result<()> {
    if outcome.ended == Ended::Stopped {
        let next = if outcome.presses > 0 { " Ctrl-C again leaves." } else { "" };
        aside(console, &format!("Stopped.{next}"))?;
    }
    writeln!(stderr())
}

fn farewell(conversation: &Conversation<'_>, console: Console) -> io::Result<()> {
    let Some(session) = &conversation.session else {
        return aside(console, "Nothing was said, so nothing was kept.");
    };
    let session = short(session);
    aside(console, &format!("Go on with this session:  parlor chat --session {session}"))?;
    aside(console, &format!("See what happened in it:  parlor replay {session}"))
}

fn aside(console: Console, text: &str) -> io::Result<()> {
    writeln!(stderr(), "{}", console.style.dim(text))
}
