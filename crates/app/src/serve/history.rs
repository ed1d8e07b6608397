//! What happened in a session, from its end backwards, as the frames of the supr door.

use std::collections::VecDeque;

use parlor_doors::supr::Replay;
use parlor_engine::Sessions;
use parlor_log::LogError;
use parlor_vocab::{Seq, SessionId, SessionUpdate};
use parlor_web::{ArchiveError, EventPage, MAX_EVENTS_BYTES};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::archive::flaw;

/// The last `limit` entries before the place `before`, as far as clients hear of them.
pub(super) async fn events(
    sessions: &Sessions,
    id: &SessionId,
    before: Option<u64>,
    limit: usize,
) -> Result<EventPage, ArchiveError> {
    let head = sessions.record(id).await.map_err(flaw)?.head;
    let high = before.map_or(head, |before| head.min(Seq(before.saturating_sub(1))));
    let low = Seq(high.0.saturating_sub(limit as u64));
    let mut watcher = sessions.watch(id, sessions.before_run(id, low).await.map_err(flaw)?).await;
    let mut replay = Replay::new(id.clone());
    let (mut frames, mut bytes, mut last) = (VecDeque::new(), 0, None);
    // What stands up to here is left to the page before.
    let mut left = low;
    while last.as_ref().is_none_or(|(seq, _)| *seq < high) {
        let entry = match watcher.look().await {
            Ok(Some(SessionUpdate::Entry(entry))) => entry,
            Ok(Some(SessionUpdate::Delta { .. })) => continue,
            // It was deleted meanwhile.
            Ok(None) => break,
            Err(error) => return Err(trouble(&error)),
        };
        let frame = replay.frame(&entry);
        if entry.seq <= low {
            continue;
        }
        last = Some((entry.seq, entry.id.to_string()));
        let Some(frame) = frame.map(shortened) else { continue };
        bytes += frame.len();
        frames.push_back((entry.seq, frame));
        while bytes > MAX_EVENTS_BYTES
            && frames.len() > 1
            && let Some((seq, frame)) = frames.pop_front()
        {
            bytes -= frame.len();
            left = seq;
        }
    }
    let raw = |frame| {
        let text = String::from_utf8(frame).expect("frames are JSON");
        RawValue::from_string(text).expect("frames are JSON")
    };
    Ok(EventPage {
        events: frames.into_iter().map(|(_, frame)| raw(frame)).collect(),
        before: (left > Seq::START).then_some(left.0 + 1),
        last_event_id: last.map(|(_, id)| id),
    })
}

/// How much is left of a text in an event that alone is larger than a page.
const SHORTENED_BYTES: usize = 1 << 20;

/// A frame that has no more than [`MAX_EVENTS_BYTES`]: of a larger one each long text is cut, and `truncated` says so.
fn shortened(frame: Vec<u8>) -> Vec<u8> {
    if frame.len() <= MAX_EVENTS_BYTES {
        return frame;
    }
    let mut event: Map<String, Value> = serde_json::from_slice(&frame).expect("frames are objects");
    drop(frame);
    event.insert("truncated".to_owned(), Value::Bool(true));
    let told = |event: &Map<String, Value>| serde_json::to_vec(event).expect("frames are JSON");
    for member in data_of(&mut event) {
        for value in member.values_mut() {
            if let Value::String(text) = value {
                text.truncate(text.floor_char_boundary(SHORTENED_BYTES));
            }
        }
    }
    let short = told(&event);
    if short.len() <= MAX_EVENTS_BYTES {
        return short;
    }
    data_of(&mut event).for_each(Map::clear);
    told(&event)
}

/// What an event says: `data` of what happens in a run, `payload` of what happens beside.
fn data_of(event: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let says = |(name, value): (&String, _)| matches!(name.as_str(), "data" | "payload").then_some(value);
    event.iter_mut().filter_map(says).filter_map(Value::as_object_mut)
}

fn trouble(error: &LogError) -> ArchiveError {
    ArchiveError::Trouble(error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn short(event: &Value) -> Value {
        let short = shortened(event.to_string().into_bytes());
        assert!(short.len() <= MAX_EVENTS_BYTES, "{}", short.len());
        serde_json::from_slice(&short).unwrap()
    }

    #[test]
    fn an_event_larger_than_a_page_is_shortened_and_says_so() {
        let small = json!({"event_id": "e", "data": {"content": "x"}});
        assert_eq!(short(&small), small);
        let text = "\u{e4}".repeat(MAX_EVENTS_BYTES);
        for member in ["data", "payload"] {
            let cut = short(&json!({"event_id": "e", member: {"content": text, "n": 1}}));
            assert_eq!(
                (&cut["truncated"], &cut["event_id"], &cut[member]["n"]),
                (&json!(true), &json!("e"), &json!(1))
            );
            assert_eq!(cut[member]["content"].as_str().unwrap().len(), SHORTENED_BYTES);
        }
        let many: Vec<String> = (0..MAX_EVENTS_BYTES / 4).map(|number| number.to_string()).collect();
        assert_eq!(short(&json!({"data": {"many": many}})), json!({"data": {}, "truncated": true}));
    }
}
