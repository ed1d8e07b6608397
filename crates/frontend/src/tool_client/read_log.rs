//! Reads the events of a session for a client that keeps its position.

use parlor_engine::{Sessions, text_bytes};
use parlor_vocab::{Seq, SessionId, SessionRefusal, SessionUpdate, ToolClientReply};

/// How many events are read at most.
const MAX_READ_EVENTS: usize = 1000;

/// Reads the events after `after` up to the present end, as far as they fit into `max_bytes` of text.
pub(super) async fn read_log(
    sessions: &Sessions,
    session: &SessionId,
    after: Seq,
    max_bytes: usize,
) -> Result<ToolClientReply, SessionRefusal> {
    let head = sessions.record(session).await?.head;
    let mut watcher = sessions.watch(session, after).await;
    let (mut entries, mut bytes, mut last) = (Vec::new(), 0, after);
    while last < head {
        let update = watcher.try_next().await.map_err(|error| unavailable(&error))?;
        let Some(update) = update else { break };
        let SessionUpdate::Entry(entry) = update else { continue };
        bytes += text_bytes(&entry.event);
        if !entries.is_empty() && (bytes > max_bytes || entries.len() == MAX_READ_EVENTS) {
            return Ok(ToolClientReply::Log { entries, has_more: true });
        }
        last = entry.seq;
        entries.push(entry);
    }
    Ok(ToolClientReply::Log { entries, has_more: false })
}

pub(super) fn unavailable(error: &impl ToString) -> SessionRefusal {
    SessionRefusal::LogUnavailable { reason: error.to_string() }
}
