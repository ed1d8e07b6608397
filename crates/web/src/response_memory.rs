//! The memory of large HTTP responses, which count towards the one budget of all large frames.
//!
//! A response of more than [`FREE_FRAME_BYTES`] reserves its bytes before it is sent, and gives them back when the client has
//! read all but the last pieces. The server disconnects a client that stops reading, sooner if others wait for memory.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use parlor_transport::{FREE_FRAME_BYTES, FrameAccount, FrameMemory};
use serde::Serialize;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::response::{text, typed};

/// How long a client may read nothing of a large response before the server disconnects it.
pub const HTTP_WRITE_WAIT: Duration = Duration::from_secs(30);

/// How long a response waits for memory, and for its turn to read a session. After that the status is 503.
pub const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// How many responses may read through a session at a time. Each may have to hold the largest possible event.
pub const MAX_SESSION_READERS: usize = 4;

/// After how many seconds a client may retry that got a 503 for want of memory.
const RETRY_SECONDS: &str = "5";

/// The size of the pieces in which a response is sent.
const PIECE_BYTES: usize = FREE_FRAME_BYTES;

/// The memory of the response that a connection sends. A connection sends one response at a time.
#[derive(Debug)]
pub(crate) struct ResponseMemory {
    state: Mutex<State>,
    write_wait: Duration,
}

#[derive(Debug)]
struct State {
    account: FrameAccount,
    /// Fires when the client has read nothing for too long. `None` unless a large response is being sent.
    deadline: Option<Pin<Box<Sleep>>>,
}

/// There was not enough memory in time.
#[derive(Debug)]
pub(crate) struct NoMemory;

impl NoMemory {
    pub(crate) fn response() -> Response {
        let reason = "too many large answers are under way; try again in a moment";
        let mut response = text(StatusCode::SERVICE_UNAVAILABLE, reason);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        response
    }
}

impl ResponseMemory {
    pub(crate) fn new(memory: &FrameMemory, write_wait: Duration) -> Arc<Self> {
        let state = State { account: memory.account(), deadline: None };
        Arc::new(Self { state: Mutex::new(state), write_wait })
    }

    /// Waits until the client has stopped reading a response for too long.
    pub(crate) async fn stalled(&self) {
        poll_fn(|cx| {
            let State { account, deadline } = &mut *self.lock();
            let reads_nothing =
                deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready());
            if reads_nothing { Poll::Ready(()) } else { account.poll_overdue(cx) }
        })
        .await;
    }

    /// A response with JSON. A large one waits at most `wait` for memory.
    pub(crate) async fn json(self: &Arc<Self>, value: &impl Serialize, wait: Duration) -> Response {
        let pieces = match Pieces::of(value) {
            Ok(pieces) => pieces,
            Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        };
        if self.reserve(pieces.held(), wait).await.is_err() {
            return NoMemory::response();
        }
        let body = Body::new(CountedBody { pieces, memory: Arc::clone(self) });
        let mut response = typed(StatusCode::OK, "application/json", body);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// A stream has handed over a piece, and holds `held` bytes. The client has to make room for more in time, which the
    /// stream reports with [`on_read`](Self::on_read).
    pub(crate) fn await_reader(&self, held: usize) {
        let State { account, deadline } = &mut *self.lock();
        account.set_arriving(held);
        *deadline = Some(Box::pin(sleep(self.write_wait)));
    }

    /// The client has read enough of a stream for the next piece.
    pub(crate) fn on_read(&self) {
        self.lock().deadline = None;
    }

    /// Reserves memory for `bytes` in place of what was reserved before, and waits at most `wait` for it. A small response
    /// needs no reservation.
    pub(crate) async fn reserve(&self, bytes: usize, wait: Duration) -> Result<(), NoMemory> {
        self.lock().account.set_arriving(bytes);
        if bytes <= FREE_FRAME_BYTES {
            return Ok(());
        }
        let room = poll_fn(|cx| self.lock().account.poll_room(cx));
        if timeout(wait, room).await.is_err() {
            self.lock().account.set_arriving(0);
            return Err(NoMemory);
        }
        self.lock().deadline = Some(Box::pin(sleep(self.write_wait)));
        Ok(())
    }

    /// Keeps `held` bytes reserved: the client has read another piece.
    fn keep(&self, held: usize) {
        let State { account, deadline } = &mut *self.lock();
        account.set_arriving(held);
        match deadline {
            Some(deadline) if held > 0 => deadline.as_mut().reset(Instant::now() + self.write_wait),
            _ => *deadline = None,
        }
    }

    /// Gives all reserved memory back: the response is sent, or nobody wants it.
    pub(crate) fn release(&self) {
        self.keep(0);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer or a message, which is sent in pieces. It stays in memory as a whole until the last piece is taken.
///
/// Each piece is copied when it is taken. A slice would keep the whole answer in memory after the last piece is taken, for as
/// long as the connection has not sent that piece. Pieces that are all made at the start would take the memory twice, and in
/// blocks so small that the allocator does not return them to the system.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    whole: Vec<u8>,
    taken: usize,
}

impl Pieces {
    pub(crate) fn new(mut whole: Vec<u8>) -> Self {
        whole.shrink_to_fit();
        Self { whole, taken: 0 }
    }

    fn of(value: &impl Serialize) -> serde_json::Result<Self> {
        let mut whole = serde_json::to_vec(value)?;
        whole.push(b'\n');
        Ok(Self::new(whole))
    }

    /// Takes the next piece.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        let rest = self.whole.get(self.taken..).filter(|rest| !rest.is_empty())?;
        let piece = Bytes::copy_from_slice(rest.get(..PIECE_BYTES).unwrap_or(rest));
        self.taken += piece.len();
        if self.left() == 0 {
            *self = Self::default();
        }
        Some(piece)
    }

    /// How many bytes were not taken yet.
    pub(crate) fn left(&self) -> usize {
        self.whole.len() - self.taken
    }

    /// How many bytes are in memory.
    pub(crate) fn held(&self) -> usize {
        self.whole.len()
    }
}

