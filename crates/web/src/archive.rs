//! The sessions there are, as a list and one by one.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::answer::{empty, json, text};
use crate::arrival::first;
use crate::files::StoredFile;
use crate::id::Id;
use crate::outflow::{NoMemory, Outflow};
use crate::site::Shared;
use crate::usage::UsageReport;

/// How many sessions are listed if nobody says how many.
pub const DEFAULT_SESSIONS: usize = 20;

/// How many sessions one answer lists at most.
pub const MAX_SESSIONS: usize = 100;

/// How many sessions are looked at for words, the last used first.
pub const MAX_SEARCHED: usize = 2000;

/// How many events of a session are given if nobody says how many.
pub const DEFAULT_EVENTS: usize = 200;

/// How many events of a session one answer has at most.
pub const MAX_EVENTS: usize = 1000;

/// How many bytes the events of one answer have at most. An event that alone has more is shortened.
pub const MAX_EVENTS_BYTES: usize = 8 << 20;

/// How many bytes the messages of one answer have at most, as JSON. Older ones are left out.
pub const MAX_SESSION_TEXT_BYTES: usize = 8 << 20;

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionInfo {
    /// Its id.
    pub id: String,
    /// What people call it, cut if it is long.
    pub title: String,
    /// The title that it was given, whole; none if it was given none.
    pub full_title: Option<String>,
    /// How it began.
    pub preview: String,
    /// How many messages there are.
    pub message_count: u64,
    /// When it was created, by RFC 3339.
    pub created: String,
    /// When it was used last, by RFC 3339.
    pub updated: String,
    /// The door that it came through.
    pub door: String,
    /// The agent that was chosen for it; empty if none was.
    pub agent_id: String,
    /// Whether a run is under way.
    pub running: bool,
    /// How many inputs wait for it; 0 where another process knows.
    pub queued: usize,
    /// Whether this server may write to it: no other process has it.
    pub here: bool,
    /// What happened last.
    pub last_event: Option<LastEvent>,
}

/// What happened last in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastEvent {
    /// Its type.
    pub event_type: &'static str,
    /// Why a run failed, or that it was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When it happened, by RFC 3339.
    pub timestamp: String,
}

/// A message of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageText {
    /// `user` or `assistant`.
    pub role: &'static str,
    /// What was said.
    pub content: String,
}

/// What was said in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionTranscript {
    /// Its id.
    pub id: String,
    /// The messages, the first one first.
    pub messages: Vec<MessageText>,
    /// Whether older messages are left out, since there are more than [`MAX_SESSION_TEXT_BYTES`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// What earlier messages were shortened to; empty if none were.
    pub summary: String,
    /// When it was created, by RFC 3339.
    pub created: String,
    /// When it was used last, by RFC 3339.
    pub updated: String,
}

/// A part of what happened in a session.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EventPage {
    /// The frames, the oldest first, as the socket shows them.
    pub events: Vec<Box<RawValue>>,
    /// What comes before this place is not here; none if nothing does.
    pub before: Option<u64>,
    /// The last event that was looked at, from which a socket goes on.
    pub last_event_id: Option<String>,
}

/// Why a session could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveError {
    /// There is none of that id.
    Unknown,
    /// What is asked for cannot be.
    Wrong(String),
    /// Somebody uses it.
    Busy(String),
    /// It cannot be read or written.
    Trouble(String),
}

/// Where sessions are kept.
#[async_trait]
pub trait Archive: Send + Sync {
    /// Sessions, the last used first, without the first `offset` of them. Only those with `words` in their id, their
    /// title or what was said first, in any case; the last [`MAX_SEARCHED`] are looked at.
    async fn list(&self, words: &str, offset: usize, limit: usize) -> Result<Vec<SessionInfo>, ArchiveError>;

    /// Gives a session another title.
    async fn rename(&self, id: &str, title: &str) -> Result<SessionInfo, ArchiveError>;

    /// What was said in a session: the newest messages, as far as they have no more than [`MAX_SESSION_TEXT_BYTES`].
    async fn read(&self, id: &str) -> Result<SessionTranscript, ArchiveError>;

    /// The last `limit` things that happened in a session before the place `before`, or until now. Fewer, if
    /// they have more than [`MAX_EVENTS_BYTES`] bytes.
    async fn events(&self, id: &str, before: Option<u64>, limit: usize) -> Result<EventPage, ArchiveError>;

