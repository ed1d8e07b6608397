//! The sessions there are, as a list and one by one.

use async_trait::async_trait;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Serialize;

use super::answer::{empty, json, text};
use super::arrival::first;
use super::site::Shared;

/// How many sessions are listed if nobody says how many.
pub const DEFAULT_SESSIONS: usize = 20;

/// How many sessions one answer lists at most.
pub const MAX_SESSIONS: usize = 100;

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionLine {
    /// Its id.
    pub id: String,
    /// What people call it.
    pub title: String,
    /// How it began.
    pub preview: String,
    /// How many messages there are.
    pub message_count: u64,
    /// When it was created, by RFC 3339.
    pub created: String,
    /// When it was used last, by RFC 3339.
    pub updated: String,
}

/// A message of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SaidMessage {
    /// `user` or `assistant`.
    pub role: &'static str,
    /// What was said.
    pub content: String,
}

/// What was said in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionText {
    /// Its id.
    pub id: String,
    /// All messages, the first one first.
    pub messages: Vec<SaidMessage>,
    /// What earlier messages were shortened to; empty if none were.
    pub summary: String,
    /// When it was created, by RFC 3339.
    pub created: String,
    /// When it was used last, by RFC 3339.
    pub updated: String,
}

/// Why a session could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveFlaw {
    /// There is none of that id.
    Unknown,
    /// Somebody uses it.
    Busy(String),
    /// It cannot be read or written.
    Trouble(String),
}

/// Where sessions are kept.
#[async_trait]
pub trait Archive: Send + Sync {
    /// Sessions, the last used first, without the first `offset` of them.
    async fn list(&self, offset: usize, limit: usize) -> Result<Vec<SessionLine>, ArchiveFlaw>;

    /// What was said in a session.
    async fn read(&self, id: &str) -> Result<SessionText, ArchiveFlaw>;

    /// Deletes a session.
    async fn delete(&self, id: &str) -> Result<(), ArchiveFlaw>;

    /// Whether it can be used.
    async fn is_ready(&self) -> bool {
        self.list(0, 1).await.is_ok()
    }
}

pub(super) async fn list(State(site): State<Shared>, parts: Parts) -> Response {
    let query = parts.uri.query().unwrap_or_default();
    let number = |name, default| match first(query, name) {
        Some(value) => std::str::from_utf8(&value).ok().and_then(|value| value.parse::<usize>().ok()),
        None => Some(default),
    };
    let (Some(offset), Some(limit)) = (number("offset", 0), number("limit", DEFAULT_SESSIONS)) else {
        return text(StatusCode::BAD_REQUEST, "offset and limit are whole numbers");
    };
    match site.web.archive.list(offset, limit.min(MAX_SESSIONS)).await {
        Ok(sessions) => json(StatusCode::OK, &sessions),
        Err(flaw) => refused(flaw),
    }
}

pub(super) async fn read(State(site): State<Shared>, Path(id): Path<String>) -> Response {
    match site.web.archive.read(&id).await {
        Ok(session) => json(StatusCode::OK, &session),
        Err(flaw) => refused(flaw),
    }
}

pub(super) async fn delete(State(site): State<Shared>, Path(id): Path<String>) -> Response {
    match site.web.archive.delete(&id).await {
        Ok(()) => empty(StatusCode::NO_CONTENT),
        Err(flaw) => refused(flaw),
    }
}

fn refused(flaw: ArchiveFlaw) -> Response {
    match flaw {
        ArchiveFlaw::Unknown => text(StatusCode::NOT_FOUND, "session not found"),
        ArchiveFlaw::Busy(why) => text(StatusCode::CONFLICT, &why),
        ArchiveFlaw::Trouble(why) => {
            tracing::warn!(why, "sessions cannot be had");
            text(StatusCode::INTERNAL_SERVER_ERROR, &why)
        }
    }
}