/// The body of a response. It gives its reserved memory back when its last piece is taken, and when it is dropped.
struct CountedBody {
    pieces: Pieces,
    memory: Arc<ResponseMemory>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(piece) = self.pieces.take() else { return Poll::Ready(None) };
        self.memory.keep(self.pieces.held());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.pieces.left() as u64)
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.memory.release();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const MIB: usize = 1 << 20;

    fn responses(memory: &FrameMemory) -> Arc<ResponseMemory> {
        ResponseMemory::new(memory, HTTP_WRITE_WAIT)
    }

    async fn piece(body: &mut Body) -> Option<usize> {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        frame.map(|frame| frame.unwrap().into_data().unwrap().len())
    }

    #[tokio::test]
    async fn a_large_response_is_counted_until_it_is_sent() {
        let memory = FrameMemory::new(8 * MIB);
        let responses = responses(&memory);
        let mut body = responses.json(&"x".repeat(2 * MIB), ANSWER_WAIT).await.into_body();
        assert_eq!(body.size_hint().exact(), Some(2 * MIB as u64 + 3));
        let mut used = memory.used();
        assert!(used >= 2 * MIB - FREE_FRAME_BYTES, "{used}");
        let mut sum = 0;
        while let Some(count) = piece(&mut body).await {
            assert!(count <= PIECE_BYTES && memory.used() <= used);
            (sum, used) = (sum + count, memory.used());
        }
        assert_eq!((sum, memory.used()), (2 * MIB + 3, 0));
        let body = responses.json(&"x".repeat(2 * MIB), ANSWER_WAIT).await.into_body();
        drop(body);
        assert_eq!(memory.used(), 0, "the body was dropped");
    }

    #[tokio::test]
    async fn a_small_response_reserves_nothing() {
        let memory = FrameMemory::new(MIB);
        let mut other = memory.account();
        other.hold(4 * MIB);
        let response = responses(&memory).json(&"x".repeat(1000), Duration::ZERO).await;
        assert_eq!(
            (response.status(), response.headers()[CACHE_CONTROL].to_str().unwrap()),
            (StatusCode::OK, "no-store")
        );
        assert_eq!(piece(&mut response.into_body()).await, Some(1003));
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_without_memory_becomes_a_503() {
        let memory = FrameMemory::new(MIB);
        let mut other = memory.account();
        other.hold(4 * MIB);
        let response = responses(&memory).json(&"x".repeat(MIB), ANSWER_WAIT).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER].to_str().unwrap(), RETRY_SECONDS);
        other.release_held();
        assert_eq!(memory.used(), 0);
        assert_eq!(responses(&memory).json(&"x".repeat(MIB), ANSWER_WAIT).await.status(), StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_has_stalled_and_a_slow_one_has_not() {
        let memory = FrameMemory::new(8 * MIB);
        let responses = responses(&memory);
        assert!(responses.stalled().now_or_never().is_none());
        let mut body = responses.json(&"x".repeat(2 * MIB), ANSWER_WAIT).await.into_body();
        for _ in 0..3 {
            tokio::time::sleep(HTTP_WRITE_WAIT - Duration::from_secs(1)).await;
            assert!(responses.stalled().now_or_never().is_none());
            piece(&mut body).await;
        }
        let begun = Instant::now();
        responses.stalled().await;
        assert_eq!(begun.elapsed(), HTTP_WRITE_WAIT);
        drop(body);
        assert!(responses.stalled().now_or_never().is_none(), "no response is being sent");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_has_stalled_sooner_when_others_wait_for_memory() {
        let memory = FrameMemory::new(MIB);
        let (slow, waiting) = (responses(&memory), responses(&memory));
        let mut body = slow.json(&"x".repeat(2 * MIB), ANSWER_WAIT).await.into_body();
        let waits =
            tokio::spawn(
                async move { waiting.json(&"x".repeat(MIB), Duration::from_secs(3600)).await.status() },
            );
        let begun = Instant::now();
        let reads = async {
            loop {
                tokio::time::sleep(Duration::from_secs(5)).await;
                piece(&mut body).await;
            }
        };
        tokio::select! {
            () = slow.stalled() => {}
            () = reads => {}
        }
        assert!(begun.elapsed() < HTTP_WRITE_WAIT, "{:?}", begun.elapsed());
        drop(body);
        assert_eq!(waits.await.unwrap(), StatusCode::OK);
    }
}
