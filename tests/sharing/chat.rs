//! `parlor chat`: interactive on a terminal, and as single commands beside a process that watches.

use std::process::Stdio;

use async_trait::async_trait;
use serde_json::Value;
use tokio::process::Child;
use tokio::time::timeout;

use crate::client::Client;
use crate::frames::{Frames, Shown, text};
use crate::home::Home;
use crate::line_process::LineProcess;
use crate::terminal::{ENTER, TIMEOUT, Terminal};

/// What an event of `docs/events.md` shows.
fn read(event: &Value) -> Option<Shown> {
    match event["type"].as_str()? {
        "run.started" | "run.steered" => Some(Shown::Message(text(&event["input"]["text"]))),
        "delta" => Some(Shown::Text(text(&event["text"]))),
        "run.ended" => Some(Shown::End),
        _ => None,
    }
}

/// `parlor chat` on a terminal, at its prompt between runs.
pub(crate) struct TerminalChat {
    terminal: Terminal,
    /// Whether its own message is being answered.
    is_waiting: bool,
}

impl TerminalChat {
    pub(crate) async fn start(home: &Home) -> Self {
        let mut terminal = Terminal::start(home, &["chat", "--plain"], &[]);
        terminal.wait_for_prompt().await;
        Self { terminal, is_waiting: false }
    }

    pub(crate) async fn join(home: &Home, session: &str) -> Self {
        let mut terminal = Terminal::start(home, &["chat", "--plain", "--session", session], &[]);
        terminal.wait_for_prompt().await;
        Self { terminal, is_waiting: false }
    }
}

#[async_trait]
impl Client for TerminalChat {
    async fn send(&mut self, text: &str) {
        self.terminal.type_keys(text);
        self.terminal.type_keys(ENTER);
        // The editor switches off bracketed paste once it has read the line.
        self.terminal.wait_for("\x1b[?2004l").await;
        self.is_waiting = true;
    }

    async fn stop(&mut self) {
        self.terminal.type_keys("\x03");
    }

    async fn steer(&mut self, text: &str) {
        self.send(&format!("/steer {text}")).await;
    }

    fn frames(&mut self) -> &mut Frames {
        panic!("a terminal has no frames")
    }

    async fn sees_message(&mut self, text: &str) {
        self.terminal.wait_for(text).await;
    }

    async fn sees_text(&mut self, text: &str) {
        self.terminal.wait_for(text).await;
    }

    /// Waits for the prompt after its own run. The end of another client's run is not shown.
    async fn sees_end(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.terminal.wait_for_prompt().await;
        }
    }
}

/// A process that watches a session, and one `parlor chat --session` for each thing to do.
pub(crate) struct WatchingChat {
    home: Home,
    session: String,
    watching: LineProcess,
    /// Commands that show a run until it ends.
    commands: Vec<Child>,
}

impl WatchingChat {
    pub(crate) async fn start(home: &Home, session: &str) -> Self {
        let mut command = home.command(&["chat", "--watch", session, "--json"]);
        command.stderr(Stdio::piped());
        let mut watching = LineProcess::start(command, read);
        watching.wait_for_notice("Nothing is sent").await;
        Self { home: home.clone(), session: session.to_owned(), watching, commands: Vec::new() }
    }

    fn spawn(&self, args: &[&str]) -> Child {
        let args = [&["chat", "--session", self.session.as_str()], args].concat();
        let mut command = tokio::process::Command::from(self.home.command(&args));
        command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap()
    }
}

#[async_trait]
impl Client for WatchingChat {
    async fn send(&mut self, text: &str) {
        let command = self.spawn(&[text]);
        self.commands.push(command);
    }

    async fn stop(&mut self) {
        assert_eq!(exit_code(&mut self.spawn(&["--stop"])).await, Some(0));
    }

    async fn steer(&mut self, text: &str) {
        let command = self.spawn(&["--steer", text]);
        self.commands.push(command);
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.watching.frames
    }

    async fn sees_end(&mut self) {
        let ended = self.watching.frames.until("run.ended", |event| event["type"] == "run.ended").await;
        let expected = if ended["ending"] == "stopped" { 130 } else { 0 };
        for mut command in self.commands.drain(..) {
            assert_eq!(exit_code(&mut command).await, Some(expected), "after {ended}");
        }
    }
}

async fn exit_code(command: &mut Child) -> Option<i32> {
    timeout(TIMEOUT, command.wait()).await.expect("the command ends").unwrap().code()
}
