//! Processes with numbered events, of today's protocol: their output can be read again, and goes on over another connection.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parlor_doors::exec::{ByteChunk, TerminateResponse, method, uri_from_path};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::connection::ExecConnection;
use super::events::{Page, ProcessEvents};
use super::{ExecProcessEvent, ExecServerClient, ExecServerError};

/// How to start a process with numbered events.
///
/// ```
/// use parlor_client::exec::ExecProcessParams;
///
/// let params = ExecProcessParams::new("build", ["make", "test"], "/src").inherit_env().env("CI", "1").stdin();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecProcessParams {
    process_id: String,
    argv: Vec<String>,
    folder: PathBuf,
    env: BTreeMap<String, String>,
    inherits: bool,
    tty: bool,
    has_stdin: bool,
}

impl ExecProcessParams {
    /// A process on pipes with an empty environment and an empty standard input. The id names the process in its session; the
    /// folder is an absolute path.
    pub fn new<A: Into<String>>(
        process_id: impl Into<String>,
        argv: impl IntoIterator<Item = A>,
        folder: impl Into<PathBuf>,
    ) -> Self {
        Self {
            process_id: process_id.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            folder: folder.into(),
            env: BTreeMap::new(),
            inherits: false,
            tty: false,
            has_stdin: false,
        }
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Lets the process inherit the variables of the server that are not set here.
    #[must_use]
    pub fn inherit_env(self) -> Self {
        Self { inherits: true, ..self }
    }

    /// Asks for a terminal, which takes writes.
    #[must_use]
    pub fn tty(self) -> Self {
        Self { tty: true, ..self }
    }

    /// Asks for a standard input that takes writes. No method closes it.
    #[must_use]
    pub fn stdin(self) -> Self {
        Self { has_stdin: true, ..self }
    }

    fn to_json(&self) -> Value {
        let policy = self.inherits.then(
            || json!({"inherit": "all", "ignoreDefaultExcludes": true, "exclude": [], "set": {}, "includeOnly": []}),
        );
        json!({
            "processId": self.process_id, "argv": self.argv, "cwd": uri_from_path(&self.folder), "env": self.env,
            "envPolicy": policy, "tty": self.tty, "pipeStdin": self.has_stdin,
        })
    }
}

/// Up to where a handle has taken the events of a process. With it, another connection to the same session
/// [goes on](ExecServerClient::attach).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecProcessPosition {
    /// The process.
    pub process_id: String,
    /// The number of the last event that was taken.
    pub seq: u64,
    /// The exit code, if it was taken.
    pub exit_code: Option<i32>,
    /// How many writes were made.
    pub writes: u64,
}

/// Retained output of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutputPage {
    /// The output, oldest first, with the numbers of the events.
    pub output: Vec<(u64, ExecProcessEvent)>,
    /// From where to read on: the number after the last one that this page covers.
    pub next_seq: u64,
}

/// A process with numbered events.
///
/// Dropping the handle does not end the process: it runs on until it exits or its session ends, and its events are discarded.
pub struct ExecProcess {
    connection: Arc<ExecConnection>,
    events: Arc<ProcessEvents>,
    seq: u64,
    exit_code: Option<i32>,
    writes: AtomicU64,
}

#[derive(Deserialize)]
struct WriteStatus {
    status: String,
}

impl ExecServerClient {
    /// Starts a process with numbered events and waits until the server has started it.
    ///
    /// The id stays in use until 30 s after the last event.
    pub async fn start_numbered(&self, params: ExecProcessParams) -> Result<ExecProcess, ExecServerError> {
        let events = Arc::new(ProcessEvents::new(params.process_id.clone(), 0, false));
        let process = ExecProcess::new(self, events);
        process.connection.start_numbered(&params.to_json(), Arc::clone(&process.events)).await?;
        Ok(process)
    }

    /// Goes on with a process of this session whose connection was lost. The handle gets every event after the position once,
    /// or fails with [`ExecServerError::OutputLost`] if the server no longer retains them all.
    pub async fn attach(&self, position: ExecProcessPosition) -> Result<ExecProcess, ExecServerError> {
        let ExecProcessPosition { process_id, seq, exit_code, writes } = position;
        let events = Arc::new(ProcessEvents::new(process_id, seq, exit_code.is_some()));
        let mut process = ExecProcess::new(self, events);
        (process.seq, process.exit_code, process.writes) = (seq, exit_code, AtomicU64::new(writes));
        let params = json!({"processId": process.id(), "afterSeq": seq, "maxBytes": null, "waitMs": 0});
        process.connection.catch_up(&params, Arc::clone(&process.events)).await?;
        Ok(process)
    }
}

