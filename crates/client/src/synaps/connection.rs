//! A connection as its handles see it: commands go in, answers come back.
//!
//! It ends with its last handle. What arrives is the business of `driver`.

use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parlor_doors::synaps::{MAX_FRAME_BYTES, RpcCommand};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::backlog::Backlog;
use super::driver::{self, Ready};
use super::launch::Farewell;
use super::link::{Link, Pending};
use super::{SynapsError, driver::Wires};
use crate::child::Vitals;

/// How many commands of one client may be without an answer; more of them wait for their turn.
pub const MAX_PENDING_COMMANDS: usize = 256;

/// How many frames may wait for a child that does not read. A frame is 1 MiB at most.
const QUEUED_FRAMES: usize = 16;

#[derive(Debug)]
pub(super) struct Connection {
    link: Arc<Link>,
    frames: mpsc::Sender<Vec<u8>>,
    next_id: AtomicU64,
    driver: AbortHandle,
    vitals: Vitals,
    /// Tells the keeper of the child's process how to end it, if it is not to wait.
    keeper: Mutex<Option<oneshot::Sender<Farewell>>>,
}

impl Connection {
    /// A connection, and a place in which the child's `ready` will be.
    pub(super) fn open<R, W>(
        reader: R,
        writer: W,
        vitals: Vitals,
        keeper: Option<oneshot::Sender<Farewell>>,
    ) -> (Self, oneshot::Receiver<Ready>)
    where
        R: AsyncRead + Send + 'static,
        W: AsyncWrite + Send + 'static,
    {
        let link = Arc::new(Link::new(MAX_PENDING_COMMANDS));
        let (frames, queue) = mpsc::channel(QUEUED_FRAMES);
        let (greet, ready) = oneshot::channel();
        // The task has the link and not the connection, or the connection would keep itself alive.
        let wires = Wires { reader, writer, queue };
        let driver = tokio::spawn(driver::drive(wires, Arc::clone(&link), vitals.clone(), greet));
        let driver = driver.abort_handle();
        let keeper = Mutex::new(keeper);
        (Self { link, frames, next_id: AtomicU64::new(1), driver, vitals, keeper }, ready)
    }

    /// Sends a command and waits for its answer. If the future is dropped, the command may have been
    /// sent; its answer will be ignored.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        command: impl FnOnce(String) -> RpcCommand,
    ) -> Result<T, SynapsError> {
        let id = self.id();
        let command = command(id.clone());
        let (reply, answer) = oneshot::channel();
        self.submit(id.clone(), &command, Pending::Call(reply)).await?;
        // Callers who give up on a child that does not answer must not use up all the slots.
        let _forget = Forget { link: &self.link, id: &id };
        let body = answer.await.unwrap_or_else(|_| Err(self.link.verdict()))?;
        serde_json::from_value(Value::Object(body)).map_err(|flaw| {
            let error = SynapsError::protocol(&format!("an answer that cannot be read: {flaw}"));
            self.end(error.clone());
            error
        })
    }

    /// Sends the command that begins a turn.
    pub(super) async fn begin(
        &self,
        command: impl FnOnce(String) -> RpcCommand,
    ) -> Result<Arc<Backlog>, SynapsError> {
        let id = self.id();
        let command = command(id.clone());
        let turn = Arc::new(Backlog::new(id.clone()));
        self.submit(id, &command, Pending::Turn(Arc::clone(&turn))).await?;
        Ok(turn)
    }

    /// Sends `abort` and waits for its answer.
    pub(super) async fn abort(&self) -> Result<(), SynapsError> {
        let _aborting = self.link.running().map(Aborting::new);
        self.call(|id| RpcCommand::Abort { id }).await.map(|IgnoredAny| ())
    }

    /// Sends `shutdown` and waits for the child's end. One that takes longer than `limit` is ended.
    pub(super) async fn shut_down(&self, limit: Duration) -> Result<Option<ExitStatus>, SynapsError> {
        let mut vitals = self.vitals.clone();
        let ended = async {
            // A child that is gone needs no telling.
            let _ = self.frames.send(frame(&RpcCommand::Shutdown)).await;
            if self.vitals.is_known() {
                vitals.death().await
            } else {
                self.frames.closed().await;
                None
            }
        };
        if let Ok(status) = timeout(limit, ended).await {
            return Ok(status);
        }
        if self.tell_keeper(Farewell::Terminate) {
            return Ok(self.vitals.clone().death().await);
        }
        self.end(SynapsError::CLOSED);
        Ok(None)
    }

    /// Kills the child and waits until it is dead.
    pub(super) async fn kill(&self) {
        if self.tell_keeper(Farewell::Kill) {
            self.vitals.clone().death().await;
        }
    }

    /// What there is to say once a child is gone.
    pub(super) fn verdict(&self) -> SynapsError {
        self.link.verdict()
    }

    pub(super) fn never_began(&self, turn: &Arc<Backlog>) {
        self.link.never_began(turn);
    }

    pub(super) fn abandon(&self, turn: &Arc<Backlog>) {
        self.link.abandon(turn);
    }

    /// False if the child is not ours.
    fn tell_keeper(&self, farewell: Farewell) -> bool {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A keeper that is gone has seen the child's end.
        keeper.is_some_and(|keeper| keeper.send(farewell).is_ok()) || self.vitals.is_known()
    }

    /// Ends the connection for all its handles.
    fn end(&self, verdict: SynapsError) {
        self.link.end(verdict);
        self.driver.abort();
    }

    async fn submit(&self, id: String, command: &RpcCommand, pending: Pending) -> Result<(), SynapsError> {
        let frame = frame(command);
        // A child answers a frame that is too long with an error that names no command.
        if frame.len() > MAX_FRAME_BYTES {
            return Err(SynapsError::CommandTooLong { bytes: frame.len() });
        }
        let slot = Arc::clone(&self.link.slots).acquire_owned().await.map_err(|_| self.link.verdict())?;
        let place = self.frames.reserve().await.map_err(|_| self.link.verdict())?;
        // From here to the end nothing waits: a dropped future has done all of it or none.
        self.link.enter(id, pending, slot, || place.send(frame))
    }

    fn id(&self) -> String {
        self.next_id.fetch_add(1, Ordering::Relaxed).to_string()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Also while it writes to a child that does not read. Its input and output close with it.
        self.driver.abort();
    }
}

fn frame(command: &RpcCommand) -> Vec<u8> {
    serde_json::to_vec(command).expect("commands have string keys and memory does not fail")
}

struct Forget<'a> {
    link: &'a Link,
    id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.link.forget(self.id);
    }
}

/// An abort that waits for its answer.
struct Aborting(Arc<Backlog>);

impl Aborting {
    fn new(turn: Arc<Backlog>) -> Self {
        turn.aborting();
        Self(turn)
    }
}

impl Drop for Aborting {
    fn drop(&mut self) {
        self.0.no_longer_aborting();
    }
}
