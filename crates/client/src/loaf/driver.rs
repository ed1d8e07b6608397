//! The task of a connection: writes what is queued, reads what arrives and hands it on.
//!
//! Both halves run side by side, so a server that stops reading can still be heard.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_doors::lines::{Line, Lines};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::{LoafError, LoafEvent};

/// The longest line that a server may send: room for a session with its images.
pub const MAX_LINE_BYTES: usize = 256 << 20;

/// How many calls of one client may be without an answer; more of them wait for their turn.
pub const MAX_PENDING_CALLS: usize = 256;

/// How much is read at once: what a Linux pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// Where an answer goes.
type Reply = oneshot::Sender<Result<Value, LoafError>>;

/// Who waits for what.
#[derive(Debug)]
pub(super) struct Link {
    /// A plain mutex: it is held for a lookup and never across an `await`. None once there are no more answers.
    calls: Mutex<Option<HashMap<u64, (Reply, OwnedSemaphorePermit)>>>,
    verdict: watch::Sender<Option<LoafError>>,
}

impl Link {
    pub(super) fn new() -> (Arc<Self>, watch::Receiver<Option<LoafError>>) {
        let (verdict, told) = watch::channel(None);
        (Arc::new(Self { calls: Mutex::new(Some(HashMap::new())), verdict }), told)
    }

    /// Enters a call, unless the connection is over.
    pub(super) fn enter(&self, id: u64, reply: Reply, slot: OwnedSemaphorePermit) -> Result<(), LoafError> {
        match &mut *self.calls() {
            Some(calls) => {
                calls.insert(id, (reply, slot));
                Ok(())
            }
            None => Err(self.verdict()),
        }
    }

    /// Whoever waited for the answer to `id` no longer does.
    pub(super) fn forget(&self, id: u64) {
        if let Some(calls) = &mut *self.calls() {
            calls.remove(&id);
        }
    }

    fn answer(&self, id: u64, answer: Result<Value, LoafError>) {
        let call = self.calls().as_mut().and_then(|calls| calls.remove(&id));
        if let Some((reply, _slot)) = call {
            // A caller that no longer waits does not need to know.
            let _ = reply.send(answer);
        }
    }

    /// Fails all calls, now and from now on.
    fn end(&self, verdict: LoafError) {
        let calls = self.calls().take();
        self.verdict.send_replace(Some(verdict.clone()));
        for (reply, _slot) in calls.unwrap_or_default().into_values() {
            let _ = reply.send(Err(verdict.clone()));
        }
    }

    pub(super) fn verdict(&self) -> LoafError {
        self.verdict.borrow().clone().unwrap_or(LoafError::Closed)
    }

    fn calls(&self) -> MutexGuard<'_, Option<HashMap<u64, (Reply, OwnedSemaphorePermit)>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whatever ends the task, those who wait are told.
struct FinalOutput(Arc<Link>);

impl Drop for FinalOutput {
    fn drop(&mut self) {
        let verdict = self.0.verdict();
        self.0.end(verdict);
    }
}

pub(super) async fn drive<R: AsyncRead, W: AsyncWrite>(
    reader: R,
    writer: W,
    queue: mpsc::Receiver<Vec<u8>>,
    link: Arc<Link>,
    events: mpsc::Sender<LoafEvent>,
) {
    let _last_words = FinalOutput(Arc::clone(&link));
    let write = async {
        write_lines(std::pin::pin!(writer), queue).await;
        // What the server said before it closed its input can still be read.
        std::future::pending::<()>().await;
    };
    let read = async {
        let verdict = read_lines(std::pin::pin!(reader), &link, events).await;
        link.end(verdict);
    };
    tokio::select! {
        // The writer first: it seldom has work, and a flood of events must not hold up an interrupt.
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
    // Nobody has anything more to say: the server hears the end of its input.
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
            let heard = match line {
                Line::Oversize => Err(LoafError::protocol("a line that is too long")),
                Line::Whole(line) => hear(line, link),
            };
            match heard {
                // Who has dropped the events wants none.
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
struct SuprEvent {
    id: Option<Value>,
    result: Option<Value>,
    error: Option<SessionRefusal>,
    method: Option<String>,
    params: Option<Value>,
}

#[derive(Deserialize)]
struct SessionRefusal {
    code: i64,
    message: String,
    #[serde(default)]
    data: Value,
}

/// Takes in one line: answers go to their callers, events are given back.
fn hear(line: &[u8], link: &Link) -> Result<Option<LoafEvent>, LoafError> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let flaw = |flaw: serde_json::Error| LoafError::protocol(&format!("a line that cannot be read: {flaw}"));
    let heard: SuprEvent = serde_json::from_slice(line).map_err(flaw)?;
    if heard.method.as_deref() == Some("event") {
        return serde_json::from_value(heard.params.unwrap_or_default()).map(Some).map_err(flaw);
    }
    // Under no id of ours there is nothing that we asked for.
    let Some(id) = heard.id.as_ref().and_then(Value::as_u64) else { return Ok(None) };
    let answer = match heard.error {
        None => Ok(heard.result.unwrap_or_default()),
        Some(SessionRefusal { code, message, data }) => {
            let reason = data.get("reason").and_then(Value::as_str).map(str::to_owned);
            Err(LoafError::Refused { code, message, reason })
        }
    };
    link.answer(id, answer);
    Ok(None)
}
