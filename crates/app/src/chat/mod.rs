//! `parlor chat`: a conversation with an agent on the command line.

mod editor;
mod exchange;
mod interactive;
mod interrupts;
mod model_request;
mod other_runs;
mod questions;
mod screen;
mod view;
mod watch;

use std::io::{Read, stderr, stdin, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use parlor_engine::Sessions;
use parlor_log::{PageRequest, SessionRecord};
use parlor_vocab::{
    AgentChoice, AgentId, PolicyMode, QuestionAnswer, Reasoning, Sender, SessionCommand, SessionRefusal,
    WhenBusy,
};
use tokio::time::timeout;

use self::exchange::{Answerer, Conversation, Ended, Message};
use self::interrupts::Interrupts;
use self::model_request::ModelRequest;
use self::other_runs::OtherMessages;
use self::view::{JsonView, PlainView, View};
use crate::console::{Console, Style};
use crate::environment::Environment;
use crate::home::Home;
use crate::rules;
use crate::sessions::pick::pick_session;
use crate::settings::models::{REASONING, reasoning};
use crate::settings::{AgentConfig, AgentKind, Config};

/// The longest message that is read from stdin.
pub(crate) const MAX_STDIN_BYTES: u64 = 16 << 20;

/// Among this many sessions, `--continue` looks for one of the working folder.
pub(crate) const RECENT_SESSIONS: usize = 200;

/// If the process has to stay for other clients longer than this, the user is told so.
const LEAVE_NOTICE_DELAY: Duration = Duration::from_millis(300);

/// The exit status after a stopped run: the same as for a program that Ctrl-C ended.
const STOPPED_STATUS: u8 = 130;

/// The arguments of `parlor chat`.
#[derive(Args)]
pub(crate) struct Options {
    /// The message to send
    message: Option<String>,
    /// Continue this session instead of creating one: its id, or the start of it
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Continue the session that was used last in this folder
    #[arg(long = "continue", short = 'c', conflicts_with = "session")]
    continues: bool,
    /// Choose a session to continue from a list; needs a terminal
    #[arg(long, conflicts_with_all = ["session", "continues", "message", "json"])]
    resume: bool,
    /// Print line by line, without the screen of a terminal
    #[arg(long)]
    plain: bool,
    /// Use no colours; the variable NO_COLOR does the same
    #[arg(long)]
    no_color: bool,
    /// Add the message to the run that is active in the session, which reads it at its next step
    #[arg(long, requires = "session", conflicts_with = "stop")]
    steer: bool,
    /// Stop the run that is active in the session
    #[arg(long, requires = "session", conflicts_with = "message")]
    stop: bool,
    /// Answer the question that the active run of the session asks: once, always or deny; a message after deny tells the agent
    /// why not
    #[arg(long, requires = "session", value_name = "ANSWER", conflicts_with_all = ["steer", "stop"])]
    answer: Option<String>,
    /// How far the tools of the session reach, from now on: read-only, workspace or full (docs/policy.md)
    #[arg(long, value_name = "MODE", value_parser = policy_mode)]
    mode: Option<PolicyMode>,
    /// Trust the project of the session from now on: agents read its instructions and skills, and use the
    /// MCP servers that its .mcp.json has now (docs/policy.md)
    #[arg(long, conflicts_with_all = ["stop", "answer", "watch"])]
    trust: bool,
    /// The agent that answers; agents are configured in $PARLOR_HOME/parlor.toml
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The model that answers, from now on in this session: a name that parlor models lists, or PROVIDER/NAME with the
    /// provider's name for it
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// How much reasoning the model does: off, low, medium, high, xhigh or adaptive
    #[arg(long, value_name = "LEVEL", value_parser = reasoning_level)]
    reasoning: Option<Reasoning>,
    /// Answer once and print all events, one JSON object per line (docs/events.md)
    #[arg(long)]
    json: bool,
    /// Show this session live, whoever uses it, and send nothing; Ctrl-C leaves
    #[arg(
        long,
        value_name = "SESSION",
        conflicts_with_all = ["message", "session", "continues", "resume", "agent", "model", "reasoning"]
    )]
    watch: Option<String>,
}

