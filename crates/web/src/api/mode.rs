//! The mode of a session over HTTP: how far the tools of its agent reach.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use parlor_engine::{SessionOwner, Sessions};
use parlor_vocab::{PolicyMode, SessionCommand, SessionId, SessionRefusal};
use serde::Deserialize;
use serde_json::json;

use super::path_id::PathId;
use super::session_error::SessionApiError;
use crate::body::json_object;
use crate::response::{json as json_response, read_only, text};
use crate::site::Site;

/// The mode that was chosen for a session, `null` if the settings decide; and their mode.
pub(crate) async fn read(State(site): State<Arc<Site>>, PathId(id): PathId) -> Response {
    let Ok(id) = SessionId::parse(&id) else { return SessionApiError::Unknown.response() };
    let sessions = &site.deps.sessions;
    let session = keeping_closed(sessions, &id, sessions.view_without_history(&id)).await;
    session.map_or_else(error, |session| shown(sessions, session.mode()))
}

/// Chooses the mode of a session, for its next runs.
pub(crate) async fn choose(State(site): State<Arc<Site>>, PathId(id): PathId, body: Bytes) -> Response {
    #[derive(Deserialize)]
    struct ChosenMode {
        mode: String,
    }
    if !site.deps.settings.may_send {
        return read_only();
    }
    let chosen = json_object::<ChosenMode>(&body).ok();
    let Some(mode) = chosen.and_then(|chosen| PolicyMode::parse(&chosen.mode)) else {
        let expected =
            "the body is {\"mode\":\"read-only\"}, {\"mode\":\"workspace\"} or {\"mode\":\"full\"}";
        return text(StatusCode::BAD_REQUEST, expected);
    };
    let Ok(id) = SessionId::parse(&id) else { return SessionApiError::Unknown.response() };
    let sessions = &site.deps.sessions;
    let chosen = sessions.execute(&id, SessionCommand::ChooseMode(mode));
    keeping_closed(sessions, &id, chosen).await.map_or_else(error, |_| shown(sessions, Some(mode)))
}

/// Does `work` and closes the session again if it was not open, so that other processes can open it. A session that found
/// work to do stays open.
async fn keeping_closed<T>(
    sessions: &Sessions,
    id: &SessionId,
    work: impl Future<Output = Result<T, SessionRefusal>>,
) -> Result<T, SessionRefusal> {
    let was_open = matches!(sessions.owner(id).await, Ok(SessionOwner::ThisProcess { .. }));
    let done = work.await;
    if !was_open {
        let _ = sessions.release(id).await;
    }
    done
}

fn error(refusal: SessionRefusal) -> Response {
    SessionApiError::from(refusal).response()
}

fn shown(sessions: &Sessions, mode: Option<PolicyMode>) -> Response {
    let default = sessions.default_mode().as_str();
    json_response(StatusCode::OK, &json!({ "mode": mode.map(PolicyMode::as_str), "default": default }))
}
