//! A connection as its handles see it: they queue requests and wait for answers.
//!
//! The connection ends with its last handle. The task in `driver.rs` handles what arrives.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::AbortHandle;

use super::driver::{FrameHandler, drive};
use super::link::{Link, PendingTable};
use super::process::ChildStatus;

/// How many frames may wait for a child that does not read. Few, since an exec frame may have 64 MiB.
const QUEUED_FRAMES: usize = 16;

#[derive(Debug)]
pub(crate) struct Connection<T: PendingTable> {
    link: Arc<Link<T>>,
    frames: mpsc::Sender<Vec<u8>>,
    task: AbortHandle,
}

impl<T: PendingTable> Connection<T> {
    /// Starts the connection's task with the handler that `make_handler` returns. At most `max_pending` requests wait for
    /// an answer at a time.
    pub(crate) fn open<R, W, H>(
        (reader, writer): (R, W),
        status: ChildStatus,
        max_pending: usize,
        make_handler: impl FnOnce(Arc<Link<T>>) -> H,
    ) -> Self
    where
        R: AsyncRead + Send + 'static,
        W: AsyncWrite + Send + 'static,
        H: FrameHandler<Error = T::Error>,
    {
        let link = Arc::new(Link::new(max_pending));
        let (frames, queue) = mpsc::channel(QUEUED_FRAMES);
        // The task holds the link and not the connection, which would otherwise never be dropped.
        let handler = make_handler(Arc::clone(&link));
        let task = tokio::spawn(drive((reader, writer), queue, Arc::clone(&link), status, handler));
        Self { link, frames, task: task.abort_handle() }
    }

    pub(crate) fn link(&self) -> &Link<T> {
        &self.link
    }

    /// Sends a request, which `add` adds to the pending ones. Waits for a slot and for room in the queue.
    pub(crate) async fn submit(
        &self,
        frame: Vec<u8>,
        add: impl FnOnce(&mut T, OwnedSemaphorePermit) -> Result<(), T::Error>,
    ) -> Result<(), T::Error> {
        let slot = self.link.slot().await?;
        let room = self.frames.reserve().await.map_err(|_| self.link.end_reason())?;
        // No `await` from here on: a future that is dropped has done all of it or nothing.
        self.link.add_and_queue(|pending| add(pending, slot), || room.send(frame))
    }

    /// Waits for the answer to a request. `forget` removes the request when this future ends or is dropped, so that callers
    /// who give up on a child that does not answer do not use up all slots.
    pub(crate) async fn answer<A>(
        &self,
        answer: oneshot::Receiver<Result<A, T::Error>>,
        forget: impl FnOnce(&mut T),
    ) -> Result<A, T::Error> {
        let _forget = ForgetOnDrop { link: &self.link, forget: Some(forget) };
        answer.await.unwrap_or_else(|_| Err(self.link.end_reason()))
    }

    /// Sends a frame that has no answer.
    pub(crate) async fn send(&self, frame: Vec<u8>) -> Result<(), T::Error> {
        self.frames.send(frame).await.map_err(|_| self.link.end_reason())
    }

    /// Waits until the child takes no more frames.
    pub(crate) async fn closed(&self) {
        self.frames.closed().await;
    }

    /// Ends the connection for all its handles.
    pub(crate) fn end(&self, reason: T::Error) {
        self.link.end(reason);
        self.task.abort();
    }
}

impl<T: PendingTable> Drop for Connection<T> {
    fn drop(&mut self) {
        // This also interrupts a write to a child that does not read. The child's input and output close with the task.
        self.task.abort();
    }
}

struct ForgetOnDrop<'a, T: PendingTable, F: FnOnce(&mut T)> {
    link: &'a Link<T>,
    forget: Option<F>,
}

impl<T: PendingTable, F: FnOnce(&mut T)> Drop for ForgetOnDrop<'_, T, F> {
    fn drop(&mut self) {
        if let Some(forget) = self.forget.take() {
            self.link.with_pending(forget);
        }
    }
}
