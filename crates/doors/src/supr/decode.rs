//! Decodes a client's frame into a request.

use parlor_vocab::{
    AgentChoice, AgentId, EventId, MAX_ID_BYTES, QuestionAnswer, QuestionId, Reasoning, RunId, SessionId,
};

use super::MAX_KEY_BYTES;
use super::client_frame::{ClientFrame, MaybeObject, Payload};
use super::code::{self, FrameError};
use super::media::{self, Upload};
use super::surrogates::replace_lone_surrogates;
use crate::json::Member;

/// A valid request of a client.
#[derive(Debug, PartialEq)]
pub(super) enum Request {
    /// Answered at once with a pong.
    Ping {
        /// The pong repeats it.
        id: Option<String>,
    },
    /// Send a message to a session.
    Send {
        /// `None` for the connection's own session.
        session: Option<SessionId>,
        content: String,
        /// The agent that should answer.
        choice: AgentChoice,
        /// A second message with the same key starts no run.
        key: Option<String>,
        /// Add the text to the active run, if there is one.
        steers: bool,
    },
    /// Send a message with files.
    Media {
        /// `None` for the connection's own session.
        session: Option<SessionId>,
        upload: Upload,
        /// The agent that should answer.
        choice: AgentChoice,
        /// A second message with the same key starts no run.
        key: Option<String>,
    },
    /// Stop a run.
    Stop(StopRequest),
    /// Answer a question of a run.
    Answer {
        /// `None` for the connection's own session.
        session: Option<SessionId>,
        question: QuestionId,
        answer: QuestionAnswer,
    },
}

/// The run that a client wants to stop.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StopRequest {
    /// `None` for the connection's own session.
    pub(super) session: Option<SessionId>,
    /// `None` for the active run, whichever it is.
    pub(super) run: Option<RunId>,
    /// The text that the run's events give as the reason.
    pub(super) reason: Option<String>,
}

/// The longest name of an agent after normalization, in characters.
const AGENT_CHARS: usize = 64;

/// The ids and names of the configured agents.
type Agents = [(String, String)];

/// Decodes a frame. `agents` are the configured ones.
pub(super) fn request(bytes: &[u8], agents: &Agents) -> Result<Request, FrameError> {
    // JavaScript can cut a string between the two halves of a surrogate pair. Such a string is accepted.
    let MaybeObject(frame) = serde_json::from_slice(bytes)
        .or_else(|_| serde_json::from_slice(&replace_lone_surrogates(bytes)))
        .map_err(|_| code::unparsable())?;
    let frame: ClientFrame = frame.ok_or_else(code::unparsable)?;
    let kind = optional_text(frame.kind)?.unwrap_or_default();
    let id = optional_text(frame.id)?.filter(|id| !id.is_empty());
    let session = optional_text(frame.session)?.filter(|id| !id.is_empty());
    let session = session.map(|id| SessionId::parse(&id)).transpose().map_err(|_| code::unparsable())?;
    if !matches!(frame.timestamp, Member::Missing | Member::Null | Member::Integer) {
        return Err(code::unparsable());
    }
    let payload = frame.payload.ok_or_else(code::unparsable)?;
    match kind.as_str() {
        "ping" => Ok(Request::Ping { id }),
        "message.send" => {
            let key = key(&payload);
            message(session, payload, agents, key.clone()).map_err(|error| error.for_key(key.as_ref()))
        }
        "media.send" => {
            let key = key(&payload);
            media(session, payload, agents, key.clone()).map_err(|error| error.for_key(key.as_ref()))
        }
        "run.stop" => Ok(Request::Stop(StopRequest {
            session,
            run: non_blank_text(&payload.run).map(|run| run_id(&run)),
            reason: non_blank_text(&payload.reason),
        })),
        "question.answer" => {
            let question = non_blank_text(&payload.question).and_then(|id| QuestionId::parse(&id).ok());
            let question = question.ok_or_else(code::no_question)?;
            let message = non_blank_text(&payload.message);
            let answer = payload.answer.into_text().and_then(|name| QuestionAnswer::parse(&name, message));
            let answer = answer.ok_or_else(code::unknown_answer)?;
            Ok(Request::Answer { session, question, answer })
        }
        other => Err(code::unknown_type(other)),
    }
}

fn message(
    session: Option<SessionId>,
    payload: Payload,
    agents: &Agents,
    key: Option<String>,
) -> Result<Request, FrameError> {
    let choice = choice(&payload, agents);
    let content = payload.content.into_text().filter(|content| !content.trim().is_empty());
    let content = content.ok_or_else(code::empty_content)?;
    let choice = choice?;
    let steers = match payload.when_busy {
        Member::Missing | Member::Null => false,
        Member::Text(word) if word == "queue" => false,
        Member::Text(word) if word == "steer" => true,
        Member::Text(_) | Member::Integer | Member::Other => return Err(code::unknown_when_busy()),
    };
    Ok(Request::Send { session, content, choice, key, steers })
}

