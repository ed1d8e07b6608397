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
use crate::body::json_object;
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
        cols: Option<Cells>,
        rows: Option<Cells>,
    }
    let new_process = if body.is_empty() { Ok(NewProcess::default()) } else { json_object(&body) };
    let Ok(NewProcess { command, cols, rows }) = new_process else {
        let usage = "the body is {\"command\":[\"PROGRAM\",\"ARGUMENT\"…],\"cols\":80,\"rows\":24}; all of it may be left out";
        return text(StatusCode::BAD_REQUEST, usage);
    };
    if command.iter().flatten().any(|argument| argument.contains('\0')) {
        return text(
            StatusCode::BAD_REQUEST,
            "the command has a NUL character, which no argument of a program may have",
        );
    }
    let size = TerminalSize::bounded(cols.map_or(80, |cols| cols.0), rows.map_or(24, |rows| rows.0));
    match site.deps.processes.start(command, size) {
        Ok(started) => json(StatusCode::CREATED, &started),
        Err(error) => error.response(),
    }
}

/// A number of columns or rows. JSON has one kind of numbers, so `80.0` is the same as `80`.
#[derive(Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Cells(pub(super) u64);

impl TryFrom<f64> for Cells {
    type Error = &'static str;

    fn try_from(number: f64) -> Result<Self, Self::Error> {
        if number < 0.0 || number.fract() != 0.0 {
            return Err("not a whole number of columns or rows");
        }
        // The conversion saturates, and the terminal has fewer cells anyway.
        Ok(Self(number as u64))
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
            // Not the fault of the request: on another machine, or later, the program may be there.
            Self::CannotStart(reason) | Self::TooMany(reason) => text(StatusCode::CONFLICT, reason),
        }
    }
}
