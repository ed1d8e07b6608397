//! What the answers of one HTTP connection hold, within the one budget of all large frames.
//!
//! An answer beyond [`FREE_FRAME_BYTES`] reserves its bytes before it is sent and gives them back piece by piece, as the
//! client takes them. A client that takes nothing is hung up on: after a while, and sooner if others wait for memory.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::answer::{text, typed};
use parlor_transport::{FREE_FRAME_BYTES, FrameAccount, FrameMemory};

/// How long a client may leave a large answer lying before it is hung up on.
pub const HTTP_WRITE_WAIT: Duration = Duration::from_secs(30);

/// How long an answer waits for memory, and for its turn to be made. Then it is a 503.
pub const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// How many answers that look through a session are made at a time: each may have to read the largest event there can be.
pub const MAX_ANSWERS_MADE: usize = 4;

/// When a client that got a 503 for want of memory may ask again, in seconds.
const RETRY_SECONDS: &str = "5";

/// The pieces in which a large answer is made and handed out.
const PIECE_BYTES: usize = FREE_FRAME_BYTES;

/// What one connection's answer holds. There is one answer at a time.
#[derive(Debug)]
pub(crate) struct Outflow {
    state: Mutex<State>,
    write_wait: Duration,
}

#[derive(Debug)]
struct State {
    account: FrameAccount,
    /// Rings when the client has taken nothing for too long. There while an answer is being sent.
    alarm: Option<Pin<Box<Sleep>>>,
}

/// There was no memory in time.
#[derive(Debug)]
pub(crate) struct NoMemory;

impl NoMemory {
    pub(crate) fn response() -> Response {
        let what = "too many large answers are under way; try again in a moment";
        let mut response = text(StatusCode::SERVICE_UNAVAILABLE, what);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        response
    }
}

impl Outflow {
    pub(crate) fn new(memory: &FrameMemory, write_wait: Duration) -> Arc<Self> {
        let state = State { account: memory.account(), alarm: None };
        Arc::new(Self { state: Mutex::new(state), write_wait })
    }

