//! Processes that can be looked at: the terminals of this server, and what other processes show of theirs.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use parlor_transport::{ProcessInfo, ProcessViewer, TerminalSize};
use serde::Deserialize;

use crate::answer::{empty, json, text};
use crate::id::Id;
use crate::outflow::Outflow;
use crate::site::Shared;

/// Why something cannot be done with a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessApiError {
    /// There is none of that id.
    Unknown,
    /// It is not for whoever asks.
    Forbidden(String),
    /// It cannot be started.
    CannotStart(String),
    /// There are too many.
    TooMany(String),
}

/// Where processes are.
#[async_trait]
pub trait ProcessTable: Send + Sync {
    /// All that can be looked at.
    async fn list(&self) -> Vec<ProcessInfo>;

    /// Starts a program on a terminal of this server, or the user's shell.
    async fn start(
        &self,
        command: Option<Vec<String>>,
        size: TerminalSize,
    ) -> Result<ProcessInfo, ProcessApiError>;

    /// Ends a process of this server; one that has ended is forgotten.
    async fn end(&self, id: &str) -> Result<(), ProcessApiError>;

    /// Begins to look at one.
    async fn look(&self, id: &str) -> Result<Box<dyn ProcessViewer>, ProcessApiError>;
}

pub(crate) async fn list(
    State(site): State<Shared>,
    Extension(outflow): Extension<Arc<Outflow>>,
) -> Response {
    outflow.json(&site.web.processes.list().await, site.web.settings.limits.answer_wait).await
}

pub(crate) async fn start(State(site): State<Shared>, body: Bytes) -> Response {
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

pub(crate) async fn end(State(site): State<Shared>, Id(id): Id) -> Response {
    match site.web.processes.end(&id).await {
        Ok(()) => empty(StatusCode::NO_CONTENT),
        Err(flaw) => refused(&flaw),
    }
}

pub(crate) fn refused(flaw: &ProcessApiError) -> Response {
    match flaw {
        ProcessApiError::Unknown => text(StatusCode::NOT_FOUND, "process not found"),
        ProcessApiError::Forbidden(why) => text(StatusCode::FORBIDDEN, why),
        ProcessApiError::CannotStart(why) => text(StatusCode::BAD_REQUEST, why),
        ProcessApiError::TooMany(why) => text(StatusCode::CONFLICT, why),
    }
}
