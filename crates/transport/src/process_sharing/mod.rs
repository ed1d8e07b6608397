//! Processes of one parlor process that others of the same user may watch, over a Unix socket in the state folder.
//!
//! [`server`](self) shares the processes of an exec connection; `client.rs` lists and watches what others share. Watching
//! never slows a process down, and whoever watches another process's child can neither type nor end it.

mod client;
mod server;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use client::{
    MAX_SHARING_LINE_BYTES, MAX_SHARING_SERVERS, SHARING_WAIT, list_shared_processes, watch_shared_process,
};
pub use server::{MAX_VIEWER_REQUEST_BYTES, MAX_VIEWERS, SharedProcesses, VIEWER_WAIT, exit_code};

/// The most columns and rows of a terminal.
pub const MAX_TERMINAL_SIDE: u16 = 1000;

/// A process in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Its id.
    pub id: String,
    /// What it is called where it was started.
    pub name: String,
    /// The door that it came through.
    pub door: String,
    /// Its number in the system.
    pub pid: u32,
    /// The program with its arguments.
    pub command: Vec<String>,
    /// Whether it is on a terminal.
    pub tty: bool,
    /// Whether it runs.
    pub running: bool,
    /// What it ended with, if it has and there is a number for it.
    pub exit_code: Option<i32>,
    /// When it was started, by RFC 3339.
    pub started: String,
    /// How wide its terminal is.
    pub cols: u16,
    /// How high its terminal is.
    pub rows: u16,
    /// Whether this server started it: what is another's can be looked at and nothing else.
    pub here: bool,
}

/// A terminal's size in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Characters in a line.
    pub cols: u16,
    /// Lines.
    pub rows: u16,
}

impl TerminalSize {
    /// Within what a terminal can be.
    pub fn bounded(cols: u64, rows: u64) -> Self {
        let side = |side: u64| u16::try_from(side).unwrap_or(u16::MAX).clamp(1, MAX_TERMINAL_SIDE);
        Self { cols: side(cols), rows: side(rows) }
    }
}

/// What is seen of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewerEvent {
    /// Something that it wrote.
    Output(Vec<u8>),
    /// It is over.
    Exited(Option<i32>),
}

/// One who looks at a process.
#[async_trait]
pub trait ProcessViewer: Send {
    /// Waits for the next thing to see; none when there will be nothing more. Cancel safe.
    async fn next(&mut self) -> Option<ViewerEvent>;

    /// Types, and says whether that was taken.
    fn write(&mut self, bytes: Vec<u8>) -> bool;

    /// Gives the terminal another size.
    fn resize(&mut self, size: TerminalSize);
}