/// Runs `parlor chat`: answers once if there is a message or stdin is not a terminal, else chats until the user leaves.
pub(crate) async fn chat(
    home: &Home,
    sessions: &Arc<Sessions>,
    options: Options,
    environment: &Environment,
    console: Console,
) -> anyhow::Result<ExitCode> {
    let style = Style(console.style.0 && !options.no_color);
    let console = Console { style, ..console };
    if options.stop {
        return stop(sessions, options.session.as_deref().unwrap_or_default()).await;
    }
    if let Some(answer) = &options.answer {
        return self::answer(
            sessions,
            options.session.as_deref().unwrap_or_default(),
            answer,
            options.message,
        )
        .await;
    }
    if options.steer && options.message.is_none() && console.stdin_is_terminal {
        bail!("--steer needs a message: for example, parlor chat --session SESSION --steer 'use tabs'");
    }
    if let Some(session) = &options.watch {
        let mut interrupts = Interrupts::new()?;
        watch::watch(sessions, session, options.json, console, &mut interrupts).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.json && options.message.is_none() && console.stdin_is_terminal {
        bail!("--json needs a message: for example, parlor chat --json '/say hi'");
    }
    let message = match options.message {
        Some(message) => Some(message),
        None if console.stdin_is_terminal => None,
        None => Some(message_from_stdin()?),
    };
    if message.as_deref().is_some_and(|message| message.trim().is_empty()) {
        bail!("the message is empty; pass one, for example parlor chat '/say hi', or pipe it in on stdin");
    }
    let mut interrupts = Interrupts::new()?;
    let record = match &options.session {
        Some(text) => Some(pick_session(sessions, text).await?),
        None if options.continues => Some(last_session_here(sessions).await?),
        None => None,
    };
    let has_screen = !options.plain
        && message.is_none()
        && console.stdin_is_terminal
        && console.stdout_is_terminal
        && !console.is_dumb;
    if options.resume && !has_screen {
        bail!("--resume needs a terminal; parlor sessions lists the sessions, and --session continues one");
    }
    let session_agent = record.as_ref().and_then(|record| record.agent.as_ref()).map(AgentId::as_str);
    // If the agent is not configured any more, the default agent answers, and the run says so.
    let session_agent = session_agent.filter(|agent| home.config().agents.contains_key(*agent));
    let request =
        ModelRequest { agent: options.agent, model: options.model }.resolve(home.config(), session_agent);
    let agent = find_agent(home.config(), request.agent.as_deref().or(session_agent))?;
    let request_agent = request.agent.clone().or(session_agent.map(str::to_owned));
    let session = record.map(|record| record.id);
    if options.trust {
        let created = match &session {
            Some(id) => sessions.creation(id).await?,
            None => None,
        };
        let folder = created.map_or_else(std::env::current_dir, |created| Ok(created.folder))?;
        rules::trust_project(environment, &folder)?;
    }
    // `resolve` gives an agent's own model the agent's name.
    let asked_model = request.model.as_deref().filter(|_| request.model != request.agent);
    if let Some(model) = asked_model.filter(|_| !matches!(agent.kind, AgentKind::Model(_))) {
        bail!(model_request::why_unavailable(home, agent, model).await);
    }
    let choice = AgentChoice {
        agent: request.agent.as_deref().map(AgentId::parse).transpose()?,
        model: request.model,
        reasoning: options.reasoning,
    };
    let answerer = match (options.json, console.stdin_is_terminal) {
        (true, _) => Answerer::Program,
        (false, true) => Answerer::Terminal,
        (false, false) => Answerer::Nobody,
    };
    let mode = options.mode;
    if has_screen {
        let agent_id = request_agent.unwrap_or_else(|| home.config().default_agent.clone());
        let has_colours = console.style.0;
        let picks_session = options.resume;
        let options = screen::ScreenOptions {
            home,
            environment,
            sessions,
            session,
            agent,
            agent_id,
            choice,
            mode,
            picks_session,
            console,
            has_colours,
        };
        screen::run(options, &mut interrupts).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut conversation = Conversation { sessions, session, choice, mode, answerer, seen: None };
    let Some(message) = message else {
        interactive::run(&mut conversation, agent, home.path(), console, &mut interrupts).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let (mut out, mut notices) = (stdout(), stderr());
    let mut plain;
    let mut json;
    let view: &mut dyn View = if options.json {
        json = JsonView { out: &mut out, notices: &mut notices };
        &mut json
    } else {
        plain = PlainView::new(&mut out, &mut notices, console.stdout_is_terminal);
        &mut plain
    };
    let when_busy = if options.steer { WhenBusy::Steer } else { WhenBusy::Enqueue };
    let message = Message { text: message, when_busy };
    let others = OtherMessages::default();
    let outcome = conversation.exchange(message, others, view, &mut interrupts).await?;
    // After Ctrl-C, the user does not want to wait for other clients either.
    if outcome.interrupts == 0 {
        leave(sessions, view, &mut interrupts).await?;
    }
    Ok(match outcome.ended {
        Ended::Completed => ExitCode::SUCCESS,
        Ended::Failed => ExitCode::FAILURE,
        Ended::Stopped => ExitCode::from(STOPPED_STATUS),
    })
}

/// The session that was used last in the working folder.
async fn last_session_here(sessions: &Sessions) -> anyhow::Result<SessionRecord> {
    let folder = std::env::current_dir()?;
    for record in sessions.list(PageRequest::first(RECENT_SESSIONS)).await?.records {
        let created = sessions.creation(&record.id).await.ok().flatten();
        if created.is_some_and(|created| created.folder == folder) {
            return Ok(record);
        }
    }
    bail!(
        "none of the last {RECENT_SESSIONS} sessions was begun in {}; --resume lists all, --session continues one by its id",
        folder.display()
    )
}

/// Waits until the runs that clients of other processes began here have ended, because they would end with this process. An
/// interrupt stops them.
async fn leave(sessions: &Sessions, view: &mut dyn View, interrupts: &mut Interrupts) -> anyhow::Result<()> {
    let mut hand_over = std::pin::pin!(sessions.hand_over());
    if timeout(LEAVE_NOTICE_DELAY, hand_over.as_mut()).await.is_ok() {
        return Ok(());
    }
    view.notice("Another client's message is being answered here. Ctrl-C stops it.")?;
    tokio::select! {
        () = hand_over => {}
        _ = interrupts.next() => {}
    }
    Ok(())
}

/// Stops the active run of a session, whichever client began it.
async fn stop(sessions: &Sessions, session: &str) -> anyhow::Result<ExitCode> {
    let session = pick_session(sessions, session).await?.id;
    match sessions.execute(&session, SessionCommand::Stop { run: None, reason: None }).await {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(SessionRefusal::NoActiveRun) => bail!("no run is active in the session"),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Answers the question that the active run of a session asks. Waits for the end of the run if this process has to go on with
/// it, because no other process has the session open.
async fn answer(
    sessions: &Sessions,
    session: &str,
    answer: &str,
    message: Option<String>,
) -> anyhow::Result<ExitCode> {
    let Some(answer) = QuestionAnswer::parse(answer, message) else {
        bail!("--answer takes once, always or deny, not {answer:?}");
    };
    let session = pick_session(sessions, session).await?.id;
    let asked = sessions.view_without_history(&session).await?;
    let Some(pending) = asked.pending_question() else { bail!("the session asks no question") };
    let (question, by) = (pending.question.id.clone(), Some(Sender::at(exchange::DOOR)));
    sessions.execute(&session, SessionCommand::AnswerQuestion { question, answer, by }).await?;
    sessions.finish_run(&session).await?;
    Ok(ExitCode::SUCCESS)
}

fn policy_mode(text: &str) -> Result<PolicyMode, String> {
    PolicyMode::parse(text).ok_or_else(|| "expected read-only, workspace or full".to_owned())
}

fn reasoning_level(text: &str) -> Result<Reasoning, String> {
    let names: Vec<&str> = REASONING.into_iter().map(|(name, _)| name).collect();
    reasoning(text).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

/// The agent `name`, or the default agent.
fn find_agent<'a>(config: &'a Config, name: Option<&str>) -> anyhow::Result<&'a AgentConfig> {
    let name = name.unwrap_or(&config.default_agent);
    match config.agents.get(name) {
        Some(agent) => Ok(agent),
        None => {
            let known: Vec<&str> = config.agents.keys().map(String::as_str).collect();
            bail!("no agent {name:?} is configured; there are: {}", known.join(", "))
        }
    }
}

/// Reads the message from stdin to its end.
fn message_from_stdin() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    stdin()
        .lock()
        .take(MAX_STDIN_BYTES + 1)
        .read_to_end(&mut bytes)
        .context("cannot read the message from stdin")?;
    if bytes.len() as u64 > MAX_STDIN_BYTES {
        bail!(
            "the message on stdin is longer than {MAX_STDIN_BYTES} bytes; put the text into a file and send its path"
        );
    }
    String::from_utf8(bytes).context("the message on stdin is not valid UTF-8")
}
