//! Sessions over HTTP: list, search, rename and delete them.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use parlor_doors::question_json;
use parlor_doors::supr::{error_code, event_type};
use parlor_engine::{SessionOwner, Sessions};
use parlor_log::{Erased, MAX_PAGE, PageRequest, SessionRecord};
use parlor_vocab::{RunEvent, Seq, SessionCommand, SessionEvent, SessionId, SessionRefusal, SessionUpdate};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::path_id::PathId;
use super::session_error::SessionApiError;
use crate::body::json_object;
use crate::query::{first, number};
use crate::response::{empty, json, text};
use crate::response_memory::ResponseMemory;
use crate::site::Site;

/// How many sessions one answer lists if the client does not say.
pub const DEFAULT_SESSIONS: usize = 20;

/// How many sessions one answer lists at most.
pub const MAX_SESSIONS: usize = 100;

/// How many sessions a search reads, the last used first.
pub const MAX_SEARCHED: usize = 2000;

/// How many characters of a title and of a preview the list shows.
const SHOWN_CHARS: usize = 60;

/// Among how many events at the start of a session the preview looks for the first message.
const PREVIEW_EVENTS: usize = 64;

/// The answer to a client that wants to delete a session with an active run.
const RUNNING: &str = "a run is under way in this session: stop it first, then delete the session";

/// Turns what a client sends into the title that a session gets, or says why it may not have that title.
pub type TitleCheck = fn(&str) -> Result<String, String>;

/// A session in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct SessionInfo {
    id: String,
    /// The title that it was given, else the preview; cut to [`SHOWN_CHARS`].
    title: String,
    /// The title that it was given, whole.
    full_title: Option<String>,
    /// The start of its first message.
    preview: String,
    message_count: u64,
    /// When it was created, as RFC 3339 writes it.
    created: String,
    /// When it was used last, as RFC 3339 writes it.
    updated: String,
    /// The door that it came through.
    door: String,
    /// The agent that was chosen for it; empty if none was.
    agent_id: String,
    running: bool,
    /// How many inputs wait for the active run to end; 0 if another process has the session open and it cannot be joined.
    queued: usize,
    /// Whether clients of this server can send to it: false if another process has it open and it cannot be joined.
    here: bool,
    last_event: Option<LastEvent>,
    /// The question that its run asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<Value>,
}

/// The newest event of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct LastEvent {
    event_type: &'static str,
    /// Why a run failed, or that it was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<String>,
    /// When it happened, as RFC 3339 writes it.
    timestamp: String,
}

pub(crate) async fn list(
    State(site): State<Arc<Site>>,
    Extension(memory): Extension<Arc<ResponseMemory>>,
    parts: Parts,
) -> Response {
    let (Ok(offset), Ok(limit)) = (number(&parts, "offset"), number(&parts, "limit")) else {
        return text(StatusCode::BAD_REQUEST, "offset and limit are whole numbers");
    };
    let limit = limit.map_or(DEFAULT_SESSIONS, |limit| limit.min(MAX_SESSIONS));
    let words = first(parts.uri.query().unwrap_or_default(), "q").unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    let found =
        find_sessions(&site.deps.sessions, words.trim(), offset.unwrap_or(0), limit, MAX_SEARCHED).await;
    match found {
        Ok(sessions) => memory.json(&sessions, site.deps.settings.limits.answer_wait).await,
        Err(error) => error.response(),
    }
}

pub(crate) async fn rename(State(site): State<Arc<Site>>, PathId(id): PathId, body: Bytes) -> Response {
    #[derive(Deserialize)]
    struct NewTitle {
        title: String,
    }
    let Ok(NewTitle { title }) = json_object(&body) else {
        return text(StatusCode::BAD_REQUEST, "the body is {\"title\":\"…\"}");
    };
    match rename_session(&site.deps.sessions, &id, &title, site.deps.check_title).await {
        Ok(info) => json(StatusCode::OK, &info),
        Err(error) => error.response(),
    }
}

pub(crate) async fn delete(State(site): State<Arc<Site>>, PathId(id): PathId) -> Response {
    match delete_session(&site.deps.sessions, &id).await {
        Ok(()) => empty(StatusCode::NO_CONTENT),
        Err(error) => error.response(),
    }
}