fn media(
    session: Option<SessionId>,
    payload: Payload,
    agents: &Agents,
    key: Option<String>,
) -> Result<Request, FrameError> {
    let choice = choice(&payload, agents)?;
    Ok(Request::Media { session, upload: media::upload(payload)?, choice, key })
}

/// The idempotency key of a message. A key above [`MAX_KEY_BYTES`] is ignored.
fn key(payload: &Payload) -> Option<String> {
    let key = payload.key.as_text()?;
    (!key.is_empty() && key.len() <= MAX_KEY_BYTES).then(|| key.to_owned())
}

/// The agent, model and reasoning level for this message.
fn choice(payload: &Payload, agents: &Agents) -> Result<AgentChoice, FrameError> {
    let reasoning = match &payload.reasoning {
        Member::Missing => None,
        Member::Text(word) => Some(reasoning(word)?),
        Member::Null | Member::Integer | Member::Other => return Err(code::reasoning_not_a_string()),
    };
    let agent = payload.agent.as_text();
    let model = payload.model.as_text().filter(|model| !model.is_empty());
    Ok(AgentChoice {
        agent: agent.and_then(|agent| agent_id(agent, agents)),
        model: model.map(str::to_owned),
        reasoning,
    })
}

fn reasoning(word: &str) -> Result<Reasoning, FrameError> {
    Ok(match word.trim().to_lowercase().as_str() {
        "off" => Reasoning::Off,
        "low" => Reasoning::Low,
        "medium" => Reasoning::Medium,
        "high" => Reasoning::High,
        "xhigh" => Reasoning::Xhigh,
        "adaptive" => Reasoning::Adaptive,
        _ => return Err(code::unknown_reasoning(word)),
    })
}

/// The agent that `text` names. An agent with exactly this id overrides one whose id is the same after normalization.
fn agent_id(text: &str, agents: &Agents) -> Option<AgentId> {
    let agent_for = normalized(text);
    let ids = || agents.iter().map(|(id, _)| id.as_str());
    let known = ids().find(|id| *id == text).or_else(|| ids().find(|id| normalized(id) == agent_for));
    let id = known.unwrap_or(&agent_for);
    (!id.is_empty()).then(|| AgentId::parse(id).expect("it is short, or the id of a configured agent"))
}

/// A name in lower case with only letters, digits, `_` and `-`; other characters become one `-`.
fn normalized(text: &str) -> String {
    let mut id = String::new();
    for c in text.trim().to_lowercase().chars() {
        let is_plain = c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        if is_plain {
            id.push(c);
        } else if !id.ends_with('-') {
            id.push('-');
        }
    }
    id.trim_matches('-').chars().take(AGENT_CHARS).collect()
}

/// The run id that a client sent. An id above the limit is truncated, because it matches no run anyway.
fn run_id(text: &str) -> RunId {
    let mut end = text.len().min(MAX_ID_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    RunId::parse(text.get(..end).unwrap_or_default()).expect("it was truncated to the limit")
}

/// The event id that a client sent; `None` if no event can have it.
pub(super) fn event_id(text: &str) -> Option<EventId> {
    EventId::parse(text).ok()
}

/// The text of a member that must be a string, null or missing.
fn optional_text(member: Member) -> Result<Option<String>, FrameError> {
    match member {
        Member::Missing | Member::Null => Ok(None),
        Member::Text(text) => Ok(Some(text)),
        Member::Integer | Member::Other => Err(code::unparsable()),
    }
}

fn non_blank_text(member: &Member) -> Option<String> {
    let text = member.as_text()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent_for(name: &str, agents: &[&str]) -> Option<String> {
        let agents: Vec<_> = agents.iter().map(|id| ((*id).to_owned(), String::new())).collect();
        agent_id(name, &agents).map(|id| id.to_string())
    }

    #[test]
    fn agent_names_are_normalized() {
        for (name, normalized) in
            [(" Main Agent ", "main-agent"), ("a__b--c", "a__b--c"), ("\u{e4}x/\u{e4}y", "x-y")]
        {
            assert_eq!(agent_for(name, &[]).as_deref(), Some(normalized));
        }
        assert_eq!(agent_for(&"x".repeat(100), &[]).unwrap().len(), AGENT_CHARS);
        for empty in ["", " ", "!!", "-"] {
            assert_eq!(agent_for(empty, &["main"]), None, "{empty:?}");
        }
    }

    #[test]
    fn a_configured_agent_is_found_by_its_normalized_id() {
        assert_eq!(agent_for("My Agent", &["main", "My Agent"]).as_deref(), Some("My Agent"));
        assert_eq!(agent_for("my-agent", &["main", "My Agent"]).as_deref(), Some("My Agent"));
        assert_eq!(agent_for("MAIN", &["main", "MAIN"]).as_deref(), Some("MAIN"));
        assert_eq!(agent_for("Main", &["main", "MAIN"]).as_deref(), Some("main"));
    }

    #[test]
    fn a_run_id_of_any_length_is_accepted() {
        assert_eq!(run_id(&"\u{e4}".repeat(MAX_ID_BYTES)).as_str().len(), MAX_ID_BYTES);
    }
}
