//! Waits for keys, for the session and for time, and carries out what the screen wants.

use std::io::{Write, stderr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyModifiers};
use futures_util::StreamExt;
use parlor_engine::Sessions;
use parlor_vocab::{AgentChoice, PolicyMode, Reasoning, Sender, SessionCommand, SessionId};
use ratatui_core::text::{Line, Span};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::super::exchange::DOOR;
use super::super::interactive::HISTORY;
use super::super::interrupts::{Interrupt, Interrupts};
use super::completion::Vocabulary;
use super::files::list_files;
use super::history_file::HistoryFile;
use super::paint::Painter;
use super::region::SPINNER_MS;
use super::session_link::{SessionLink, recent_sessions};
use super::state::{Effect, Header, Screen, ScreenEvent};
use super::terminal_mode::{TerminalMode, write_now};
use super::theme::Theme;
use super::wrap::clean;
use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;
use crate::sessions::pick::short_id;
use crate::settings::models::REASONING;
use crate::settings::{AgentConfig, AgentKind};

/// The time between two pictures, at least.
pub(crate) const FRAME_INTERVAL: Duration = Duration::from_millis(33);
/// How many updates of the session go into one picture, at most.
const UPDATES_PER_FRAME: usize = 512;
/// Results of commands that wait for the screen.
const RESULTS: usize = 64;
/// After this time without an update of a run, the session is asked whether it can still record events.
const HEALTH_CHECK_DELAY: Duration = Duration::from_secs(2);
/// A session that does not answer within this time cannot record events.
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(12);

/// What the screen begins with.
pub(in crate::chat) struct ScreenOptions<'a> {
    pub(in crate::chat) home: &'a Home,
    pub(in crate::chat) environment: &'a Environment,
    pub(in crate::chat) sessions: &'a Arc<Sessions>,
    pub(in crate::chat) session: Option<SessionId>,
    pub(in crate::chat) agent: &'a AgentConfig,
    /// The id of that agent.
    pub(in crate::chat) agent_id: String,
    pub(in crate::chat) choice: AgentChoice,
    pub(in crate::chat) mode: Option<PolicyMode>,
    /// Whether the user chooses a session first.
    pub(in crate::chat) picks_session: bool,
    pub(in crate::chat) console: Console,
    pub(in crate::chat) has_colours: bool,
}

/// The screen and all that it works with.
pub(super) struct Driver<'a> {
    pub(super) home: &'a Home,
    pub(super) environment: &'a Environment,
    pub(super) sessions: &'a Arc<Sessions>,
    pub(super) screen: Screen,
    pub(super) link: SessionLink,
    painter: Painter,
    history: Option<HistoryFile>,
    pub(super) results: mpsc::Sender<ScreenEvent>,
    start: Instant,
    is_over: bool,
}

/// Shows the screen until the user leaves.
pub(in crate::chat) async fn run(
    options: ScreenOptions<'_>,
    interrupts: &mut Interrupts,
) -> anyhow::Result<()> {
    let (results, mut result_events) = mpsc::channel(RESULTS);
    let theme = Theme { has_colours: options.has_colours, has_unicode: options.console.unicode };
    let (history, trouble) = match HistoryFile::open(&options.home.path().join(HISTORY)) {
        Ok(history) => (Some(history), None),
        Err(error) => (None, Some(format!("Cannot read the history file: {error}."))),
    };
    let header = Header {
        agent: options.agent_id,
        model: options.choice.model.clone(),
        mode: options.mode.unwrap_or(options.home.config().policy.mode),
        agents_under_policy: agents_under_policy(options.home),
        session: None,
        title: None,
    };
    let texts = history.as_ref().map(HistoryFile::texts).unwrap_or_default();
    let screen = Screen::new(theme, header, vocabulary(options.home), texts);
    let link = SessionLink::new(options.sessions, options.choice.clone(), options.mode, results.clone());
    let mut driver = Driver {
        home: options.home,
        environment: options.environment,
        sessions: options.sessions,
        screen,
        link,
        painter: Painter::default(),
        history,
        results,
        start: Instant::now(),
        is_over: false,
    };
    // Before the terminal is changed, so that an unknown session is reported like any other error.
    let joined = match options.session {
        Some(session) => Some(driver.link.join(session).await?),
        None => None,
    };
    let mode = TerminalMode::enter()?;
    driver.resize();
    driver.screen.emit_welcome(options.agent, joined.is_some());
    if let Some(joined) = joined {
        driver.screen.handle(ScreenEvent::Joined(Box::new(joined)), Duration::ZERO);
        driver.apply_options(options.choice, options.mode);
    }
    if let Some(trouble) = trouble {
        driver.screen.notice(&trouble);
    }
    if options.picks_session {
        driver.offer_sessions().await;
    }
    let shown = driver.show(&mut result_events, interrupts).await;
    let cleared = driver.painter.clear(driver.screen.columns);
    // If the terminal is gone, there is nothing to clear.
    let _ = write_now(&cleared);
    drop(mode);
    shown?;
    driver.say_goodbye(options.console);
    Ok(())
}

