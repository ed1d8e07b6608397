//! What a client's frame says.

use parlor_vocab::{AgentChoice, AgentId, EventId, MAX_ID_BYTES, Reasoning, RunId, SessionId};

use super::MAX_KEY_BYTES;
use super::code::{self, FrameError};
use super::incoming::{MaybeFrame, Payload};
use super::media::{self, Upload};
use super::pairs::mended;
use crate::json::Member;

/// A frame that is in order.
#[derive(Debug, PartialEq)]
pub(super) enum Request {
    /// Answered at once.
    Ping {
        /// Comes back with the answer.
        id: Option<String>,
    },
    /// Say something to a session.
    Send {
        /// Which, if not the connection's own.
        session: Option<SessionId>,
        /// What is said.
        content: String,
        /// What is to answer.
        choice: AgentChoice,
        /// Said again with the same key, it starts nothing.
        key: Option<String>,
    },
    /// Say something with files.
    Media {
        /// Which session, if not the connection's own.
        session: Option<SessionId>,
        /// The files.
        upload: Upload,
        /// What is to answer.
        choice: AgentChoice,
        /// As above.
        key: Option<String>,
    },
    /// Stop a run.
    Stop(StopRequest),
}

/// Which run is to be stopped.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StopRequest {
    /// Of which session, if not the connection's own.
    pub(super) session: Option<SessionId>,
    /// Only this one.
    pub(super) run: Option<RunId>,
    /// Why.
    pub(super) reason: Option<String>,
}

/// The longest name of an agent that is looked for, in letters.
const AGENT_CHARS: usize = 64;

/// The agents there are: their ids and names.
type Agents = [(String, String)];

/// What `bytes` say where there are these agents.
pub(super) fn request(bytes: &[u8], agents: &Agents) -> Result<Request, FrameError> {
    // A text that was cut in the middle of a letter is still a text.
    let MaybeFrame(frame) = serde_json::from_slice(bytes)
        .or_else(|_| serde_json::from_slice(&mended(bytes)))
        .map_err(|_| code::unparsable())?;
    let frame = frame.ok_or_else(code::unparsable)?;
    let kind = text(frame.kind)?.unwrap_or_default();
    let id = text(frame.id)?.filter(|id| !id.is_empty());
    let session = text(frame.session)?.filter(|id| !id.is_empty());
    let session = session.map(|id| SessionId::parse(&id)).transpose().map_err(|_| code::unparsable())?;
    if !matches!(frame.timestamp, Member::Missing | Member::Null | Member::Integer) {
        return Err(code::unparsable());
    }
    let payload = frame.payload.ok_or_else(code::unparsable)?;
    match kind.as_str() {
        "ping" => Ok(Request::Ping { id }),
        "message.send" => {
            let key = key(&payload);
            message(session, payload, agents, key.clone()).map_err(|flaw| flaw.about(key.as_ref()))
        }
        "media.send" => {
            let key = key(&payload);
            media(session, payload, agents, key.clone()).map_err(|flaw| flaw.about(key.as_ref()))
        }
        "run.stop" => Ok(Request::Stop(StopRequest {
            session,
            run: trimmed(&payload.run).map(|run| run_id(&run)),
            reason: trimmed(&payload.reason),
        })),
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
    Ok(Request::Send { session, content, choice: choice?, key })
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

/// What makes it safe to say it again. One that is too long to be kept is none.
fn key(payload: &Payload) -> Option<String> {
    let key = payload.key.as_text()?;
    (!key.is_empty() && key.len() <= MAX_KEY_BYTES).then(|| key.to_owned())
}

/// Who is to answer, for this once.
fn choice(payload: &Payload, agents: &Agents) -> Result<AgentChoice, FrameError> {
    let reasoning = match &payload.reasoning {
        Member::Missing => None,
        Member::Text(word) => Some(reasoning(word)?),
        Member::Null | Member::Integer | Member::Other => return Err(code::reasoning_is_no_text()),
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

/// The agent that is meant, if any is. One that is spelled exactly goes before one that is spelled alike.
fn agent_id(text: &str, agents: &Agents) -> Option<AgentId> {
    let meant = plain(text);
    let ids = || agents.iter().map(|(id, _)| id.as_str());
    let known = ids().find(|id| *id == text).or_else(|| ids().find(|id| plain(id) == meant));
    let id = known.unwrap_or(&meant);
    (!id.is_empty()).then(|| AgentId::parse(id).expect("it is short, or is an agent's"))
}

/// A name as letters, digits, `_` and `-`; whatever else stands between them is one `-`.
fn plain(text: &str) -> String {
    let mut id = String::new();
    for letter in text.trim().to_lowercase().chars() {
        let is_plain =
            letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_' || letter == '-';
        if is_plain {
            id.push(letter);
        } else if !id.ends_with('-') {
            id.push('-');
        }
    }
    id.trim_matches('-').chars().take(AGENT_CHARS).collect()
}

/// A run that a peer named. A name that is too long for any run is cut: it names none.
fn run_id(text: &str) -> RunId {
    let mut end = text.len().min(MAX_ID_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    RunId::parse(text.get(..end).unwrap_or_default()).expect("it was cut")
}

/// An event that a peer named.
pub(super) fn event_id(text: &str) -> Option<EventId> {
    EventId::parse(text).ok()
}

/// A member that is a text if it is there.
fn text(member: Member) -> Result<Option<String>, FrameError> {
    match member {
        Member::Missing | Member::Null => Ok(None),
        Member::Text(text) => Ok(Some(text)),
        Member::Integer | Member::Other => Err(code::unparsable()),
    }
}

fn trimmed(member: &Member) -> Option<String> {
    let text = member.as_text()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(spelled: &str, agents: &[&str]) -> Option<String> {
        let agents: Vec<_> = agents.iter().map(|id| ((*id).to_owned(), String::new())).collect();
        agent_id(spelled, &agents).map(|id| id.to_string())
    }

    #[test]
    fn agents_are_meant_by_many_spellings() {
        for (spelled, plain) in
            [(" Main Agent ", "main-agent"), ("a__b--c", "a__b--c"), ("\u{e4}x/\u{e4}y", "x-y")]
        {
            assert_eq!(meant(spelled, &[]).as_deref(), Some(plain));
        }
        assert_eq!(meant(&"x".repeat(100), &[]).unwrap().len(), AGENT_CHARS);
        for nobody in ["", " ", "!!", "-"] {
            assert_eq!(meant(nobody, &["main"]), None, "{nobody:?}");
        }
    }

    #[test]
    fn an_agent_that_is_configured_in_other_letters_is_found() {
        assert_eq!(meant("My Agent", &["main", "My Agent"]).as_deref(), Some("My Agent"));
        assert_eq!(meant("my-agent", &["main", "My Agent"]).as_deref(), Some("My Agent"));
        assert_eq!(meant("MAIN", &["main", "MAIN"]).as_deref(), Some("MAIN"));
        assert_eq!(meant("Main", &["main", "MAIN"]).as_deref(), Some("main"));
    }

    #[test]
    fn a_run_of_any_length_can_be_named() {
        assert_eq!(run_id(&"\u{e4}".repeat(MAX_ID_BYTES)).as_str().len(), MAX_ID_BYTES);
    }
}
