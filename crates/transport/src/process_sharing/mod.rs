//! Process sharing: other parlor processes of the same user can watch the processes of an exec door on stdio, over a Unix
//! socket in the state folder.
//!
//! `server.rs` shares the processes of an exec connection; `client.rs` lists and watches the processes that others share;
//! `socket_folder.rs` has the names of the sockets between them.
//! Watching never slows a process down, and a viewer in another parlor process can neither type nor end the process.

mod client;
mod server;
mod socket_folder;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use client::{
    MAX_SHARING_LINE_BYTES, MAX_SHARING_SERVERS, SHARING_WAIT, list_shared_processes, watch_shared_process,
};
pub use server::{MAX_VIEWER_REQUEST_BYTES, MAX_VIEWERS, SharedProcesses, VIEWER_WAIT, exit_code};
pub use socket_folder::{SOCKET_FOLDER, remove_stale_sockets};

/// The most columns and the most rows of a terminal.
pub const MAX_TERMINAL_SIDE: u16 = 1000;

/// A process as the list of processes shows it, to viewers over the socket and to the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Unique among all parlor processes of the user: the pid of the sharing process, a dash, and a counter.
    pub id: String,
    /// The process id that the client of the door has chosen.
    pub name: String,
    /// The door through which the process was started.
    pub door: String,
    /// The operating system's process id.
    pub pid: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether the process has a terminal.
    pub tty: bool,
    /// False once the process has exited.
    pub running: bool,
    /// The exit code of a process that has exited; see [`exit_code`].
    pub exit_code: Option<i32>,
    /// When the process was started, as RFC 3339.
    pub started: String,
    /// The columns of its terminal.
    pub cols: u16,
    /// The rows of its terminal.
    pub rows: u16,
    /// Whether this server started the process. A process of another parlor process can only be watched.
    pub here: bool,
}

/// A terminal's size in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns, from 1 to [`MAX_TERMINAL_SIDE`].
    pub cols: u16,
    /// Rows, from 1 to [`MAX_TERMINAL_SIDE`].
    pub rows: u16,
}

impl TerminalSize {
    /// A size whose sides are clamped to 1 and [`MAX_TERMINAL_SIDE`].
    pub fn bounded(cols: u64, rows: u64) -> Self {
        let side = |side: u64| u16::try_from(side).unwrap_or(u16::MAX).clamp(1, MAX_TERMINAL_SIDE);
        Self { cols: side(cols), rows: side(rows) }
    }
}

/// What a viewer sees of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewerEvent {
    /// The process wrote output.
    Output {
        /// How many bytes the process wrote before these. None if the process is shared by an older parlor, which does not
        /// tell.
        offset: Option<u64>,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The process has exited, with this code if it has one; see [`exit_code`].
    Exited(Option<i32>),
}

/// A view on one running process.
#[async_trait]
pub trait ProcessViewer: Send {
    /// The offset at which the view begins. None if the process is shared by an older parlor, which does not tell; such a
    /// view begins with the oldest output that is left.
    fn start_offset(&self) -> Option<u64>;

    /// Waits for the next event. None after the exit, or if the connection to the process is lost. Cancel safe.
    async fn next(&mut self) -> Option<ViewerEvent>;

    /// Writes to the terminal of the process. Returns whether the bytes were accepted.
    fn write(&mut self, bytes: Vec<u8>) -> bool;

    /// Changes the size of the terminal.
    fn resize(&mut self, size: TerminalSize);
}