/// Lists sessions, the last used first, without the first `offset` of them. With `words`, only those that have the
/// words in their id, title or first message, in any case, among the last `max_searched`.
async fn find_sessions(
    sessions: &Sessions,
    words: &str,
    offset: usize,
    limit: usize,
    max_searched: usize,
) -> Result<Vec<SessionInfo>, SessionApiError> {
    let words = words.to_lowercase();
    let mut found = Vec::new();
    let (mut skip, mut after, mut searched) = (offset, None, 0);
    while found.len() < limit && (words.is_empty() || searched < max_searched) {
        let wanted = match words.is_empty() {
            true => skip.saturating_add(limit - found.len()),
            false => max_searched - searched,
        };
        let page = sessions.list(PageRequest { after, limit: wanted.min(MAX_PAGE) }).await?;
        searched += page.records.len();
        for record in &page.records {
            if found.len() == limit {
                break;
            }
            let matches = words.is_empty() || has_words(sessions, record, &words).await;
            match skip {
                _ if !matches => {}
                0 => found.push(session_info(sessions, record).await),
                _ => skip -= 1,
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    Ok(found)
}

async fn rename_session(
    sessions: &Sessions,
    id: &str,
    title: &str,
    check: TitleCheck,
) -> Result<SessionInfo, SessionApiError> {
    let id = SessionId::parse(id).map_err(|_| SessionApiError::Unknown)?;
    let title = check(title).map_err(SessionApiError::Invalid)?;
    let was_open = matches!(sessions.owner(&id).await, Ok(SessionOwner::ThisProcess { .. }));
    sessions.execute(&id, SessionCommand::Rename { title }).await?;
    if !was_open {
        // Closes it again, so that other processes can open it. A session that found work to do stays open.
        let _ = sessions.release(&id).await;
    }
    Ok(session_info(sessions, &sessions.record(&id).await?).await)
}

async fn delete_session(sessions: &Sessions, id: &str) -> Result<(), SessionApiError> {
    let id = SessionId::parse(id).map_err(|_| SessionApiError::Unknown)?;
    match sessions.delete(&id).await {
        Err(SessionRefusal::Busy { .. }) => Err(SessionApiError::Busy(RUNNING.to_owned())),
        Ok(Erased::Later) => {
            tracing::warn!(
                session = id.as_str(),
                "deleted the session; its text stays in parlor.db-wal until no reader uses that file any more"
            );
            Ok(())
        }
        deleted => Ok(deleted.map(|_| ())?),
    }
}

async fn session_info(sessions: &Sessions, record: &SessionRecord) -> SessionInfo {
    // A session that cannot be read is listed without a preview, so that clients can delete it.
    let first = if record.messages > 0 { first_message(sessions, &record.id).await } else { None };
    let preview = cut(&first.unwrap_or_default());
    let owner = sessions.owner(&record.id).await.unwrap_or(SessionOwner::OtherProcess);
    let queued = match owner {
        SessionOwner::ThisProcess { waiting } => waiting,
        SessionOwner::Nobody => sessions.left_inputs(record).await.unwrap_or(0),
        // Inputs wait only while a run is active. Of the log, nothing but the queue is kept in memory.
        SessionOwner::Peer if record.running.is_some() => {
            sessions.read_newest(&record.id, 0).await.map_or(0, |session| session.queue().len())
        }
        SessionOwner::Peer | SessionOwner::OtherProcess => 0,
    };
    SessionInfo {
        id: record.id.as_str().to_owned(),
        title: record.title.as_deref().map_or_else(|| preview.clone(), cut),
        full_title: record.title.clone(),
        preview,
        message_count: record.messages,
        created: record.created.rfc3339(),
        updated: record.updated.rfc3339(),
        door: record.door.clone(),
        agent_id: record.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
        // If no process has it open, its run was interrupted.
        running: record.running.is_some() && owner != SessionOwner::Nobody,
        queued,
        here: owner != SessionOwner::OtherProcess,
        last_event: last_event(sessions, record).await,
        question: sessions.pending_question(record).await.ok().flatten().as_ref().map(question_json),
    }
}

/// Whether a session has `words`, which are in lower case, where the list shows text.
async fn has_words(sessions: &Sessions, record: &SessionRecord, words: &str) -> bool {
    let is_in = |text: &str| text.to_lowercase().contains(words);
    is_in(record.id.as_str())
        || record.title.as_deref().is_some_and(is_in)
        || record.messages > 0 && first_message(sessions, &record.id).await.as_deref().is_some_and(is_in)
}

async fn last_event(sessions: &Sessions, record: &SessionRecord) -> Option<LastEvent> {
    let mut watcher = sessions.watch(&record.id, Seq(record.head.0.saturating_sub(1))).await;
    match watcher.try_next().await.ok()?? {
        SessionUpdate::Entry(entry) => Some(LastEvent {
            event_type: event_type(&entry),
            error_code: error_code(&entry).map(str::to_owned),
            timestamp: entry.at.rfc3339(),
        }),
        SessionUpdate::Delta { .. } => None,
    }
}

/// The text of the first message to an agent, without reading the whole session.
async fn first_message(sessions: &Sessions, id: &SessionId) -> Option<String> {
    let mut watcher = sessions.watch(id, Seq::START).await;
    for _ in 0..PREVIEW_EVENTS {
        let SessionUpdate::Entry(entry) = watcher.try_next().await.ok()?? else { continue };
        if let SessionEvent::Run { event: RunEvent::Started { input, .. }, .. } = &entry.event {
            return Some(input.text.clone());
        }
    }
    None
}

fn cut(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= SHOWN_CHARS {
        return text.to_owned();
    }
    text.chars().take(SHOWN_CHARS).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use parlor_engine::{Agents, MediaStore, SessionDeps};
    use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
    use parlor_model::LocalAgent;
    use parlor_tools::{ShellTool, Toolbox};
    use parlor_vocab::{AgentChoice, AgentId, NewSession, UserInput, WhenBusy};

    use super::*;
    use crate::api::transcript::read_transcript;

    #[test]
    fn long_texts_are_cut_by_characters() {
        assert_eq!(cut(" short "), "short");
        assert_eq!(cut(&"é".repeat(SHOWN_CHARS)), "é".repeat(SHOWN_CHARS));
        assert_eq!(cut(&"é".repeat(SHOWN_CHARS + 1)), format!("{}...", "é".repeat(SHOWN_CHARS)));
    }

    /// Sessions in memory that the local agent answers.
    fn sessions(media: &std::path::Path) -> Sessions {
        Sessions::new(SessionDeps {
            log: Arc::new(MemoryLog::new(Arc::new(SystemClock))),
            agents: Agents::new(AgentId::parse("local").unwrap(), Arc::new(LocalAgent::default())),
            tools: Toolbox::standard(ShellTool::default()),
            media: MediaStore::open(media).unwrap(),
            env: Vec::new().into(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(TimeOrderedIds::new(Arc::new(SystemClock))),
        })
    }

    /// Creates the session `name`, sends it `text` and waits until the agent has answered.
    async fn talk(sessions: &Sessions, name: &str, text: &str) {
        let id = SessionId::parse(name).unwrap();
        let new_session = NewSession {
            title: None,
            door: "supr".to_owned(),
            folder: "/".into(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        };
        sessions.create(Some(id.clone()), new_session).await.unwrap();
        let input = UserInput { text: text.to_owned(), ..UserInput::default() };
        sessions.execute(&id, SessionCommand::Send { input, when_busy: WhenBusy::Refuse }).await.unwrap();
        let mut watcher = sessions.watch(&id, Seq::START).await;
        loop {
            if let SessionUpdate::Entry(entry) = watcher.next().await.unwrap()
                && let SessionEvent::Run { event: RunEvent::Ended { .. }, .. } = &entry.event
            {
                return;
            }
        }
    }

    #[tokio::test]
    async fn sessions_are_listed_read_and_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = sessions(folder.path());
        for (name, text) in [("first", "/say one"), ("second", "/say two"), ("third", "/say three")] {
            talk(&sessions, name, text).await;
        }
        let ids = async |words, offset, limit, max_searched| {
            let found = find_sessions(&sessions, words, offset, limit, max_searched).await.unwrap();
            found.into_iter().map(|info| info.id).collect::<Vec<_>>()
        };
        assert_eq!(ids("", 0, 10, MAX_SEARCHED).await, ["third", "second", "first"]);
        assert_eq!(ids("", 1, 1, MAX_SEARCHED).await, ["second"]);
        for (offset, limit) in [(3, 10), (usize::MAX, 10), (0, 0)] {
            assert!(ids("", offset, limit, MAX_SEARCHED).await.is_empty(), "{offset} {limit}");
        }
        let info = find_sessions(&sessions, "", 2, 1, MAX_SEARCHED).await.unwrap().remove(0);
        assert_eq!(
            (info.title.as_str(), info.preview.as_str(), info.message_count),
            ("/say one", "/say one", 2)
        );
        // A search reads the last used sessions, and only so many of them.
        assert_eq!(ids("/say", 0, 10, 2).await, ["third", "second"]);
        assert_eq!(ids("/say", 0, 10, MAX_SEARCHED).await, ["third", "second", "first"]);
        let transcript = serde_json::to_value(read_transcript(&sessions, "first").await.unwrap()).unwrap();
        let expected = serde_json::json!([
            {"role": "user", "content": "/say one"},
            {"role": "assistant", "content": "one"},
        ]);
        assert_eq!(transcript["messages"], expected);
        delete_session(&sessions, "first").await.unwrap();
        assert_eq!(read_transcript(&sessions, "first").await, Err(SessionApiError::Unknown));
        assert_eq!(delete_session(&sessions, "first").await, Err(SessionApiError::Unknown));
        sessions.close().await;
    }
}
