//! The handle on a process of an exec server.

use std::fmt;
use std::sync::Arc;

use parlor_doors::exec::{
    ByteChunk, ExecOutputStream, ExecParams, TerminateParams, TerminateResponse, WriteParams, WriteResponse,
    method,
};

use super::connection::ExecConnection;
use super::output::{ProcessEnd, ProcessOutput};
use super::{ExecOutput, ExecServerError};

/// A process that a client started.
///
/// As with [`std::process::Child`], dropping the handle does not end the process: it runs on until
/// it exits or the connection ends, and its output is discarded. To end it, [`terminate`] it.
///
/// [`terminate`]: Self::terminate
pub struct ExecServerProcess {
    /// Keeps the server alive as long as there is a handle on a process.
    connection: Arc<ExecConnection>,
    output: Arc<ProcessOutput>,
}

/// All output and the exit code of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecFinished {
    /// What the process wrote to standard output, or to its terminal.
    pub stdout: Vec<u8>,
    /// What the process wrote to standard error.
    pub stderr: Vec<u8>,
    /// The exit code that the server reported.
    pub exit_code: i32,
}

impl ExecServerProcess {
    pub(super) async fn start(
        connection: Arc<ExecConnection>,
        params: &ExecParams,
    ) -> Result<Self, ExecServerError> {
        let output = Arc::new(ProcessOutput::new(params.process_id.clone()));
        // The handle is made first: if this future is dropped while it waits, the handle is dropped too, and the output of
        // a process that was started is discarded instead of filling the backlog.
        let process = Self { connection, output };
        process.connection.start(method::EXEC, params, Arc::clone(&process.output)).await?;
        Ok(process)
    }

    /// The process id, as the caller of [`start_process`](super::ExecServerClient::start_process) chose it.
    pub fn id(&self) -> &str {
        &self.output.process_id
    }

    /// Waits for output. `None` once the process has exited and all its output was returned.
    ///
    /// If the connection ended first, this is an error, also after all output that had arrived.
    ///
    /// Cancel safe: if the future is dropped, no output is lost.
    pub async fn next_output(&mut self) -> Result<Option<ExecOutput>, ExecServerError> {
        self.output.next().await
    }

    /// Waits for the exit of the process and returns its exit code.
    ///
    /// **Discards the output** that was not read before; [`output`](Self::output) keeps it. If the future is dropped, the
    /// output that it has discarded is lost.
    pub async fn wait(&mut self) -> Result<i32, ExecServerError> {
        while self.next_output().await?.is_some() {}
        self.exit_code().ok_or(ExecServerError::CLOSED)
    }

    /// Waits for the exit of the process and returns all output that was not read before, without a limit.
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
        match self.output.process_end() {
            Some(ProcessEnd::Exited(code)) => Some(code),
            Some(ProcessEnd::Lost(_)) | None => None,
        }
    }

    /// Writes to the terminal of the process. The server refuses this for a process without a terminal.
    ///
    /// Completes when the server has accepted the bytes; the process need not have read them yet. Writes happen in the
    /// order in which their futures were first polled. A future that is dropped may or may not have written all its bytes.
    ///
    /// The future does not borrow the handle, so output can be read while it waits. Do that if there may be more output
    /// than the backlog holds: the answer comes after the output.
    pub fn write<B: Into<Vec<u8>>>(
        &self,
        bytes: B,
    ) -> impl Future<Output = Result<(), ExecServerError>> + Send + use<B> {
        let (connection, output) = (Arc::clone(&self.connection), Arc::clone(&self.output));
        let params = WriteParams { process_id: output.process_id.clone(), chunk: ByteChunk(bytes.into()) };
        async move {
            let written: WriteResponse = connection.call(method::WRITE, &params, Some(output)).await?;
            if !written.accepted {
                let error = ExecServerError::protocol("a write was neither accepted nor refused");
                connection.end(error.clone());
                return Err(error);
            }
            Ok(())
        }
    }

    /// Kills the process. Returns whether it was still running; its exit is reported as usual.
    ///
    /// The future does not borrow the handle. If more output arrives than the backlog has room for while it waits, the rest
    /// of the output is dropped, because the answer comes after it.
    pub fn terminate(&self) -> impl Future<Output = Result<bool, ExecServerError>> + Send + use<> {
        let (connection, output) = (Arc::clone(&self.connection), Arc::clone(&self.output));
        async move {
            if matches!(output.process_end(), Some(ProcessEnd::Exited(_))) {
                return Ok(false);
            }
            let params = TerminateParams { process_id: output.process_id.clone() };
            let _drop_overflow = output.drop_overflow();
            match connection.call(method::TERMINATE, &params, Some(Arc::clone(&output))).await {
                Ok(TerminateResponse { running }) => Ok(running),
                // The process exited while the request waited to be sent.
                Err(ExecServerError::ProcessExited(_)) => Ok(false),
                Err(error) => Err(error),
            }
        }
    }
}

impl Drop for ExecServerProcess {
    fn drop(&mut self) {
        self.output.abandon();
    }
}

impl fmt::Debug for ExecServerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out the output, which may be megabytes.
        let exit_code = self.exit_code();
        f.debug_struct("ExecServerProcess").field("id", &self.id()).field("exit_code", &exit_code).finish()
    }
}