impl Driver<'_> {
    async fn show(
        &mut self,
        result_events: &mut mpsc::Receiver<ScreenEvent>,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<()> {
        let mut keys = EventStream::new();
        let mut last_frame = self.start;
        self.draw()?;
        let mut is_changed = false;
        let mut last_update = Instant::now();
        while !self.is_over {
            let next_frame = match is_changed {
                true => last_frame + FRAME_INTERVAL,
                false => last_frame + Duration::from_millis(SPINNER_MS),
            };
            let is_animated = is_changed || self.screen.is_animated();
            let is_running = self.screen.run.is_some();
            let event = tokio::select! {
                event = keys.next() => match event {
                    Some(Ok(event)) => screen_event(event),
                    // The terminal is gone.
                    Some(Err(_)) | None => return Ok(()),
                },
                event = self.link.next() => {
                    last_update = Instant::now();
                    Some(event)
                }
                Some(event) = result_events.recv() => Some(event),
                interrupt = interrupts.next() => match interrupt {
                    Interrupt::CtrlC => Some(ScreenEvent::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL))),
                    Interrupt::Terminate => return Ok(()),
                },
                () = sleep_until(next_frame), if is_animated => None,
                () = sleep_until(last_update + HEALTH_CHECK_DELAY), if is_running => {
                    last_update = Instant::now();
                    self.check_health();
                    continue;
                }
            };
            if let Some(event) = event {
                self.handle(event).await?;
                is_changed = true;
            } else {
                self.handle(ScreenEvent::Tick).await?;
            }
            if Instant::now() >= last_frame + FRAME_INTERVAL {
                self.take_updates().await?;
                self.draw()?;
                (is_changed, last_frame) = (false, Instant::now());
            }
        }
        Ok(())
    }

    /// Takes the updates that came already, so that a fast run needs few pictures.
    async fn take_updates(&mut self) -> anyhow::Result<()> {
        for _ in 0..UPDATES_PER_FRAME {
            let Some(update) = self.link.try_next().await else { break };
            self.handle(ScreenEvent::Update(update)).await?;
        }
        Ok(())
    }

    async fn handle(&mut self, event: ScreenEvent) -> anyhow::Result<()> {
        for effect in self.screen.handle(event, self.start.elapsed()) {
            self.carry_out(effect).await?;
        }
        Ok(())
    }

    async fn carry_out(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            Effect::Send { text, when_busy } => self.send(text, when_busy, false).await,
            Effect::Shell(text) => self.send(text, parlor_vocab::WhenBusy::Enqueue, true).await,
            Effect::Stop(run) => self.link.stop(run),
            Effect::TakeBack(run) => self.link.take_back(run),
            Effect::Answer { question, answer } => {
                if let Some(id) = self.link.id.clone() {
                    let by = Some(Sender::at(DOOR));
                    self.link.execute(id, SessionCommand::AnswerQuestion { question, answer, by });
                }
            }
            Effect::Run(command) => self.run_command(command).await,
            Effect::ListFiles => self.list_files(),
            Effect::Switch(session) => self.switch(session).await,
            Effect::Remember(text) => self.remember(&text),
            Effect::Notify(text) => {
                let text = clean(&text).replace('\n', " ");
                write_now(&format!("\x07\x1b]9;{text}\x1b\\"))?;
            }
            Effect::ClearScreen => {
                write_now("\x1b[2J\x1b[H")?;
                self.painter.forget();
            }
            Effect::Quit => self.is_over = true,
        }
        Ok(())
    }

    async fn send(&mut self, text: String, when_busy: parlor_vocab::WhenBusy, is_shell: bool) {
        match self.link.send(text, when_busy, is_shell).await {
            Ok(Some(created)) => self.screen.header.session = Some(created),
            Ok(None) => {}
            Err(error) => self.screen.error(&format!("The message was not sent: {error:#}")),
        }
    }

    pub(super) async fn switch(&mut self, session: SessionId) {
        match self.link.join(session).await {
            Ok(joined) => {
                let event = ScreenEvent::Joined(Box::new(joined));
                self.screen.handle(event, self.start.elapsed());
            }
            Err(refusal) => self.screen.error(&format!("The session cannot be opened: {refusal}")),
        }
    }

    pub(super) async fn offer_sessions(&mut self) {
        let event = match recent_sessions(self.sessions).await {
            Ok(sessions) => ScreenEvent::Sessions(sessions),
            Err(refusal) => ScreenEvent::Error(format!("The sessions cannot be listed: {refusal}")),
        };
        self.screen.handle(event, self.start.elapsed());
    }

    fn list_files(&self) {
        let results = self.results.clone();
        tokio::spawn(async move {
            let found = tokio::task::spawn_blocking(|| {
                std::env::current_dir().map(|folder| list_files(&folder)).unwrap_or_default()
            });
            // If the screen is gone, nobody wants the files.
            let _ = results.send(ScreenEvent::Files(found.await.unwrap_or_default())).await;
        });
    }

    fn remember(&mut self, text: &str) {
        if let Some(history) = &mut self.history
            && let Err(error) = history.add(text)
        {
            self.screen.notice(&format!("Cannot write the history file: {error}."));
            self.history = None;
        }
    }

    /// Asks the session whether it can record events, and tells the user if not.
    fn check_health(&self) {
        let Some(id) = self.link.id.clone() else { return };
        let (sessions, results) = (Arc::clone(self.sessions), self.results.clone());
        tokio::spawn(async move {
            let trouble = match timeout(HEALTH_CHECK_TIMEOUT, sessions.recording_error(&id)).await {
                Ok(Ok(None)) => return,
                Ok(Ok(Some(trouble))) => trouble,
                Ok(Err(refusal)) => refusal.to_string(),
                Err(_) => "the session does not answer".to_owned(),
            };
            let text = format!("The session cannot record events: {trouble}; run parlor doctor for details.");
            // If the screen is gone, nobody is to be told.
            let _ = results.try_send(ScreenEvent::Error(text));
        });
    }

    /// What the command line asked for counts for the session that it continues.
    fn apply_options(&self, choice: AgentChoice, mode: Option<PolicyMode>) {
        let Some(id) = &self.link.id else { return };
        if choice != AgentChoice::default() {
            self.link.execute(id.clone(), SessionCommand::ChooseAgent(choice));
        }
        if let Some(mode) = mode {
            self.link.execute(id.clone(), SessionCommand::ChooseMode(mode));
        }
    }

    fn resize(&mut self) {
        if let Ok((columns, rows)) = crossterm::terminal::size()
            && columns > 0
        {
            let event = ScreenEvent::Resize { columns: usize::from(columns), rows: usize::from(rows) };
            self.screen.handle(event, self.start.elapsed());
        }
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let finished = self.screen.take_finished();
        let frame = self.painter.frame(&finished, &self.screen.region(), self.screen.columns);
        if !frame.is_empty() {
            write_now(&frame)?;
        }
        Ok(())
    }

    fn say_goodbye(&self, console: Console) {
        let text = match &self.link.id {
            None => "No message was sent, so no session was saved.".to_owned(),
            Some(session) => {
                let session = short_id(session);
                format!(
                    "Continue this session:  parlor chat --session {session}\nPrint its events:       parlor replay {session}"
                )
            }
        };
        for line in text.lines() {
            // If the terminal is gone, nobody reads it.
            let _ = writeln!(stderr(), "{}", console.style.dim(line));
        }
    }
}

