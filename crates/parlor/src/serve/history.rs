//! What happened in a session, from its end backwards, as the frames of the supr door.

use std::collections::VecDeque;

use parlor_doors::supr::Replay;
use parlor_engine::House;
use parlor_host::web::{ArchiveFlaw, EventPage, MAX_EVENTS_BYTES};
use parlor_log::LogError;
use parlor_vocab::{Seen, Seq, SessionId};
use serde_json::value::RawValue;

use super::archive::flaw;

/// The last `limit` entries before the place `before`, as far as clients hear of them.
pub(super) async fn events(
    house: &House,
    id: &SessionId,
    before: Option<u64>,
    limit: usize,
) -> Result<EventPage, ArchiveFlaw> {
    let head = house.record(id).await.map_err(flaw)?.head;
    let high = before.map_or(head, |before| head.min(Seq(before.saturating_sub(1))));
    let low = Seq(high.0.saturating_sub(limit as u64));
    let mut watcher = house.watch(id, house.before_run(id, low).await.map_err(flaw)?).await;
    let mut replay = Replay::new(id.clone());
    let (mut frames, mut bytes, mut last) = (VecDeque::new(), 0, None);
    // What stands up to here is left to the page before.
    let mut left = low;
    while last.as_ref().is_none_or(|(seq, _)| *seq < high) {
        let entry = match watcher.look().await {
            Ok(Some(Seen::Entry(entry))) => entry,
            Ok(Some(Seen::Delta { .. })) => continue,
            // It was deleted meanwhile.
            Ok(None) => break,
            Err(error) => return Err(trouble(&error)),
        };
        let frame = replay.frame(&entry);
        if entry.seq <= low {
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

fn trouble(error: &LogError) -> ArchiveFlaw {
    ArchiveFlaw::Trouble(error.to_string())
}
