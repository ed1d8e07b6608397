//! The processes that clients can watch: terminals of this server, and processes that other parlor servers share.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use parlor_process::{OutputChunk, TerminalDimensions, TerminalEvent, TerminalInfo, TerminalView, Terminals};
use parlor_transport::{
    ProcessInfo, ProcessViewer, TerminalSize, ViewerEvent, exit_code, list_shared_processes,
    watch_shared_process,
};
use parlor_vocab::{Clock, ProcessRefusal};

/// The program that a terminal runs if neither the client nor `SHELL` names one.
const SHELL: &str = "/bin/sh";

/// The variables that tell programs what our terminals can do.
const TERMINAL_VARIABLES: [(&str, &str); 2] = [("TERM", "xterm-256color"), ("COLORTERM", "truecolor")];

/// The door that the list names for our terminals.
const DOOR: &str = "supr";

/// Why the API cannot do what a client asks of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessApiError {
    /// There is no process with that id.
    Unknown,
    /// The client may not do this.
    Forbidden(String),
    /// The program cannot be started.
    CannotStart(String),
    /// As many terminals run as may.
    TooMany(String),
}

/// Starts, lists, ends and watches processes for the HTTP API.
pub struct ProcessApi {
    terminals: Terminals,
    shell: String,
    /// The state folder, where other servers share their processes.
    state_folder: PathBuf,
    /// Whether clients may start terminals, or only watch.
    may_start: bool,
}

impl ProcessApi {
    /// Terminals start in `folder` with the environment `env`. Processes of other servers are found in `state_folder`.
    pub fn new(
        folder: PathBuf,
        mut env: Vec<(String, String)>,
        state_folder: PathBuf,
        may_start: bool,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let shell = env.iter().find(|(name, _)| name == "SHELL").map(|(_, shell)| shell.clone());
        let shell = shell.filter(|shell| !shell.is_empty()).unwrap_or_else(|| SHELL.to_owned());
        env.retain(|(name, _)| !TERMINAL_VARIABLES.iter().any(|(ours, _)| ours == name));
        env.extend(TERMINAL_VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())));
        Self { terminals: Terminals::new(folder, env, clock), shell, state_folder, may_start }
    }

    /// Ends all terminals, and waits until they are gone.
    pub async fn close(&self) {
        self.terminals.close().await;
    }

    /// All processes that a client can watch.
    pub(crate) async fn list(&self) -> Vec<ProcessInfo> {
        let mut processes: Vec<ProcessInfo> = self.terminals.list().into_iter().map(process_info).collect();
        processes.extend(list_shared_processes(&self.state_folder).await);
        processes
    }

    /// Starts `command` on a terminal of this server, or the user's shell.
    pub(crate) fn start(
        &self,
        command: Option<Vec<String>>,
        size: TerminalSize,
    ) -> Result<ProcessInfo, ProcessApiError> {
        if !self.may_start {
            let reason = "[channels.supr] of parlor.toml lets nobody do this here: it has terminals = false, or allow_from without \"supr-user\"";
            return Err(ProcessApiError::Forbidden(reason.to_owned()));
        }
        let command =
            command.filter(|command| !command.is_empty()).unwrap_or_else(|| vec![self.shell.clone()]);
        match self.terminals.start(command, TerminalDimensions { columns: size.cols, rows: size.rows }) {
            Ok(started) => Ok(process_info(started)),
            Err(refusal) if matches!(refusal, ProcessRefusal::TooManyProcesses { .. }) => {
                Err(ProcessApiError::TooMany(refusal.to_string()))
            }
            Err(refusal) => Err(ProcessApiError::CannotStart(refusal.to_string())),
        }
    }

    /// Ends a terminal of this server. One that has ended already leaves the list.
    pub(crate) fn end(&self, id: &str) -> Result<(), ProcessApiError> {
        let (pid, number) = server_and_number(id).ok_or(ProcessApiError::Unknown)?;
        if pid != std::process::id() {
            let reason = format!(
                "process {pid} has started it, for its own client: it can be looked at and nothing else"
            );
            return Err(ProcessApiError::Forbidden(reason));
        }
        if self.terminals.end(number) { Ok(()) } else { Err(ProcessApiError::Unknown) }
    }

    /// Starts to watch a process, from the offset `after` on, or from the oldest output that is left of it.
    pub(crate) async fn watch(
        &self,
        id: &str,
        after: Option<u64>,
    ) -> Result<Box<dyn ProcessViewer>, ProcessApiError> {
        let (pid, number) = server_and_number(id).ok_or(ProcessApiError::Unknown)?;
        if pid != std::process::id() {
            return watch_shared_process(&self.state_folder, pid, number, after)
                .await
                .ok_or(ProcessApiError::Unknown);
        }
        let view = self.terminals.view(number, after).ok_or(ProcessApiError::Unknown)?;
        Ok(Box::new(TerminalViewer { start_offset: view.offset(), view }))
    }
}

struct TerminalViewer {
    start_offset: u64,
    view: TerminalView,
}

#[async_trait]
impl ProcessViewer for TerminalViewer {
    fn start_offset(&self) -> Option<u64> {
        Some(self.start_offset)
    }

    async fn next(&mut self) -> Option<ViewerEvent> {
        Some(match self.view.next().await? {
            TerminalEvent::Output(OutputChunk { offset, bytes }) => {
                ViewerEvent::Output { offset: Some(offset), bytes }
            }
            TerminalEvent::Ended(ending) => ViewerEvent::Exited(exit_code(ending)),
        })
    }

    fn write(&mut self, bytes: Vec<u8>) -> bool {
        self.view.write(bytes)
    }

    fn resize(&mut self, size: TerminalSize) {
        self.view.resize(TerminalDimensions { columns: size.cols, rows: size.rows });
    }
}

fn process_info(terminal: TerminalInfo) -> ProcessInfo {
    let program = terminal.command.first().map_or("", String::as_str);
    ProcessInfo {
        // With the pid of this server, so that no two servers give the same id.
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

/// The pid of the server in an id, and the number that the server gave to the process.
fn server_and_number(id: &str) -> Option<(u32, u64)> {
    let (pid, number) = id.split_once('-')?;
    Some((pid.parse().ok()?, number.parse().ok()?))
}
