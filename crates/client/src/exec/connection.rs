//! A connection as its handles see it: requests go in, answers come back.
//!
//! It ends with its last handle. What arrives is the business of `driver`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parlor_doors::exec::MAX_LINE_BYTES;
use parlor_doors::jsonrpc::{self, RequestId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::inbox::Inbox;
use super::link::{Link, Pending};
use super::{ExecServerError, driver};
use crate::child::Vitals;

/// How many calls of one client may be without an answer; more of them wait for their turn.
///
/// The server serves one after another, so this is about memory and not about speed.
pub const MAX_PENDING_CALLS: usize = 256;

/// How many frames may wait for a server that does not read. Few, since one may be 64 MiB.
const QUEUED_FRAMES: usize = 16;

#[derive(Debug)]
pub(super) struct Connection {
    link: Arc<Link>,
    frames: mpsc::Sender<Vec<u8>>,
    next_id: AtomicI64,
    driver: AbortHandle,
    /// Nothing is ever sent: that it is gone tells the keeper of the server's process to end it.
    _in_use: Option<oneshot::Sender<Infallible>>,
}

impl Connection {
    pub(super) fn open<R, W>(
        reader: R,
        writer: W,
        vitals: Vitals,
        in_use: Option<oneshot::Sender<Infallible>>,
    ) -> Self
    where
        R: AsyncRead + Send + 'static,
        W: AsyncWrite + Send + 'static,
    {
        let link = Arc::new(Link::new(MAX_PENDING_CALLS));
        let (frames, queue) = mpsc::channel(QUEUED_FRAMES);
        // The task has the link and not the connection, or the connection would keep itself alive.
        let driver = tokio::spawn(driver::drive(reader, writer, queue, Arc::clone(&link), vitals));
        let driver = driver.abort_handle();
        Self { link, frames, next_id: AtomicI64::new(1), driver, _in_use: in_use }
    }

    /// Sends a request and waits for its result. If the future is dropped, the request may have been
    /// sent; its answer will be ignored.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        to: Option<Arc<Inbox>>,
    ) -> Result<T, ExecServerError> {
        let (reply, answer) = oneshot::channel();
        let id = self.submit(method, params, Pending::Call { to, reply }).await?;
        // Callers who give up on a server that does not answer must not use up all the slots.
        let _forget = Forget { link: &self.link, id };
        let result = answer.await.unwrap_or_else(|_| Err(self.link.verdict()))?;
        serde_json::from_str(result.get()).map_err(|flaw| {
            let error = ExecServerError::protocol(&format!("result of `{method}`: {flaw}"));
            self.end(error.clone());
            error
        })
    }

    /// Sends the request to start `inbox`'s process and waits until it is started. If the future is
    /// dropped, the entry stays: only the answer tells whether the process's id is in use.
    pub(super) async fn start(
        &self,
        method: &str,
        params: &impl Serialize,
        inbox: Arc<Inbox>,
    ) -> Result<(), ExecServerError> {
        let (reply, answer) = oneshot::channel();
        self.submit(method, params, Pending::Start { inbox, reply }).await?;
        answer.await.unwrap_or_else(|_| Err(self.link.verdict()))
    }

    pub(super) async fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), ExecServerError> {
        let frame = jsonrpc::notification(method, params);
        self.frames.send(frame).await.map_err(|_| self.link.verdict())
    }

    /// Ends the connection for all its handles.
    pub(super) fn end(&self, verdict: ExecServerError) {
        self.link.end(verdict);
        self.driver.abort();
    }

    async fn submit(
        &self,
        method: &str,
        params: &impl Serialize,
        pending: Pending,
    ) -> Result<i64, ExecServerError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let frame = jsonrpc::request(&RequestId::Integer(id), method, params);
        // A server answers a line that is too long with an error that names no request.
        if frame.len() > MAX_LINE_BYTES {
            return Err(ExecServerError::RequestTooLong { bytes: frame.len() });
        }
        let slot = Arc::clone(&self.link.slots).acquire_owned().await.map_err(|_| self.link.verdict())?;
        let place = self.frames.reserve().await.map_err(|_| self.link.verdict())?;
        // From here to the end nothing waits: a dropped future has done all of it or none.
        self.link.enter(id, pending, slot, || place.send(frame))?;
        Ok(id)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Also while it writes to a server that does not read. Its input and output close with it.
        self.driver.abort();
    }
}

struct Forget<'a> {
    link: &'a Link,
    id: i64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.link.leave(self.id);
    }
}
