//! The terminals of this server and what others show of theirs, for the web side.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use parlor_log::SystemClock;
use parlor_process::{TerminalDimensions, TerminalEvent, TerminalInfo, TerminalView, Terminals};
use parlor_transport::{
    ProcessInfo, ProcessViewer, TerminalSize, ViewerEvent, exit_code, list_shared_processes,
    watch_shared_process,
};
use parlor_vocab::ProcessRefusal;
use parlor_web::{ProcessApiError, ProcessTable};

use crate::environment::Environment;
use crate::home::Home;

/// What runs where no shell is known.
const SHELL: &str = "/bin/sh";

/// What our terminals can do.
const TERMINAL: [(&str, &str); 2] = [("TERM", "xterm-256color"), ("COLORTERM", "truecolor")];

/// The door that they come through.
const DOOR: &str = "supr";

/// The terminals of this server.
pub(super) struct ServerTerminals {
    terminals: Arc<Terminals>,
    shell: String,
    /// The state folder, where others show what they run.
    home: PathBuf,
    /// Whether clients may do more than look.
    may_start: bool,
}

impl ServerTerminals {
    /// None yet. They start in `folder`.
    pub(super) fn new(folder: PathBuf, home: &Home, environment: &Environment, may_start: bool) -> Self {
        let is_ours = |name: &str| TERMINAL.iter().any(|(ours, _)| *ours == name);
        let mut env = home.command_environment(environment);
        let shell = env.iter().find(|(name, _)| name == "SHELL").map(|(_, shell)| shell.clone());
        env.retain(|(name, _)| !is_ours(name));
        env.extend(TERMINAL.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let terminals = Arc::new(Terminals::new(folder, env, Arc::new(SystemClock)));
        let shell = shell.filter(|shell| !shell.is_empty()).unwrap_or_else(|| SHELL.to_owned());
        Self { terminals, shell, home: home.path().to_owned(), may_start }
    }

    /// Ends all of them.
    pub(super) async fn close(&self) {
        self.terminals.close().await;
    }
}

#[async_trait]
impl ProcessTable for ServerTerminals {
    async fn list(&self) -> Vec<ProcessInfo> {
        let mut lines: Vec<ProcessInfo> = self.terminals.list().into_iter().map(line).collect();
        lines.extend(list_shared_processes(&self.home).await);
        lines
    }

    async fn start(
        &self,
        command: Option<Vec<String>>,
        size: TerminalSize,
    ) -> Result<ProcessInfo, ProcessApiError> {
        if !self.may_start {
            let why = "allow_from in [channels.supr] of parlor.toml lets nobody do this here; add \"supr-user\" to it";
            return Err(ProcessApiError::Forbidden(why.to_owned()));
        }
        let command =
            command.filter(|command| !command.is_empty()).unwrap_or_else(|| vec![self.shell.clone()]);
        match self.terminals.start(command, TerminalDimensions { columns: size.cols, rows: size.rows }) {
            Ok(started) => Ok(line(started)),
            Err(refusal) if matches!(refusal, ProcessRefusal::TooManyProcesses { .. }) => {
                Err(ProcessApiError::TooMany(refusal.to_string()))
            }
            Err(refusal) => Err(ProcessApiError::CannotStart(refusal.to_string())),
        }
    }

    async fn end(&self, id: &str) -> Result<(), ProcessApiError> {
        let (pid, number) = parts_of(id).ok_or(ProcessApiError::Unknown)?;
        if pid != std::process::id() {
            let why = format!(
                "process {pid} has started it, for its own client: it can be looked at and nothing else"
            );
            return Err(ProcessApiError::Forbidden(why));
        }
        if self.terminals.end(number) { Ok(()) } else { Err(ProcessApiError::Unknown) }
    }

    async fn look(&self, id: &str) -> Result<Box<dyn ProcessViewer>, ProcessApiError> {
        let (pid, number) = parts_of(id).ok_or(ProcessApiError::Unknown)?;
        if pid != std::process::id() {
            return watch_shared_process(&self.home, pid, number).await.ok_or(ProcessApiError::Unknown);
        }
        let view = self.terminals.view(number);
        view.map(|view| Box::new(View(view)) as _).ok_or(ProcessApiError::Unknown)
    }
}

struct View(TerminalView);

#[async_trait]
impl ProcessViewer for View {
    async fn next(&mut self) -> Option<ViewerEvent> {
        Some(match self.0.next().await? {
            TerminalEvent::Output(bytes) => ViewerEvent::Output(bytes),
            TerminalEvent::Ended(ending) => ViewerEvent::Exited(exit_code(ending)),
        })
    }

    fn write(&mut self, bytes: Vec<u8>) -> bool {
        self.0.write(bytes)
    }

    fn resize(&mut self, size: TerminalSize) {
        self.0.resize(TerminalDimensions { columns: size.cols, rows: size.rows });
    }
}

fn line(terminal: TerminalInfo) -> ProcessInfo {
    let program = terminal.command.first().map_or("", String::as_str);
    ProcessInfo {
        // Nobody has an id that another server gave.
        id: format!("{}-{}", std::process::id(), terminal.number),
        name: program.rsplit('/').next().unwrap_or(program).to_owned(),
        door: DOOR.to_owned(),
        pid: terminal.pid,
        tty: true,
        running: terminal.ending.is_none(),
        exit_code: terminal.ending.and_then(exit_code),
        started: terminal.started.rfc3339(),
        cols: terminal.size.columns,
        rows: terminal.size.rows,
        command: terminal.command,
        here: true,
    }
}

/// The process whose it is, and the number that it has there.
fn parts_of(id: &str) -> Option<(u32, u64)> {
    let (pid, number) = id.split_once('-')?;
    Some((pid.parse().ok()?, number.parse().ok()?))
}
