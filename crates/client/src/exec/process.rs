//! A process on an exec server, as a handle.

use std::fmt;
use std::sync::Arc;

use parlor_doors::exec::{
    ByteChunk, ExecOutputStream, ExecParams, TerminateParams, TerminateResponse, WriteParams, WriteResponse,
    method,
};

use super::connection::Connection;
use super::inbox::{Ending, Inbox};
use super::{ExecOutput, ExecServerError};

/// A process that a client started.
///
/// As with [`std::process::Child`], dropping the handle does not end the process: it runs on until
/// it exits or the connection ends, and its output is discarded. To end it, [`terminate`] it.
///
/// [`terminate`]: Self::terminate
pub struct ExecServerProcess {
    /// Also keeps the server alive for as long as there is a handle on a process.
    connection: Arc<Connection>,
    inbox: Arc<Inbox>,
}

/// All that a process wrote, and how it exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecFinished {
    /// What it wrote to standard output, or to its terminal.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// Its exit code.
    pub exit_code: i32,
}

impl ExecServerProcess {
    pub(super) async fn start(
        connection: Arc<Connection>,
        params: &ExecParams,
    ) -> Result<Self, ExecServerError> {
        let inbox = Arc::new(Inbox::new(params.process_id.clone()));
        // The handle is made first: if this future is dropped while it waits, so is the handle, and
        // output of the process that may have been started is discarded instead of piling up.
        let process = Self { connection, inbox };
        process.connection.start(method::EXEC, params, Arc::clone(&process.inbox)).await?;
        Ok(process)
    }

    /// The id under which it was started.
    pub fn id(&self) -> &str {
        &self.inbox.process_id
    }

    /// Waits for output. `None` once the process has exited and all its output was handed out.
    ///
    /// If the connection ended first, that is an error, again after all output that had arrived.
    ///
    /// Cancel safe: if the future is dropped, no output is lost.
    pub async fn next_output(&mut self) -> Result<Option<ExecOutput>, ExecServerError> {
        self.inbox.next().await
    }

    /// Waits for the exit of the process and gives its exit code.
    ///
    /// **Discards the output** that was not read before; [`output`](Self::output) keeps it. If the
    /// future is dropped, output it has discarded by then stays lost.
    pub async fn wait(&mut self) -> Result<i32, ExecServerError> {
        while self.next_output().await?.is_some() {}
        self.exit_code().ok_or(ExecServerError::CLOSED)
    }

    /// Waits for the exit of the process and gives all output that was not read before, however much
    /// it is.
    pub async fn output(mut self) -> Result<ExecFinished, ExecServerError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        while let Some(ExecOutput { stream, mut bytes }) = self.next_output().await? {
            let all = match stream {
                ExecOutputStream::Stdout => &mut stdout,
                ExecOutputStream::Stderr => &mut stderr,
            };
            if all.is_empty() {
                *all = bytes;
            } else {
                all.append(&mut bytes);
            }
        }
        let exit_code = self.wait().await?;
        Ok(ExecFinished { stdout, stderr, exit_code })
    }

    /// The exit code, as soon as the server has reported it; output may still be unread then.
    pub fn exit_code(&self) -> Option<i32> {
        match self.inbox.ending() {
            Some(Ending::Exited(code)) => Some(code),
            Some(Ending::Lost(_)) | None => None,
        }
    }

    /// Writes to the terminal of the process. Without a terminal, the server refuses.
    ///
    /// Done when the server has accepted the bytes, which need not have been read yet. Writes are
    /// done in the order in which their futures were first polled. A future that is dropped may or may
    /// not have written all its bytes.
    ///
    /// The future does not borrow the handle, so output can be read while it waits. Do that if
    /// there may be more of it than a backlog holds: the answer comes behind the output.
    pub fn write<B: Into<Vec<u8>>>(
        &self,
        bytes: B,
    ) -> impl Future<Output = Result<(), ExecServerError>> + Send + use<B> {
        let (connection, inbox) = (Arc::clone(&self.connection), Arc::clone(&self.inbox));
        let params = WriteParams { process_id: inbox.process_id.clone(), chunk: ByteChunk(bytes.into()) };
        async move {
            let written: WriteResponse = connection.call(method::WRITE, &params, Some(inbox)).await?;
            if !written.accepted {
                let error = ExecServerError::protocol("a write was neither accepted nor refused");
                connection.end(error.clone());
                return Err(error);
            }
            Ok(())
        }
    }

    /// Kills the process. Whether it was still alive is the result; its exit is reported as always.
    ///
    /// The future does not borrow the handle. If, while it waits, more output arrives than the
    /// backlog has room for, the rest of the output is cut off: nobody could read it, and the
    /// answer is behind it.
    pub fn terminate(&self) -> impl Future<Output = Result<bool, ExecServerError>> + Send + use<> {
        let (connection, inbox) = (Arc::clone(&self.connection), Arc::clone(&self.inbox));
        async move {
            if matches!(inbox.ending(), Some(Ending::Exited(_))) {
                return Ok(false);
            }
            let params = TerminateParams { process_id: inbox.process_id.clone() };
            let _terminating = inbox.terminating();
            match connection.call(method::TERMINATE, &params, Some(Arc::clone(&inbox))).await {
                Ok(TerminateResponse { running }) => Ok(running),
                // It exited while the request waited to be sent.
                Err(ExecServerError::ProcessExited(_)) => Ok(false),
                Err(error) => Err(error),
            }
        }
    }
}

impl Drop for ExecServerProcess {
    fn drop(&mut self) {
        self.inbox.abandon();
    }
}

impl fmt::Debug for ExecServerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its inbox may hold megabytes.
        let exit_code = self.exit_code();
        f.debug_struct("ExecServerProcess").field("id", &self.id()).field("exit_code", &exit_code).finish()
    }
}
