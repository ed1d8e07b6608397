//! `parlor chat`: talk to an agent from the terminal.

mod editor;
mod exchange;
mod interrupts;
mod talk;
mod view;
mod wish;

use std::io::{Read, stderr, stdin, stdout};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use parlor_engine::Sessions;
use parlor_vocab::{AgentChoice, AgentId, Reasoning};

use self::exchange::{Conversation, Ended};
use self::interrupts::Interrupts;
use self::view::{Json, Plain, View};
use self::wish::SlashCommand;
use crate::console::Console;
use crate::home::Home;
use crate::sessions::pick::pick;
use crate::settings::models::{REASONING, reasoning};
use crate::settings::{AgentConfig, AgentKind, Config};

/// The longest message that is read from a pipe.
pub(crate) const PIPED_BYTES: u64 = 16 << 20;

/// The exit status of a run that was stopped: that of a program that Ctrl-C ended.
const STOPPED: u8 = 130;

/// What to say, where, and to whom.
#[derive(Args)]
pub(crate) struct Options {
    /// What to say
    message: Option<String>,
    /// Go on with this session instead of starting one: its id, or the beginning of it
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Let this agent answer; agents are named in $PARLOR_HOME/parlor.toml
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Let this model answer, from now on in this session: a name that parlor models lists, or PROVIDER/NAME as the
    /// provider calls it
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// How hard the model is to think: off, low, medium, high, xhigh or adaptive
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    reasoning: Option<Reasoning>,
    /// Answer once, with all events as JSON objects, one a line (docs/events.md)
    #[arg(long)]
    json: bool,
}

/// Answers once if there is a message or a pipe, else talks until the user leaves.
pub(crate) async fn chat(
    home: &Home,
    sessions: &Sessions,
    options: Options,
    console: Console,
) -> anyhow::Result<ExitCode> {
    if options.json && options.message.is_none() && console.input {
        bail!("--json answers once: say what to answer, as in parlor chat --json '/say hi'");
    }
    let message = match options.message {
        Some(message) => Some(message),
        None if console.input => None,
        None => Some(piped()?),
    };
    if message.as_deref().is_some_and(|message| message.trim().is_empty()) {
        bail!("there is no message: say something, as in parlor chat '/say hi', or through a pipe");
    }
    let mut interrupts = Interrupts::new()?;
    let record = match &options.session {
        Some(text) => Some(pick(sessions, text).await?),
        None => None,
    };
    let chosen = record.as_ref().and_then(|record| record.agent.as_ref()).map(AgentId::as_str);
    let wish = SlashCommand { agent: options.agent, model: options.model }.sorted(home.config(), chosen);
    let agent = agent(home.config(), wish.agent.as_deref().or(chosen))?;
    let session = record.map(|record| record.id);
    if let Some(model) = wish.model.as_deref().filter(|_| !matches!(agent.kind, AgentKind::Model(_))) {
        bail!(wish::missing(home, agent, model).await);
    }
    let choice = AgentChoice {
        agent: wish.agent.as_deref().map(AgentId::parse).transpose()?,
        model: wish.model,
        reasoning: options.reasoning,
    };
    let mut conversation = Conversation { sessions, session, choice };
    let Some(message) = message else {
        talk::talk(&mut conversation, agent, home.path(), console, &mut interrupts).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let (mut out, mut aside) = (stdout(), stderr());
    let mut plain;
    let mut json;
    let view: &mut dyn View = if options.json {
        json = Json { out: &mut out, aside: &mut aside };
        &mut json
    } else {
        plain = Plain::new(&mut out, &mut aside, console.output);
        &mut plain
    };
    let outcome = conversation.exchange(message, view, &mut interrupts).await?;
    Ok(match outcome.ended {
        Ended::Completed => ExitCode::SUCCESS,
        Ended::Failed => ExitCode::FAILURE,
        Ended::Stopped => ExitCode::from(STOPPED),
    })
}

fn level(text: &str) -> Result<Reasoning, String> {
    let names: Vec<&str> = REASONING.into_iter().map(|(name, _)| name).collect();
    reasoning(text).ok_or_else(|| format!("it is one of {}", names.join(", ")))
}

/// Who answers, if it is `wanted`.
fn agent<'a>(config: &'a Config, wanted: Option<&str>) -> anyhow::Result<&'a AgentConfig> {
    let name = wanted.unwrap_or(&config.default_agent);
    match config.agents.get(name) {
        Some(agent) => Ok(agent),
        None => {
            let known: Vec<&str> = config.agents.keys().map(String::as_str).collect();
            bail!("no agent {name:?} is configured; there are: {}", known.join(", "))
        }
    }
}

/// The message that comes through a pipe, to its end.
fn piped() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    stdin()
        .lock()
        .take(PIPED_BYTES + 1)
        .read_to_end(&mut bytes)
        .context("cannot read the message from stdin")?;
    if bytes.len() as u64 > PIPED_BYTES {
        bail!("the message on stdin is longer than {PIPED_BYTES} bytes; put it into a file and name that");
    }
    String::from_utf8(bytes).context("the message on stdin is no text in UTF-8")
}