impl ExecProcess {
    fn new(client: &ExecServerClient, events: Arc<ProcessEvents>) -> Self {
        let connection = Arc::clone(client.shared_connection());
        Self { connection, events, seq: 0, exit_code: None, writes: AtomicU64::new(0) }
    }

    /// The process id, as the caller chose it.
    pub fn id(&self) -> &str {
        &self.events.process_id
    }

    /// Waits for the next event. `None` once the process has exited and nobody can write to its output any more.
    ///
    /// If the connection ended first, this is an error, also after all events that had arrived. Cancel safe.
    pub async fn next_event(&mut self) -> Result<Option<ExecProcessEvent>, ExecServerError> {
        let Some((seq, event)) = self.events.next().await? else { return Ok(None) };
        self.seq = seq;
        if let ExecProcessEvent::Exited { exit_code, .. } = &event {
            self.exit_code = Some(*exit_code);
        }
        Ok(Some(event))
    }

    /// Up to where events were taken from this handle.
    pub fn position(&self) -> ExecProcessPosition {
        ExecProcessPosition {
            process_id: self.id().to_owned(),
            seq: self.seq,
            exit_code: self.exit_code,
            writes: self.writes.load(Ordering::Relaxed),
        }
    }

    /// The exit code, once the event was taken.
    pub fn exit_code(&self) -> Option<i32> {
        self.exit_code
    }

    /// Writes to the terminal or the standard input of the process. Completes when the server has accepted the bytes; the
    /// process need not have read them yet. A write to a process that has ended is accepted.
    ///
    /// Every call is a new write. If the connection is lost before the answer, nobody knows whether the process gets the bytes:
    /// [`write_once`](Self::write_once) can be repeated.
    pub async fn write(&self, bytes: impl Into<Vec<u8>>) -> Result<(), ExecServerError> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        self.write_once(&number.to_string(), bytes).await
    }

    /// Writes under an id of the caller's choice. The server accepts a second write with the same id and does not carry it out, so
    /// the write can be repeated over another connection. [`write`](Self::write) uses the decimal numbers from 1.
    pub async fn write_once(&self, write_id: &str, bytes: impl Into<Vec<u8>>) -> Result<(), ExecServerError> {
        let params = json!({"processId": self.id(), "chunk": ByteChunk(bytes.into()), "writeId": write_id});
        let WriteStatus { status } = self.connection.call(method::PROCESS_WRITE, &params, None).await?;
        match status.as_str() {
            "accepted" => Ok(()),
            "stdinClosed" => Err(ExecServerError::NoInput(self.id().to_owned())),
            "unknownProcess" => Err(ExecServerError::ProcessExited(self.id().to_owned())),
            other => Err(ExecServerError::protocol(&format!("a write has the status {other:?}"))),
        }
    }

    /// Interrupts the process group, as Ctrl-C does.
    pub async fn interrupt(&self) -> Result<(), ExecServerError> {
        let params = json!({"processId": self.id(), "signal": "interrupt"});
        self.connection.call::<Map<String, Value>>(method::PROCESS_SIGNAL, &params, None).await.map(drop)
    }

    /// Ends the process. Returns whether it was still running; its exit is reported as usual.
    pub async fn terminate(&self) -> Result<bool, ExecServerError> {
        let params = json!({"processId": self.id()});
        let answer =
            self.connection.call::<TerminateResponse>(method::PROCESS_TERMINATE, &params, None).await?;
        Ok(answer.running)
    }

    /// Reads output that the server retains, after the event `after_seq`, whether or not it was taken before. Waits for some if
    /// there is none, at most for `wait`. Chunks are returned while they have at most `max_bytes`, and at least one.
    pub async fn read(
        &self,
        after_seq: u64,
        max_bytes: Option<u64>,
        wait: Duration,
    ) -> Result<ExecOutputPage, ExecServerError> {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let params =
            json!({"processId": self.id(), "afterSeq": after_seq, "maxBytes": max_bytes, "waitMs": wait});
        let page: Page = self.connection.call(method::PROCESS_READ, &params, None).await?;
        let next_seq = page.next_seq;
        Ok(ExecOutputPage {
            output: page.chunks.into_iter().map(|chunk| (chunk.seq, chunk.event())).collect(),
            next_seq,
        })
    }
}

impl Drop for ExecProcess {
    fn drop(&mut self) {
        self.events.abandon();
    }
}

impl fmt::Debug for ExecProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out the output, which may be megabytes.
        f.debug_struct("ExecProcess").field("id", &self.id()).field("seq", &self.seq).finish_non_exhaustive()
    }
}
