//! The events of one session as server-sent events, from any position of its log on, with live text.
//!
//! A stream holds a log position, at most one message, and some events that were read together with it. The memory budget
//! counts all of that. A client that reads slowly falls behind on the log, and nothing is queued for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{ACCEPT, CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::stream::unfold;
use parlor_doors::supr::Replay;
use parlor_engine::{Watcher, text_bytes};
use parlor_transport::{CloseReason, LONG_FRAME_BYTES, block_in_place_if_large};
use parlor_vocab::{Clock, Seq, SessionId, SessionUpdate};
use tokio::time::timeout;

use super::events::shortened;
use super::session_error::SessionApiError;
use crate::auth::request_source::header_text;
use crate::connection_life::{ConnectionLife, DeferredEnd};
use crate::random::uuid;
use crate::response::typed;
use crate::response_memory::{NoMemory, Pieces, ResponseMemory};
use crate::site::Site;
use crate::socket::connections::ConnectionSlot;
use crate::socket::handshake::HandshakeError;

/// After how much silence a stream sends a comment, so that proxies and clients do not take it for dead.
pub const STREAM_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The media type of server-sent events.
const EVENT_STREAM: &str = "text/event-stream";

/// The header in which a client that reconnects names the last event that it has got.
const LAST_EVENT_ID: &str = "last-event-id";

/// What a stream sends after [`STREAM_KEEP_ALIVE`]. Clients ignore lines that begin with a colon.
const COMMENT: &[u8] = b": keep-alive\n\n";

/// Whether a client asks for server-sent events.
pub(super) fn is_requested(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_stream = parts.next().is_some_and(|media_type| media_type.eq_ignore_ascii_case(EVENT_STREAM));
        // A weight of 0 means "anything but this".
        let weight =
            parts.find_map(|part| part.strip_prefix("q=")).and_then(|weight| weight.parse::<f32>().ok());
        is_stream && weight != Some(0.0)
    })
}

/// `Last-Event-ID` is not the number of an event.
pub(super) struct InvalidLastEventId;

/// The number of the last event that a client has got, if it names one.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, InvalidLastEventId> {
    if !headers.contains_key(LAST_EVENT_ID) {
        return Ok(None);
    }
    let number = header_text(headers, LAST_EVENT_ID).and_then(|number| number.parse().ok());
    number.map(Some).ok_or(InvalidLastEventId)
}

/// A stream of the events after the number `after`, or of all events if there is no event with that number.
pub(super) async fn respond(
    site: &Arc<Site>,
    memory: Arc<ResponseMemory>,
    life: &Arc<ConnectionLife>,
    id: &str,
    after: u64,
    parts: &Parts,
) -> Result<Response, SessionApiError> {
    let sessions = &site.deps.sessions;
    let session = SessionId::parse(id).map_err(|_| SessionApiError::Unknown)?;
    let Ok(permit) = site.session_reader().await else { return Ok(NoMemory::response()) };
    let head = sessions.record(&session).await?.head;
    let evictions = site.deps.tokens.now().evictions;
    // A slot belongs to a session, and a new one replaces the old. A random id takes a slot and replaces none.
    let Ok(slot) = site.connections.reserve(&uuid((site.deps.random)()), evictions) else {
        return Ok(site.refuse(HandshakeError::TooMany, parts));
    };
    // A number beyond the last event is from an earlier session with this id, which was deleted: the client has seen
    // nothing of this one.
    let after = if after > head.0 { Seq::START } else { Seq(after) };
    // Frames depend on earlier events of the same run, so reading starts where the run does.
    let start = sessions.start_of_run_at(&session, after).await?;
    let watcher = sessions.join(&session, start).await.limit_reads(site.session_read_permits());
    drop(permit);
    let messages =
        Messages { after, head, last: start, ..Messages::new(session, Arc::clone(&site.deps.clock)) };
    let (stop, _) = slot.occupy();
    let limits = site.deps.settings.limits;
    let stream = EventStream {
        watcher,
        messages,
        pieces: Pieces::default(),
        memory,
        stop: Box::pin(stop.stopped()),
        is_ending: false,
        keep_alive: limits.stream_keep_alive,
        memory_wait: limits.answer_wait,
        _deferred: life.defer(),
        _slot: slot,
    };
    let pieces = unfold(stream, async |mut stream| {
        let piece = stream.next().await?;
        Some((Ok::<_, std::convert::Infallible>(piece), stream))
    });
    let mut response = typed(StatusCode::OK, EVENT_STREAM, Body::from_stream(pieces));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would collect messages before it passes them on.
    response
        .headers_mut()
        .insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}

/// The body of a response: messages as they come, until the server or the client ends the stream.
struct EventStream {
    watcher: Watcher,
    messages: Messages,
    /// The rest of the message that is being sent.
    pieces: Pieces,
    memory: Arc<ResponseMemory>,
    /// Completes when the server has to end the stream.
    stop: Pin<Box<dyn Future<Output = CloseReason> + Send>>,
    /// Whether the server stops: the stream sends the events that exist, and ends.
    is_ending: bool,
    keep_alive: Duration,
    memory_wait: Duration,
    /// Keeps the connection from ending because of its age.
    _deferred: DeferredEnd,
    _slot: ConnectionSlot,
}

