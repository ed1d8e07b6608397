//! Processes that can be looked at: the terminals of this server, and what other processes show of theirs.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::answer::{empty, json, text};
use super::id::Id;
use super::outflow::Outflow;
use super::site::Shared;

/// The most columns and rows of a terminal.
pub const MAX_TERMINAL_SIDE: u16 = 1000;

/// A process in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLine {
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
    pub(super) fn bounded(cols: u64, rows: u64) -> Self {
        let side = |side: u64| u16::try_from(side).unwrap_or(u16::MAX).clamp(1, MAX_TERMINAL_SIDE);
        Self { cols: side(cols), rows: side(rows) }
    }
}

/// Why something cannot be done with a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessFlaw {
    /// There is none of that id.
    Unknown,
    /// It is not for whoever asks.
    Forbidden(String),
    /// It cannot be started.
    CannotStart(String),
    /// There are too many.
    TooMany(String),
}

/// What is seen of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Something that it wrote.
    Output(Vec<u8>),
    /// It is over.
    Exited(Option<i32>),
}

/// One who looks at a process.
#[async_trait]
pub trait Onlooker: Send {
    /// Waits for the next thing to see; none when there will be nothing more. Cancel safe.
    async fn next(&mut self) -> Option<Sight>;

    /// Types, and says whether that was taken.
    fn write(&mut self, bytes: Vec<u8>) -> bool;

    /// Gives the terminal another size.
    fn resize(&mut self, size: TerminalSize);
}

/// Where processes are.
#[async_trait]
pub trait ProcessTable: Send + Sync {
    /// All that can be looked at.
    async fn list(&self) -> Vec<ProcessLine>;

    /// Starts a program on a terminal of this server, or the user's shell.
    async fn start(
        &self,
        command: Option<Vec<String>>,
        size: TerminalSize,
    ) -> Result<ProcessLine, ProcessFlaw>;

    /// Ends a process of this server; one that has ended is forgotten.
    async fn end(&self, id: &str) -> Result<(), ProcessFlaw>;

    /// Begins to look at one.
    async fn look(&self, id: &str) -> Result<Box<dyn Onlooker>, ProcessFlaw>;
}

pub(super) async fn list(
    State(site): State<Shared>,
    Extension(outflow): Extension<Arc<Outflow>>,
) -> Response {
    outflow.json(&site.web.processes.list().await, site.web.settings.limits.answer_wait).await
}

pub(super) async fn start(State(site): State<Shared>, body: Bytes) -> Response {
    #[derive(Default, Deserialize)]
    struct Wanted {
        command: Option<Vec<String>>,
        cols: Option<u64>,
        rows: Option<u64>,
    }
    let wanted = if body.is_empty() { Ok(Wanted::default()) } else { serde_json::from_slice(&body) };
    let Ok(Wanted { command, cols, rows }) = wanted else {
        let what = "the body is {\"command\":[\"PROGRAM\",\"ARGUMENT\"…],\"cols\":80,\"rows\":24}; all of it may be left out";
        return text(StatusCode::BAD_REQUEST, what);
    };
    let size = TerminalSize::bounded(cols.unwrap_or(80), rows.unwrap_or(24));
    match site.web.processes.start(command, size).await {
        Ok(line) => json(StatusCode::CREATED, &line),
        Err(flaw) => refused(&flaw),
    }
}

pub(super) async fn end(State(site): State<Shared>, Id(id): Id) -> Response {
    match site.web.processes.end(&id).await {
        Ok(()) => empty(StatusCode::NO_CONTENT),
        Err(flaw) => refused(&flaw),
    }
}

pub(super) fn refused(flaw: &ProcessFlaw) -> Response {
    match flaw {
        ProcessFlaw::Unknown => text(StatusCode::NOT_FOUND, "process not found"),
        ProcessFlaw::Forbidden(why) => text(StatusCode::FORBIDDEN, why),
        ProcessFlaw::CannotStart(why) => text(StatusCode::BAD_REQUEST, why),
        ProcessFlaw::TooMany(why) => text(StatusCode::CONFLICT, why),
    }
}