impl Screen {
    /// The first lines: which agent answers and how to begin.
    fn emit_welcome(&mut self, agent: &AgentConfig, is_continued: bool) {
        let (what, hint) = match agent.kind {
            AgentKind::Local { .. } => (
                "the built-in agent, no model",
                "Try !ls to run a command; //help shows what else the agent can do.",
            ),
            AgentKind::Script(_) => ("a script", ""),
            AgentKind::Model(_) => ("a model with tools", "Describe what to do and press Enter."),
        };
        let task = match std::env::current_dir() {
            _ if is_continued => "continues the session".to_owned(),
            Ok(folder) => format!("works in {}", folder_text(&folder)),
            Err(_) => "is ready".to_owned(),
        };
        let title = format!("{} ({what}) {task}.", clean(&agent.name));
        let mut lines = vec![Line::from(Span::styled(title, self.theme.bold()))];
        if !hint.is_empty() {
            lines.push(Line::from(hint));
        }
        lines.push(Line::from(Span::styled(
            "/help shows commands and keys. Esc stops an answer; Ctrl-D leaves, and the session is saved.",
            self.theme.dim(),
        )));
        self.emit_wrapped(&lines);
    }
}

fn folder_text(folder: &Path) -> String {
    clean(&folder.to_string_lossy()).replace('\n', " ")
}

fn screen_event(event: Event) -> Option<ScreenEvent> {
    match event {
        Event::Key(key) => Some(ScreenEvent::Key(key)),
        Event::Paste(text) => Some(ScreenEvent::Paste(text)),
        Event::Resize(columns, rows) => {
            Some(ScreenEvent::Resize { columns: usize::from(columns), rows: usize::from(rows) })
        }
        Event::FocusGained | Event::FocusLost | Event::Mouse(_) => None,
    }
}

fn agents_under_policy(home: &Home) -> Vec<String> {
    let config = home.config();
    let is_held =
        |agent: &AgentConfig| config.policy.enforces_all || matches!(agent.kind, AgentKind::Model(_));
    config.agents.iter().filter(|(_, agent)| is_held(agent)).map(|(id, _)| id.clone()).collect()
}

fn vocabulary(home: &Home) -> Vocabulary {
    let config = home.config();
    Vocabulary {
        models: config.models.keys().cloned().collect(),
        agents: config.agents.keys().cloned().collect(),
        modes: PolicyMode::ALL.into_iter().map(|mode| mode.as_str().to_owned()).collect(),
        reasoning: REASONING.into_iter().map(|(name, _): (&str, Reasoning)| name.to_owned()).collect(),
        files: None,
    }
}