    /// What was used on the last `days` days, today among them.
    async fn usage(&self, days: usize) -> Result<UsageReport, ArchiveError>;

    /// A file that came along with a message.
    async fn media(&self, id: &str) -> Result<StoredFile, ArchiveError>;

    /// Deletes a session.
    async fn delete(&self, id: &str) -> Result<(), ArchiveError>;

    /// Whether messages can be recorded, or why not. Asked as often as anybody likes.
    async fn readiness(&self) -> Result<(), String>;
}

pub(crate) async fn list(
    State(site): State<Shared>,
    Extension(outflow): Extension<Arc<Outflow>>,
    parts: Parts,
) -> Response {
    let (Ok(offset), Ok(limit)) = (number(&parts, "offset"), number(&parts, "limit")) else {
        return text(StatusCode::BAD_REQUEST, "offset and limit are whole numbers");
    };
    let limit = limit.map_or(DEFAULT_SESSIONS, |limit| limit.min(MAX_SESSIONS));
    let words = first(parts.uri.query().unwrap_or_default(), "q").unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    match site.web.archive.list(words.trim(), offset.unwrap_or(0), limit).await {
        Ok(sessions) => outflow.json(&sessions, site.web.settings.limits.answer_wait).await,
        Err(flaw) => refused(flaw),
    }
}

pub(crate) async fn read(
    State(site): State<Shared>,
    Extension(outflow): Extension<Arc<Outflow>>,
    Id(id): Id,
) -> Response {
    let Ok(_turn) = site.turn().await else { return NoMemory::response() };
    match site.web.archive.read(&id).await {
        Ok(session) => outflow.json(&session, site.web.settings.limits.answer_wait).await,
        Err(flaw) => refused(flaw),
    }
}

pub(crate) async fn rename(State(site): State<Shared>, Id(id): Id, body: Bytes) -> Response {
    #[derive(Deserialize)]
    struct Renamed {
        title: String,
    }
    let Ok(Renamed { title }) = serde_json::from_slice(&body) else {
        return text(StatusCode::BAD_REQUEST, "the body is {\"title\":\"…\"}");
    };
    match site.web.archive.rename(&id, &title).await {
        Ok(line) => json(StatusCode::OK, &line),
        Err(flaw) => refused(flaw),
    }
}

pub(crate) async fn events(
    State(site): State<Shared>,
    Extension(outflow): Extension<Arc<Outflow>>,
    Id(id): Id,
    parts: Parts,
) -> Response {
    let (Ok(before), Ok(limit)) = (number(&parts, "before"), number(&parts, "limit")) else {
        return text(StatusCode::BAD_REQUEST, "before and limit are whole numbers");
    };
    let limit = limit.map_or(DEFAULT_EVENTS, |limit| limit.clamp(1, MAX_EVENTS));
    let Ok(_turn) = site.turn().await else { return NoMemory::response() };
    match site.web.archive.events(&id, before.map(|before| before as u64), limit).await {
        Ok(page) => outflow.json(&page, site.web.settings.limits.answer_wait).await,
        Err(flaw) => refused(flaw),
    }
}

pub(crate) async fn delete(State(site): State<Shared>, Id(id): Id) -> Response {
    match site.web.archive.delete(&id).await {
        Ok(()) => empty(StatusCode::NO_CONTENT),
        Err(flaw) => refused(flaw),
    }
}

/// A number in the query; none if it is not there.
pub(crate) fn number(parts: &Parts, name: &str) -> Result<Option<usize>, ()> {
    match first(parts.uri.query().unwrap_or_default(), name) {
        Some(value) => {
            let value = std::str::from_utf8(&value).map_err(|_| ())?;
            value.parse().map(Some).map_err(|_| ())
        }
        None => Ok(None),
    }
}

pub(crate) fn refused(flaw: ArchiveError) -> Response {
    match flaw {
        ArchiveError::Unknown => text(StatusCode::NOT_FOUND, "session not found"),
        ArchiveError::Wrong(why) => text(StatusCode::BAD_REQUEST, &why),
        ArchiveError::Busy(why) => text(StatusCode::CONFLICT, &why),
        ArchiveError::Trouble(why) => {
            tracing::warn!(why, "sessions cannot be had");
            text(StatusCode::INTERNAL_SERVER_ERROR, &why)
        }
    }
}
