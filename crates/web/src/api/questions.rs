//! Questions of runs to people over HTTP: read the pending one of a session, and answer it.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use parlor_doors::question_json;
use parlor_vocab::{QuestionAnswer, QuestionId, Sender, SessionCommand, SessionId, SessionRefusal};
use serde::Deserialize;
use serde_json::json;

use super::path_id::PathId;
use super::session_error::SessionApiError;
use crate::response::{json as json_response, read_only, text};
use crate::site::Site;

/// The door of answers that come over HTTP.
const DOOR: &str = "http";

pub(crate) async fn list(State(site): State<Arc<Site>>, PathId(id): PathId) -> Response {
    let sessions = &site.deps.sessions;
    let pending = async {
        let id = SessionId::parse(&id).map_err(|_| SessionApiError::Unknown)?;
        let record = sessions.record(&id).await?;
        Ok::<_, SessionApiError>(sessions.pending_question(&record).await?)
    };
    match pending.await {
        Ok(question) => {
            let questions: Vec<_> = question.iter().map(question_json).collect();
            json_response(StatusCode::OK, &json!({ "questions": questions }))
        }
        Err(error) => error.response(),
    }
}

/// Answers a question. A second answer gets the status 409 and a text that says what the first one was.
pub(crate) async fn answer(
    State(site): State<Arc<Site>>,
    Path((session, question)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    #[derive(Deserialize)]
    struct GivenAnswer {
        answer: String,
        message: Option<String>,
    }
    if !site.deps.settings.may_send {
        return read_only();
    }
    let given = serde_json::from_slice::<GivenAnswer>(&body).ok();
    let Some(answer) = given.and_then(|given| QuestionAnswer::parse(&given.answer, given.message)) else {
        return text(
            StatusCode::BAD_REQUEST,
            "the body is {\"answer\":\"once\"}, {\"answer\":\"always\"} or {\"answer\":\"deny\",\"message\":\"…\"}",
        );
    };
    let (Ok(session), Ok(question)) = (SessionId::parse(&session), QuestionId::parse(&question)) else {
        return SessionApiError::Unknown.response();
    };
    let command = SessionCommand::AnswerQuestion { question, answer, by: Some(Sender::at(DOOR)) };
    match site.deps.sessions.execute(&session, command).await {
        Ok(_) => json_response(StatusCode::OK, &json!({ "status": "ok" })),
        Err(refusal @ SessionRefusal::QuestionSettled { .. }) => {
            text(StatusCode::CONFLICT, &refusal.to_string())
        }
        Err(refusal @ SessionRefusal::UnknownQuestion(_)) => {
            text(StatusCode::NOT_FOUND, &refusal.to_string())
        }
        Err(refusal @ SessionRefusal::InvalidAnswer { .. }) => {
            text(StatusCode::BAD_REQUEST, &refusal.to_string())
        }
        Err(refusal) => SessionApiError::from(refusal).response(),
    }
}
