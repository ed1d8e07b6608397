//! Who arrives, and what for: the query of a handshake.

use std::borrow::Cow;

use parlor_doors::supr::{MAX_SESSION_ID_BYTES, MAX_WATCHED};
use percent_encoding::percent_decode;

use crate::chance::uuid;
use crate::traceparent::Traceparent;

/// A connection that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeQuery {
    /// Its session, as the client spelled it, or a new one.
    pub session: String,
    /// Whether the client chose the session.
    pub is_chosen: bool,
    /// The last event that the client has seen: what came later is to be replayed. All there is, if it is
    /// empty; nothing, if there is none.
    pub after: Option<String>,
    /// Sessions that it wants to hear of as well.
    pub watch: Vec<String>,
    /// Whether it wants to hear of texts as they are written: `stream=1`.
    pub streams: bool,
    /// The trace that it belongs to.
    pub traceparent: Option<Traceparent>,
}

/// What is wrong with a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A value is too long.
    #[error("{0} is longer than {MAX_SESSION_ID_BYTES} bytes")]
    TooLong(&'static str),
    /// A value cannot be repeated in JSON.
    #[error("{0} is not UTF-8")]
    NotText(&'static str),
    /// Too much is to be watched.
    #[error("watch is there more than {MAX_WATCHED} times")]
    TooManyWatched,
}

impl HandshakeQuery {
    /// Reads a query, in which the first value of a name counts. `chance` makes a session if none is named.
    pub(crate) fn read(
        query: &str,
        traceparent: Option<Traceparent>,
        chance: impl FnOnce() -> [u8; 16],
    ) -> Result<Self, QueryError> {
        let session = text(first(query, "session_id"), "session_id")?.filter(|session| !session.is_empty());
        let after = match text(first(query, "after"), "after")? {
            Some(after) => Some(after),
            None => text(first(query, "last_event_id"), "last_event_id")?,
        };
        let is_chosen = session.is_some();
        let session = session.unwrap_or_else(|| uuid(chance()));
        let mut watch: Vec<String> = Vec::new();
        for value in values(query, "watch") {
            let Some(other) = text(Some(value), "watch")?.filter(|other| !other.is_empty()) else { continue };
            if other == session || watch.contains(&other) {
                continue;
            }
            if watch.len() == MAX_WATCHED {
                return Err(QueryError::TooManyWatched);
            }
            watch.push(other);
        }
        let streams = first(query, "stream").is_some_and(|value| matches!(&*value, b"1" | b"true"));
        Ok(Self { session, is_chosen, after, watch, streams, traceparent })
    }
}

/// The first value of a name in a query, decoded.
pub(crate) fn first<'a>(query: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
    values(query, name).next()
}

fn values<'a>(query: &'a str, name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.split('&').filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key) == name.as_bytes()).then(|| decode(value))
    })
}

/// As forms are encoded: `+` is a space, and `%` is followed by a byte in hexadecimal.
fn decode(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return Cow::Owned(percent_decode(spaced.as_bytes()).collect());
    }
    percent_decode(text.as_bytes()).into()
}

fn text(value: Option<Cow<'_, [u8]>>, name: &'static str) -> Result<Option<String>, QueryError> {
    let Some(value) = value else { return Ok(None) };
    if value.len() > MAX_SESSION_ID_BYTES {
        return Err(QueryError::TooLong(name));
    }
    String::from_utf8(value.into_owned()).map(Some).map_err(|_| QueryError::NotText(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<HandshakeQuery, QueryError> {
        HandshakeQuery::read(query, None, || [0; 16])
    }

    #[test]
    fn a_session_is_taken_byte_for_byte() {
        for (query, session) in [
            ("session_id=a", "a"),
            ("x=1&session_id=%20lead&session_id=second", " lead"),
            ("session_id=a+b%2Bc%00%C3%A9", "a b+c\0é"),
            ("session%5Fid=50%25%", "50%%"),
            ("session_id=/../etc;x", "/../etc;x"),
        ] {
            assert_eq!(read(query).unwrap().session, session, "{query}");
        }
        let new = read("session_id=").unwrap();
        assert_eq!((new.session.as_str(), new.is_chosen), ("00000000-0000-4000-8000-000000000000", false));
        assert!(read("session_id=a").unwrap().is_chosen);
    }

    #[test]
    fn the_longest_session_is_taken_and_one_byte_more_is_not() {
        assert!(read(&format!("session_id={}", "x".repeat(MAX_SESSION_ID_BYTES))).is_ok());
        let longer = format!("session_id={}", "x".repeat(MAX_SESSION_ID_BYTES + 1));
        assert_eq!(read(&longer), Err(QueryError::TooLong("session_id")));
        assert_eq!(read("session_id=%ff"), Err(QueryError::NotText("session_id")));
    }

    #[test]
    fn replay_is_asked_for_by_either_name() {
        assert_eq!(read("").unwrap().after, None);
        assert_eq!(read("after=").unwrap().after.as_deref(), Some(""));
        assert_eq!(read("last_event_id=evt_1").unwrap().after.as_deref(), Some("evt_1"));
        assert_eq!(read("last_event_id=evt_1&after=evt_2").unwrap().after.as_deref(), Some("evt_2"));
    }

    #[test]
    fn others_are_watched_once_each_and_not_too_many() {
        assert_eq!(read("session_id=a&watch=b&watch=a&watch=&watch=b&watch=c").unwrap().watch, ["b", "c"]);
        let many = |count: usize| (0..count).map(|n| format!("watch={n}&")).collect::<String>();
        assert_eq!(read(&many(MAX_WATCHED)).unwrap().watch.len(), MAX_WATCHED);
        assert_eq!(read(&many(MAX_WATCHED + 1)), Err(QueryError::TooManyWatched));
    }
}
