//! The requests of the exec dialect on a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parlor_doors::exec::{MAX_LINE_BYTES, method};
use parlor_doors::jsonrpc::{self, RequestId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::ExecServerError;
use super::events::ProcessEvents;
use super::handler::ExecHandler;
use super::output::ProcessOutput;
use super::pending::{PendingRequest, PendingRequests};
use crate::child::connection::Connection;
use crate::child::process::{ChildStatus, EndChild};

/// How many calls of one client may wait for their answers at a time. Further calls wait until one is answered.
///
/// The server handles one call after another, so this limits memory and not speed.
pub const MAX_PENDING_CALLS: usize = 256;

#[derive(Debug)]
pub(super) struct ExecConnection {
    connection: Connection<PendingRequests>,
    next_id: AtomicI64,
    /// Nothing is ever sent on it. Dropping it tells the task that waits for the server's process to end the server.
    _end_server: Option<oneshot::Sender<EndChild>>,
}

impl ExecConnection {
    pub(super) fn open<R, W>(
        reader: R,
        writer: W,
        status: ChildStatus,
        end_server: Option<oneshot::Sender<EndChild>>,
    ) -> Self
    where
        R: AsyncRead + Send + 'static,
        W: AsyncWrite + Send + 'static,
    {
        let make_handler = |link| ExecHandler { link, status: status.clone() };
        let connection = Connection::open((reader, writer), status.clone(), MAX_PENDING_CALLS, make_handler);
        Self { connection, next_id: AtomicI64::new(1), _end_server: end_server }
    }

    /// Sends a request and waits for its result. If the future is dropped, the request may have been sent; its answer is
    /// then ignored.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        process: Option<Arc<ProcessOutput>>,
    ) -> Result<T, ExecServerError> {
        let (reply, answer) = oneshot::channel();
        let id = self.submit(method, params, PendingRequest::Call { process, reply }).await?;
        let forget = |pending: &mut PendingRequests| drop(pending.take(id));
        let result = self.connection.answer(answer, forget).await?;
        serde_json::from_str(result.get()).map_err(|error| {
            let error = ExecServerError::protocol(&format!("result of `{method}`: {error}"));
            self.end(error.clone());
            error
        })
    }

    /// Sends the request to start `process` and waits until it is started. If the future is dropped, the request stays
    /// pending, because only its answer tells whether the process id is in use.
    pub(super) async fn start(
        &self,
        method: &str,
        params: &impl Serialize,
        process: Arc<ProcessOutput>,
    ) -> Result<(), ExecServerError> {
        let (reply, answer) = oneshot::channel();
        self.submit(method, params, PendingRequest::Start { process, reply }).await?;
        self.connection.answer(answer, |_| ()).await
    }

    /// Like [`start`](Self::start), for a process with numbered events.
    pub(super) async fn start_numbered(
        &self,
        params: &impl Serialize,
        process: Arc<ProcessEvents>,
    ) -> Result<(), ExecServerError> {
        let (reply, answer) = oneshot::channel();
        let request = PendingRequest::StartNumbered { process, reply };
        self.submit(method::PROCESS_START, params, request).await?;
        self.connection.answer(answer, |_| ()).await
    }

    /// Reads what a process did before this connection, and passes it to `process` together with its further events.
    pub(super) async fn catch_up(
        &self,
        params: &impl Serialize,
        process: Arc<ProcessEvents>,
    ) -> Result<(), ExecServerError> {
        let (reply, answer) = oneshot::channel();
        self.submit(method::PROCESS_READ, params, PendingRequest::CatchUp { process, reply }).await?;
        self.connection.answer(answer, |_| ()).await
    }

    pub(super) async fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), ExecServerError> {
        self.connection.send(jsonrpc::notification(method, params)).await
    }

    /// Ends the connection for all its handles.
    pub(super) fn end(&self, reason: ExecServerError) {
        self.connection.end(reason);
    }

    async fn submit(
        &self,
        method: &str,
        params: &impl Serialize,
        request: PendingRequest,
    ) -> Result<i64, ExecServerError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let frame = jsonrpc::request(&RequestId::Integer(id), method, params);
        // A server answers a line over the limit with an error that names no request.
        if frame.len() > MAX_LINE_BYTES {
            return Err(ExecServerError::RequestTooLong { bytes: frame.len() });
        }
        self.connection.submit(frame, |pending, slot| pending.add(id, request, slot)).await?;
        Ok(id)
    }
}
