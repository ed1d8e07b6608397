//! The events of one session, page by page from its end backwards, as the frames of the supr door. `event_stream.rs` has
//! the other form of the same endpoint.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use parlor_doors::supr::Replay;
use parlor_engine::{Sessions, text_bytes};
use parlor_transport::block_in_place_if_large;
use parlor_vocab::{Seq, SessionId, SessionUpdate};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::event_stream;
use super::path_id::PathId;
use super::session_error::SessionApiError;
use crate::connection_life::ConnectionLife;
use crate::query::number;
use crate::response::text;
use crate::response_memory::{NoMemory, ResponseMemory};
use crate::site::Site;

/// How many events one page has if the client does not say.
pub const DEFAULT_EVENTS: usize = 200;

/// How many events one page has at most.
pub const MAX_EVENTS: usize = 1000;

/// How many bytes the events of one page have at most. A single event that has more is shortened.
pub const MAX_EVENTS_BYTES: usize = 8 << 20;

/// To how many bytes each text is cut in an event that alone is larger than a page.
const SHORTENED_BYTES: usize = 1 << 20;

/// A page of events.
#[derive(Clone, Debug, Serialize)]
struct EventPage {
    /// The frames, the oldest first, as the socket sends them.
    events: Vec<Box<RawValue>>,
    /// What to ask for as `before` to get the page before this one; `None` if this is the first page.
    before: Option<u64>,
    /// The last event of the page, after which a socket can continue.
    last_event_id: Option<String>,
}

pub(crate) async fn events(
    State(site): State<Arc<Site>>,
    Extension(memory): Extension<Arc<ResponseMemory>>,
    Extension(life): Extension<Arc<ConnectionLife>>,
    PathId(id): PathId,
    parts: Parts,
) -> Response {
    let [Ok(before), Ok(limit), Ok(after)] = ["before", "limit", "after"].map(|name| number(&parts, name))
    else {
        return text(StatusCode::BAD_REQUEST, "before, limit and after are whole numbers");
    };
    if event_stream::is_requested(&parts.headers) {
        let Ok(last_event_id) = event_stream::last_event_id(&parts.headers) else {
            let reason = "Last-Event-ID is the number of an event: the id of a message of this stream";
            return text(StatusCode::BAD_REQUEST, reason);
        };
        // A browser that reconnects repeats its first query, so the header is newer.
        let after = last_event_id.or(after.map(|after| after as u64)).unwrap_or(0);
        let stream = event_stream::respond(&site, memory, &life, &id, after, &parts).await;
        return stream.unwrap_or_else(|error| error.response());
    }
    let limit = limit.map_or(DEFAULT_EVENTS, |limit| limit.clamp(1, MAX_EVENTS));
    let Ok(_permit) = site.session_reader().await else { return NoMemory::response() };
    match read_events(&site.deps.sessions, &id, before.map(|before| before as u64), limit).await {
        Ok(page) => memory.json(&page, site.deps.settings.limits.answer_wait).await,
        Err(error) => error.response(),
    }
}

