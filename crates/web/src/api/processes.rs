//! Processes over HTTP: list them, start one on a terminal, end one.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use parlor_transport::TerminalSize;
use serde::Deserialize;

use super::path_id::PathId;
use super::terminals::ProcessApiError;
use crate::response::{empty, json, text};
use crate::response_memory::ResponseMemory;
use crate::site::Site;

pub(crate) async fn list(
    State(site): State<Arc<Site>>,
    Extension(memory): Extension<Arc<ResponseMemory>>,
) -> Response {
    memory.json(&site.deps.processes.list().await, site.deps.settings.limits.answer_wait).await
}

pub(crate) async fn start(State(site): State<Arc<Site>>, body: Bytes) -> Response {
    #[derive(Default, Deserialize)]
    struct NewProcess {
        command: Option<Vec<String>>,
        cols: Option<u64>,
        rows: Option<u64>,
    }
    let new_process = if body.is_empty() { Ok(NewProcess::default()) } else { serde_json::from_slice(&body) };
    let Ok(NewProcess { command, cols, rows }) = new_process else {
        let usage = "the body is {\"command\":[\"PROGRAM\",\"ARGUMENT\"…],\"cols\":80,\"rows\":24}; all of it may be left out";
        return text(StatusCode::BAD_REQUEST, usage);
    };
    let size = TerminalSize::bounded(cols.unwrap_or(80), rows.unwrap_or(24));
    match site.deps.processes.start(command, size) {
        Ok(started) => json(StatusCode::CREATED, &started),
        Err(error) => error.response(),
    }
}

pub(crate) async fn end(State(site): State<Arc<Site>>, PathId(id): PathId) -> Response {
    match site.deps.processes.end(&id) {
        Ok(()) => empty(StatusCode::NO_CONTENT),
        Err(error) => error.response(),
    }
}

impl ProcessApiError {
    pub(super) fn response(&self) -> Response {
        match self {
            Self::Unknown => text(StatusCode::NOT_FOUND, "process not found"),
            Self::Forbidden(reason) => text(StatusCode::FORBIDDEN, reason),
            Self::CannotStart(reason) => text(StatusCode::BAD_REQUEST, reason),
            Self::TooMany(reason) => text(StatusCode::CONFLICT, reason),
        }
    }
}