impl EventStream {
    /// The next piece to send. `None` ends the stream: the server stops, the token was replaced, the log cannot be read,
    /// or there was no memory for a large event in time. The client may reconnect.
    async fn next(&mut self) -> Option<Bytes> {
        self.memory.on_read();
        if self.pieces.left() == 0 {
            let message = self.next_message().await?;
            // Others may read from the log when the memory for this message is reserved.
            let _permit = self.watcher.take_read_permit();
            self.reserve(message.len()).await.ok()?;
            self.pieces = Pieces::new(message);
        }
        let piece = self.pieces.take()?;
        self.memory.await_reader(self.pieces.held() + self.watcher.read_ahead_bytes());
        Some(piece)
    }

    /// Reserves memory for a message, and for the events that were read with it if there is enough. Otherwise these are
    /// freed: a small message does not wait because of them.
    async fn reserve(&mut self, message_bytes: usize) -> Result<(), NoMemory> {
        // Encoding a large event takes several times its memory, so it happens only with the permit of the read.
        if self.watcher.has_read_ahead_of(LONG_FRAME_BYTES) {
            self.watcher.forget_read_ahead();
        }
        let all = message_bytes + self.watcher.read_ahead_bytes();
        if self.memory.reserve(all, Duration::ZERO).await.is_ok() {
            return Ok(());
        }
        self.watcher.forget_read_ahead();
        self.memory.reserve(message_bytes, self.memory_wait).await
    }

    async fn next_message(&mut self) -> Option<Vec<u8>> {
        loop {
            let update = if self.is_ending {
                self.watcher.try_next().await.ok()??
            } else {
                tokio::select! {
                    biased;
                    reason = &mut self.stop => match reason {
                        CloseReason::GoingAway => {
                            self.is_ending = true;
                            continue;
                        }
                        CloseReason::Evicted | CloseReason::Replaced => return None,
                    },
                    update = timeout(self.keep_alive, self.watcher.next()) => match update {
                        Ok(update) => update.ok()?,
                        Err(_) => return Some(COMMENT.to_vec()),
                    },
                }
            };
            if let Some(message) = self.messages.message(&update) {
                return Some(message);
            }
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.memory.release();
    }
}

/// Makes messages of the updates of a session.
struct Messages {
    session: SessionId,
    replay: Replay,
    /// The last event that the client has got in an earlier stream.
    after: Seq,
    /// The last event when the stream began.
    head: Seq,
    /// The last event that was read.
    last: Seq,
    clock: Arc<dyn Clock>,
}

impl Messages {
    /// Messages of a session from its first event on.
    fn new(session: SessionId, clock: Arc<dyn Clock>) -> Self {
        let replay = Replay::new(session.clone());
        Self { session, replay, after: Seq::START, head: Seq::START, last: Seq::START, clock }
    }

    /// The message of an update; `None` if clients do not get it.
    fn message(&mut self, update: &SessionUpdate) -> Option<Vec<u8>> {
        let entry = match update {
            SessionUpdate::Entry(entry) => entry,
            // Text of the past: the event that completes it has all of it.
            SessionUpdate::Delta { .. } if self.last < self.head => return None,
            SessionUpdate::Delta { run, stream, text } => {
                let data = self.replay.delta(run, stream, text, self.clock.now());
                return Some(encode_message(b"event: delta", &data));
            }
        };
        if entry.seq <= self.last {
            // The session was deleted and created again.
            *self = Self::new(self.session.clone(), Arc::clone(&self.clock));
        }
        self.last = entry.seq;
        let (id, is_new) = (format!("id: {}", entry.seq.0), entry.seq > self.after);
        block_in_place_if_large(text_bytes(&entry.event), || {
            let frame = self.replay.frame(entry)?;
            is_new.then(|| encode_message(id.as_bytes(), &shortened(frame)))
        })
    }
}

/// A message with one line before its data. The data is JSON without line breaks.
fn encode_message(line: &[u8], data: &[u8]) -> Vec<u8> {
    [line, b"\ndata: ", data, b"\n\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn only_a_client_that_names_the_media_type_gets_a_stream() {
        for accept in
            ["text/event-stream", "application/json, Text/Event-Stream;q=0.5", "text/event-stream; q=1"]
        {
            assert!(is_requested(&headers("accept", accept)), "{accept}");
        }
        for accept in ["*/*", "text/*", "application/json", "text/event-stream;q=0", "text/event-streams"] {
            assert!(!is_requested(&headers("accept", accept)), "{accept}");
        }
        assert!(!is_requested(&HeaderMap::new()));
    }

    #[test]
    fn the_last_event_id_is_a_whole_number() {
        for (text, number) in [("0", 0), ("17", 17), ("18446744073709551615", u64::MAX)] {
            assert!(
                matches!(last_event_id(&headers(LAST_EVENT_ID, text)), Ok(Some(found)) if found == number)
            );
        }
        for text in ["", "-1", "1.0", "evt_1", "18446744073709551616"] {
            assert!(last_event_id(&headers(LAST_EVENT_ID, text)).is_err(), "{text}");
        }
        assert!(matches!(last_event_id(&HeaderMap::new()), Ok(None)));
    }
}
