//! `parlor chat`: talk to an agent from the terminal.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;

use parlor_engine::House;
use parlor_vocab::{AgentId, Birth, Choice, Input, Seq, SessionCommand, SessionId, SessionReply, WhenBusy};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::show::{Ended, Show, cut};

/// A title is the first words of what was said first.
const TITLE_CHARS: usize = 60;

const WELCOME: &str =
    "parlor chat. /help says what the local agent can do; Ctrl-C stops an answer, Ctrl-D leaves.";

/// What the user asked for on the command line.
pub(crate) struct Options {
    pub(crate) message: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) agent: Option<String>,
}

/// Answers once if there is a message or a pipe, else talks until the user leaves.
pub(crate) async fn chat(house: &House, options: Options) -> anyhow::Result<ExitCode> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let message = match options.message {
        Some(message) => Some(message),
        None if io::stdin().is_terminal() => None,
        None => {
            let mut piped = String::new();
            io::stdin().read_to_string(&mut piped)?;
            Some(piped)
        }
    };
    let agent = options.agent.as_deref().map(AgentId::parse).transpose()?;
    let mut session = options.session.as_deref().map(SessionId::parse).transpose()?;
    let choice = Choice { agent, ..Choice::default() };
    if let Some(message) = message {
        let ended = exchange(house, &mut session, &choice, message, false, &mut interrupts).await?;
        return Ok(match ended {
            Ended::Completed => ExitCode::SUCCESS,
            Ended::Failed => ExitCode::FAILURE,
            Ended::Stopped => ExitCode::from(130),
        });
    }
    talk(house, session, &choice, &mut interrupts).await?;
    Ok(ExitCode::SUCCESS)
}

async fn talk(
    house: &House,
    mut session: Option<SessionId>,
    choice: &Choice,
    interrupts: &mut Signal,
) -> anyhow::Result<()> {
    writeln!(io::stderr(), "{WELCOME}")?;
    loop {
        write!(io::stderr(), "> ")?;
        io::stderr().flush()?;
        // A thread of its own, since reading a terminal cannot be given up; Ctrl-C leaves all the same.
        let read = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map(|count| (count > 0).then_some(line))
        });
        let line = tokio::select! {
            line = read => line??,
            _ = interrupts.recv() => None,
        };
        let Some(line) = line else { break };
        if line.trim().is_empty() {
            continue;
        }
        exchange(house, &mut session, choice, line.trim_end().to_owned(), true, interrupts).await?;
    }
    if let Some(session) = session {
        writeln!(
            io::stderr(),
            "\nparlor chat --session {session} goes on here; parlor replay {session} shows it."
        )?;
    }
    Ok(())
}

/// Says one thing and shows the answer to its end. Ctrl-C stops the run.
async fn exchange(
    house: &House,
    session: &mut Option<SessionId>,
    choice: &Choice,
    text: String,
    details: bool,
    interrupts: &mut Signal,
) -> anyhow::Result<Ended> {
    let id = match session {
        Some(id) => id.clone(),
        None => session.insert(house.create(None, birth(&text, choice)?).await?).clone(),
    };
    let head = house.view(&id).await?.head();
    let mut watcher = house.watch(&id, Seq(head.0)).await;
    let input = Input { text, choice: choice.clone(), ..Input::default() };
    let sent = house.ask(&id, SessionCommand::Send { input, when_busy: WhenBusy::Refuse }).await?;
    let SessionReply::Started(_) = sent else { anyhow::bail!("the session did something else: {sent:?}") };
    let (mut out, mut aside) = (io::stdout(), io::stderr());
    let mut show = Show::new(&mut out, &mut aside, details);
    loop {
        tokio::select! {
            seen = watcher.next() => {
                if let Some(ended) = show.see(&seen?)? {
                    return Ok(ended);
                }
            }
            _ = interrupts.recv() => {
                // It may have ended at this very moment; then there is nothing to stop.
                let _ = house.ask(&id, SessionCommand::Stop { run: None, reason: None }).await;
            }
        }
    }
}

fn birth(text: &str, choice: &Choice) -> io::Result<Birth> {
    let title = cut(text.lines().next().unwrap_or_default().trim(), TITLE_CHARS);
    Ok(Birth {
        title: Some(title),
        door: "chat".to_owned(),
        folder: std::env::current_dir()?,
        choice: choice.clone(),
        system: None,
        forked_from: None,
    })
}
