//! Parses the query of a WebSocket handshake: the session that a client uses (a new id if it names none), and which events
//! it receives.

use std::borrow::Cow;

use parlor_doors::supr::{MAX_SESSION_ID_BYTES, MAX_WATCHED};
use parlor_vocab::Traceparent;

use crate::query::{first, values};
use crate::random::uuid;

/// The parameters of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandshakeQuery {
    /// The id of the client's session, as the client wrote it, or a new id if the client named no session.
    pub(crate) session: String,
    /// The id of the last event that the client has seen. The server replays all later events; if the id is empty, all
    /// events; if it is `None`, no events.
    pub(crate) after: Option<String>,
    /// The ids of other sessions whose events the client wants, without duplicates.
    pub(crate) watch: Vec<String>,
    /// Whether the client wants texts piece by piece while an agent writes them: `stream=1` or `stream=true`.
    pub(crate) streams: bool,
    /// The value of the header `traceparent`.
    pub(crate) traceparent: Option<Traceparent>,
}

/// Why a query is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryError {
    /// The value of the parameter with this name is too long.
    #[error("{0} is longer than {MAX_SESSION_ID_BYTES} bytes")]
    TooLong(&'static str),
    /// The value of the parameter with this name is not UTF-8, so JSON cannot contain it.
    #[error("{0} is not UTF-8")]
    NotText(&'static str),
    /// The client wants to watch more than [`MAX_WATCHED`] sessions.
    #[error("watch occurs more than {MAX_WATCHED} times")]
    TooManyWatched,
}

impl HandshakeQuery {
    /// Parses a query. Of a parameter that occurs several times, except `watch`, only the first value counts. If the query
    /// names no session, `random` provides the bytes of a new id.
    pub(crate) fn parse(
        query: &str,
        traceparent: Option<Traceparent>,
        random: impl FnOnce() -> [u8; 16],
    ) -> Result<Self, QueryError> {
        let session =
            to_text(first(query, "session_id"), "session_id")?.filter(|session| !session.is_empty());
        let after = match to_text(first(query, "after"), "after")? {
            Some(after) => Some(after),
            None => to_text(first(query, "last_event_id"), "last_event_id")?,
        };
        let session = session.unwrap_or_else(|| uuid(random()));
        let mut watch: Vec<String> = Vec::new();
        for value in values(query, "watch") {
            let Some(other) = to_text(Some(value), "watch")?.filter(|other| !other.is_empty()) else {
                continue;
            };
            if other == session || watch.contains(&other) {
                continue;
            }
            if watch.len() == MAX_WATCHED {
                return Err(QueryError::TooManyWatched);
            }
            watch.push(other);
        }
        let streams = first(query, "stream").is_some_and(|value| matches!(&*value, b"1" | b"true"));
        Ok(Self { session, after, watch, streams, traceparent })
    }
}

/// Checks that a value is UTF-8 and no longer than a session id. `name` is the name of its parameter.
fn to_text(value: Option<Cow<'_, [u8]>>, name: &'static str) -> Result<Option<String>, QueryError> {
    let Some(value) = value else { return Ok(None) };
    if value.len() > MAX_SESSION_ID_BYTES {
        return Err(QueryError::TooLong(name));
    }
    String::from_utf8(value.into_owned()).map(Some).map_err(|_| QueryError::NotText(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<HandshakeQuery, QueryError> {
        HandshakeQuery::parse(query, None, || [0; 16])
    }

    #[test]
    fn a_session_id_is_decoded_and_otherwise_kept_byte_for_byte() {
        for (query, session) in [
            ("session_id=a", "a"),
            ("x=1&session_id=%20lead&session_id=second", " lead"),
            ("session_id=a+b%2Bc%00%C3%A9", "a b+c\0é"),
            ("session%5Fid=50%25%", "50%%"),
            ("session_id=/../etc;x", "/../etc;x"),
        ] {
            assert_eq!(parse(query).unwrap().session, session, "{query}");
        }
        for unnamed in ["session_id=", ""] {
            assert_eq!(parse(unnamed).unwrap().session, "00000000-0000-4000-8000-000000000000");
        }
    }

    #[test]
    fn a_session_id_has_a_maximum_length() {
        assert!(parse(&format!("session_id={}", "x".repeat(MAX_SESSION_ID_BYTES))).is_ok());
        let longer = format!("session_id={}", "x".repeat(MAX_SESSION_ID_BYTES + 1));
        assert_eq!(parse(&longer), Err(QueryError::TooLong("session_id")));
        assert_eq!(parse("session_id=%ff"), Err(QueryError::NotText("session_id")));
    }

    #[test]
    fn replay_is_requested_by_either_name() {
        assert_eq!(parse("").unwrap().after, None);
        assert_eq!(parse("after=").unwrap().after.as_deref(), Some(""));
        assert_eq!(parse("last_event_id=evt_1").unwrap().after.as_deref(), Some("evt_1"));
        assert_eq!(parse("last_event_id=evt_1&after=evt_2").unwrap().after.as_deref(), Some("evt_2"));
    }

    #[test]
    fn other_sessions_are_watched_once_each_up_to_the_limit() {
        assert_eq!(parse("session_id=a&watch=b&watch=a&watch=&watch=b&watch=c").unwrap().watch, ["b", "c"]);
        let many = |count: usize| (0..count).map(|n| format!("watch={n}&")).collect::<String>();
        assert_eq!(parse(&many(MAX_WATCHED)).unwrap().watch.len(), MAX_WATCHED);
        assert_eq!(parse(&many(MAX_WATCHED + 1)), Err(QueryError::TooManyWatched));
    }
}