    /// Ready once the client has left an answer lying for too long.
    pub(crate) async fn stalled(&self) {
        poll_fn(|cx| {
            let State { account, alarm } = &mut *self.lock();
            let takes_nothing = alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(cx).is_ready());
            if takes_nothing { Poll::Ready(()) } else { account.poll_overdue(cx) }
        })
        .await;
    }

    /// Answers with JSON, at once if it is small, else when there is memory for it.
    pub(crate) async fn json(self: &Arc<Self>, value: &impl Serialize, wait: Duration) -> Response {
        let pieces = match Pieces::of(value) {
            Ok(pieces) => pieces,
            Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        };
        let bytes = pieces.left;
        if bytes > FREE_FRAME_BYTES && self.reserve(bytes, wait).await.is_err() {
            return NoMemory::response();
        }
        let body = Body::new(Sent { pieces, outflow: Arc::clone(self) });
        let mut response = typed(StatusCode::OK, "application/json", body);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    async fn reserve(&self, bytes: usize, wait: Duration) -> Result<(), NoMemory> {
        self.lock().account.set_arriving(bytes);
        let room = poll_fn(|cx| self.lock().account.poll_room(cx));
        if timeout(wait, room).await.is_err() {
            self.lock().account.set_arriving(0);
            return Err(NoMemory);
        }
        self.lock().alarm = Some(Box::pin(sleep(self.write_wait)));
        Ok(())
    }

    /// The client has taken all but `left` bytes.
    fn shrink(&self, left: usize) {
        let State { account, alarm } = &mut *self.lock();
        account.set_arriving(left);
        match alarm {
            Some(alarm) if left > 0 => alarm.as_mut().reset(Instant::now() + self.write_wait),
            _ => *alarm = None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// JSON in pieces, each of which is freed when it has left.
#[derive(Debug, Default)]
struct Pieces {
    ready: VecDeque<Bytes>,
    last: Vec<u8>,
    left: usize,
}

impl Pieces {
    fn of(value: &impl Serialize) -> serde_json::Result<Self> {
        let mut pieces = Self::default();
        serde_json::to_writer(&mut pieces, value)?;
        let _ = io::Write::write(&mut pieces, b"\n");
        let last = std::mem::take(&mut pieces.last);
        pieces.ready.push_back(last.into());
        Ok(pieces)
    }
}

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE_BYTES - self.last.len());
        self.last.extend_from_slice(bytes.get(..count).unwrap_or_default());
        self.left += count;
        if self.last.len() == PIECE_BYTES {
            self.ready.push_back(std::mem::take(&mut self.last).into());
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An answer that is being sent. What it has reserved goes back with its pieces, or when it is dropped.
struct Sent {
    pieces: Pieces,
    outflow: Arc<Outflow>,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(piece) = self.pieces.ready.pop_front() else { return Poll::Ready(None) };
        self.pieces.left -= piece.len();
        self.outflow.shrink(self.pieces.left);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.pieces.left as u64)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.outflow.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const MIB: usize = 1 << 20;

    fn outflow(memory: &FrameMemory) -> Arc<Outflow> {
        Outflow::new(memory, HTTP_WRITE_WAIT)
    }

    async fn piece(body: &mut Body) -> Option<usize> {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        frame.map(|frame| frame.unwrap().into_data().unwrap().len())
    }

    #[tokio::test]
    async fn a_large_answer_is_counted_until_it_has_left() {
        let memory = FrameMemory::new(8 * MIB);
        let outflow = outflow(&memory);
        let mut body = outflow.json(&"x".repeat(2 * MIB), ANSWER_WAIT).await.into_body();
        assert_eq!(body.size_hint().exact(), Some(2 * MIB as u64 + 3));
        let mut used = memory.used();
        assert!(used >= 2 * MIB - FREE_FRAME_BYTES, "{used}");
        let mut sum = 0;
        while let Some(count) = piece(&mut body).await {
            assert!(count <= PIECE_BYTES && memory.used() <= used);
            (sum, used) = (sum + count, memory.used());
        }
        assert_eq!((sum, memory.used()), (2 * MIB + 3, 0));
        let body = outflow.json(&"x".repeat(2 * MIB), ANSWER_WAIT).await.into_body();
        drop(body);
        assert_eq!(memory.used(), 0, "nobody wanted it");
    }

    #[tokio::test]
    async fn a_small_answer_needs_nothing() {
        let memory = FrameMemory::new(MIB);
        let mut other = memory.account();
        other.keep(4 * MIB);
        let response = outflow(&memory).json(&"x".repeat(1000), Duration::ZERO).await;
        assert_eq!(
            (response.status(), response.headers()[CACHE_CONTROL].to_str().unwrap()),
            (StatusCode::OK, "no-store")
        );
        assert_eq!(piece(&mut response.into_body()).await, Some(1003));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_memory_is_a_503_after_a_while() {
        let memory = FrameMemory::new(MIB);
        let mut other = memory.account();
        other.keep(4 * MIB);
        let response = outflow(&memory).json(&"x".repeat(MIB), ANSWER_WAIT).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER].to_str().unwrap(), RETRY_SECONDS);
        other.let_go();
        assert_eq!(memory.used(), 0);
        assert_eq!(outflow(&memory).json(&"x".repeat(MIB), ANSWER_WAIT).await.status(), StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_noticed_and_who_takes_something_is_not() {
        let memory = FrameMemory::new(8 * MIB);
        let outflow = outflow(&memory);
        assert!(outflow.stalled().now_or_never().is_none());
        let mut body = outflow.json(&"x".repeat(2 * MIB), ANSWER_WAIT).await.into_body();
        for _ in 0..3 {
            tokio::time::sleep(HTTP_WRITE_WAIT - Duration::from_secs(1)).await;
            assert!(outflow.stalled().now_or_never().is_none());
            piece(&mut body).await;
        }
        let begun = Instant::now();
        outflow.stalled().await;
        assert_eq!(begun.elapsed(), HTTP_WRITE_WAIT);
        drop(body);
        assert!(outflow.stalled().now_or_never().is_none(), "there is no answer any more");
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_little_is_hung_up_on_when_others_wait() {
        let memory = FrameMemory::new(MIB);
        let (slow, waiting) = (outflow(&memory), outflow(&memory));
        let mut body = slow.json(&"x".repeat(2 * MIB), ANSWER_WAIT).await.into_body();
        let waits =
            tokio::spawn(
                async move { waiting.json(&"x".repeat(MIB), Duration::from_secs(3600)).await.status() },
            );
        let begun = Instant::now();
        let takes = async {
            loop {
                tokio::time::sleep(Duration::from_secs(5)).await;
                piece(&mut body).await;
            }
        };
        tokio::select! {
            () = slow.stalled() => {}
            () = takes => {}
        }
        assert!(begun.elapsed() < HTTP_WRITE_WAIT, "{:?}", begun.elapsed());
        drop(body);
        assert_eq!(waits.await.unwrap(), StatusCode::OK);
    }
}
