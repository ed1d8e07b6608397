//! The task of a connection: it writes queued requests, and passes answers to their callers and events to their reader.
//!
//! Both halves run side by side, so the output of a server that stops reading is still handled. Unlike the tasks of the exec
//! and synaps clients, this one ends with its queue: it closes the server's input and reads on until the server exits.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_doors::lines::{Line, Lines};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::{LoafError, LoafEvent};

/// The longest line that a server may send: enough for a session with its images.
pub const MAX_LINE_BYTES: usize = 256 << 20;

/// How many calls of one client may wait for their answers at a time. Further calls wait until one is answered.
pub const MAX_PENDING_CALLS: usize = 256;

/// How much is read at once: the capacity of a Linux pipe.
const READ_BYTES: usize = 64 * 1024;

/// Where an answer goes.
type ReplySender = oneshot::Sender<Result<Value, LoafError>>;

/// The state that the handles and the task share: which calls wait for an answer, and why the connection ended.
#[derive(Debug)]
pub(super) struct Link {
    /// A plain mutex: it is locked for a lookup and never across an `await`. None once the connection has ended.
    calls: Mutex<Option<HashMap<u64, (ReplySender, OwnedSemaphorePermit)>>>,
    end_reason: watch::Sender<Option<LoafError>>,
}

impl Link {
    pub(super) fn new() -> (Arc<Self>, watch::Receiver<Option<LoafError>>) {
        let (end_reason, receiver) = watch::channel(None);
        (Arc::new(Self { calls: Mutex::new(Some(HashMap::new())), end_reason }), receiver)
    }

    /// Adds a call. Fails if the connection has ended.
    pub(super) fn add(
        &self,
        id: u64,
        reply: ReplySender,
        slot: OwnedSemaphorePermit,
    ) -> Result<(), LoafError> {
        match &mut *self.calls() {
            Some(calls) => {
                calls.insert(id, (reply, slot));
                Ok(())
            }
            None => Err(self.end_reason()),
        }
    }

    /// Removes a call whose caller no longer waits.
    pub(super) fn remove(&self, id: u64) {
        if let Some(calls) = &mut *self.calls() {
            calls.remove(&id);
        }
    }

    fn answer(&self, id: u64, answer: Result<Value, LoafError>) {
        let call = self.calls().as_mut().and_then(|calls| calls.remove(&id));
        if let Some((reply, _slot)) = call {
            // The send fails only if the caller no longer waits.
            let _ = reply.send(answer);
        }
    }

    /// Fails all calls, now and from now on.
    fn end(&self, reason: LoafError) {
        let calls = self.calls().take();
        self.end_reason.send_replace(Some(reason.clone()));
        for (reply, _slot) in calls.unwrap_or_default().into_values() {
            let _ = reply.send(Err(reason.clone()));
        }
    }

    /// Why the connection ended.
    pub(super) fn end_reason(&self) -> LoafError {
        self.end_reason.borrow().clone().unwrap_or(LoafError::Closed)
    }

    fn calls(&self) -> MutexGuard<'_, Option<HashMap<u64, (ReplySender, OwnedSemaphorePermit)>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fails all calls when the task ends, for whatever reason.
struct EndOnDrop(Arc<Link>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let reason = self.0.end_reason();
        self.0.end(reason);
    }
}

pub(super) async fn drive<R: AsyncRead, W: AsyncWrite>(
    reader: R,
    writer: W,
    queue: mpsc::Receiver<Vec<u8>>,
    link: Arc<Link>,
    events: mpsc::Sender<LoafEvent>,
) {
    let _end_on_drop = EndOnDrop(Arc::clone(&link));
    let write = async {
        write_lines(std::pin::pin!(writer), queue).await;
        // What the server wrote before it closed its input can still be read.
        std::future::pending::<()>().await;
    };
    let read = async {
        let reason = read_lines(std::pin::pin!(reader), &link, events).await;
        link.end(reason);
    };
    tokio::select! {
        // The writer first: it seldom has work, and a flood of events must not delay an interrupt.
        biased;
        () = write => {}
        () = read => {}
    }
}

async fn write_lines<W: AsyncWrite>(mut writer: Pin<&mut W>, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = queue.recv().await {
        let written = async {
            writer.write_all(&line).await?;
            writer.flush().await
        };
        if written.await.is_err() {
            return;
        }
    }
    // No handle is left: close the server's input.
    let _ = writer.shutdown().await;
}

async fn read_lines<R: AsyncRead>(
    mut reader: Pin<&mut R>,
    link: &Link,
    events: mpsc::Sender<LoafEvent>,
) -> LoafError {
    let (mut lines, mut buffer) = (Lines::new(MAX_LINE_BYTES), vec![0; READ_BYTES]);
    loop {
        while let Some(line) = lines.next_line() {
            let handled = match line {
                Line::Oversize => Err(LoafError::protocol("a line that is too long")),
                Line::Whole(line) => handle_line(line, link),
            };
            match handled {
                // The send fails only if `LoafEvents` was dropped.
                Ok(Some(event)) => drop(events.send(event).await),
                Ok(None) => {}
                Err(error) => return error,
            }
        }
        match reader.read(&mut buffer).await {
            Ok(0) | Err(_) => return LoafError::Closed,
            Ok(count) => lines.push(buffer.get(..count).unwrap_or_default()),
        }
    }
}

#[derive(Deserialize)]
struct ServerLine {
    id: Option<Value>,
    result: Option<Value>,
    error: Option<ServerError>,
    method: Option<String>,
    params: Option<Value>,
}

#[derive(Deserialize)]
struct ServerError {
    code: i64,
    message: String,
    #[serde(default)]
    data: Value,
}

/// Handles one line: passes an answer to its caller, and returns an event.
fn handle_line(line: &[u8], link: &Link) -> Result<Option<LoafEvent>, LoafError> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let decode_error =
        |error: serde_json::Error| LoafError::protocol(&format!("a line that cannot be read: {error}"));
    let line: ServerLine = serde_json::from_slice(line).map_err(decode_error)?;
    if line.method.as_deref() == Some("event") {
        return serde_json::from_value(line.params.unwrap_or_default()).map(Some).map_err(decode_error);
    }
    // Ids of this client are numbers, so another id answers no call.
    let Some(id) = line.id.as_ref().and_then(Value::as_u64) else { return Ok(None) };
    let answer = match line.error {
        None => Ok(line.result.unwrap_or_default()),
        Some(ServerError { code, message, data }) => {
            let reason = data.get("reason").and_then(Value::as_str).map(str::to_owned);
            Err(LoafError::Refused { code, message, reason })
        }
    };
    link.answer(id, answer);
    Ok(None)
}