/// Reads the last `limit` entries before position `before`, or before the end. Entries that clients do not see have no
/// frame, and the page has fewer entries if their frames are larger than [`MAX_EVENTS_BYTES`].
async fn read_events(
    sessions: &Sessions,
    id: &str,
    before: Option<u64>,
    limit: usize,
) -> Result<EventPage, SessionApiError> {
    let id = SessionId::parse(id).map_err(|_| SessionApiError::Unknown)?;
    let head = sessions.record(&id).await?.head;
    let high = before.map_or(head, |before| head.min(Seq(before.saturating_sub(1))));
    let low = Seq(high.0.saturating_sub(limit as u64));
    // Frames depend on earlier events of the same run, so reading starts where the run of the first entry does.
    let mut watcher = sessions.watch(&id, sessions.start_of_run_at(&id, low).await?).await;
    let mut replay = Replay::new(id.clone());
    let (mut frames, mut bytes, mut last) = (VecDeque::new(), 0, None);
    // The last entry that belongs to the page before this one.
    let mut left_out = low;
    while last.as_ref().is_none_or(|(seq, _)| *seq < high) {
        let entry = match watcher.try_next().await {
            Ok(Some(SessionUpdate::Entry(entry))) => entry,
            Ok(Some(SessionUpdate::Delta { .. })) => continue,
            // The session was deleted in the meantime.
            Ok(None) => break,
            Err(error) => return Err(SessionApiError::Failed(error.to_string())),
        };
        let is_in_page = entry.seq > low;
        let frame = block_in_place_if_large(text_bytes(&entry.event), || {
            replay.frame(&entry).filter(|_| is_in_page).map(shortened)
        });
        if !is_in_page {
            continue;
        }
        last = Some((entry.seq, entry.id.to_string()));
        let Some(frame) = frame else { continue };
        bytes += frame.len();
        frames.push_back((entry.seq, frame));
        while bytes > MAX_EVENTS_BYTES
            && frames.len() > 1
            && let Some((seq, frame)) = frames.pop_front()
        {
            bytes -= frame.len();
            left_out = seq;
        }
    }
    let raw = |frame| {
        let text = String::from_utf8(frame).expect("a frame is JSON");
        RawValue::from_string(text).expect("a frame is JSON")
    };
    Ok(EventPage {
        events: block_in_place_if_large(bytes, || frames.into_iter().map(|(_, frame)| raw(frame)).collect()),
        before: (left_out > Seq::START).then_some(left_out.0 + 1),
        last_event_id: last.map(|(_, id)| id),
    })
}

/// Cuts each long text of a frame that has more than [`MAX_EVENTS_BYTES`], and marks the frame with `truncated`. If that
/// is not enough, the frame keeps none of its data.
pub(super) fn shortened(frame: Vec<u8>) -> Vec<u8> {
    if frame.len() <= MAX_EVENTS_BYTES {
        return frame;
    }
    let mut event: Map<String, Value> = serde_json::from_slice(&frame).expect("a frame is an object");
    drop(frame);
    event.insert("truncated".to_owned(), Value::Bool(true));
    let encode = |event: &Map<String, Value>| serde_json::to_vec(event).expect("a frame is JSON");
    for member in data_of(&mut event) {
        for value in member.values_mut() {
            if let Value::String(text) = value {
                text.truncate(text.floor_char_boundary(SHORTENED_BYTES));
            }
        }
    }
    let short = encode(&event);
    if short.len() <= MAX_EVENTS_BYTES {
        return short;
    }
    data_of(&mut event).for_each(Map::clear);
    encode(&event)
}

/// The members with the content of an event: `data` of an event in a run, `payload` of any other.
fn data_of(event: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let is_data = |(name, value): (&String, _)| matches!(name.as_str(), "data" | "payload").then_some(value);
    event.iter_mut().filter_map(is_data).filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shorten(event: &Value) -> Value {
        let short = shortened(event.to_string().into_bytes());
        assert!(short.len() <= MAX_EVENTS_BYTES, "{}", short.len());
        serde_json::from_slice(&short).unwrap()
    }

    #[test]
    fn an_event_larger_than_a_page_is_shortened_and_says_so() {
        let small = json!({"event_id": "e", "data": {"content": "x"}});
        assert_eq!(shorten(&small), small);
        let text = "\u{e4}".repeat(MAX_EVENTS_BYTES);
        for member in ["data", "payload"] {
            let cut = shorten(&json!({"event_id": "e", member: {"content": text, "n": 1}}));
            assert_eq!(
                (&cut["truncated"], &cut["event_id"], &cut[member]["n"]),
                (&json!(true), &json!("e"), &json!(1))
            );
            assert_eq!(cut[member]["content"].as_str().unwrap().len(), SHORTENED_BYTES);
        }
        let many: Vec<String> = (0..MAX_EVENTS_BYTES / 4).map(|number| number.to_string()).collect();
        assert_eq!(shorten(&json!({"data": {"many": many}})), json!({"data": {}, "truncated": true}));
    }
}
