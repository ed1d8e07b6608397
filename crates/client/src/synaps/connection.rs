//! The commands of the synaps dialect on a connection, and the end of the child.

use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parlor_doors::synaps::{MAX_FRAME_BYTES, RpcCommand};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

use super::SynapsError;
use super::handler::{Ready, SynapsHandler};
use super::pending::PendingCommands;
use super::turn_events::TurnEvents;
use crate::child::connection::Connection;
use crate::child::process::{ChildStatus, EndChild};

/// How many commands of one client may wait for their answers at a time. Further commands wait until one is answered.
pub const MAX_PENDING_COMMANDS: usize = 256;

#[derive(Debug)]
pub(super) struct SynapsConnection {
    connection: Connection<PendingCommands>,
    next_id: AtomicU64,
    status: ChildStatus,
    /// Ends the child at once. None if it was used, or if another program started the child.
    end_child: Mutex<Option<oneshot::Sender<EndChild>>>,
}

impl SynapsConnection {
    /// Opens a connection. The receiver gets the child's `ready`.
    pub(super) fn open<R, W>(
        reader: R,
        writer: W,
        status: ChildStatus,
        end_child: Option<oneshot::Sender<EndChild>>,
    ) -> (Self, oneshot::Receiver<Ready>)
    where
        R: AsyncRead + Send + 'static,
        W: AsyncWrite + Send + 'static,
    {
        let (ready_sender, ready) = oneshot::channel();
        let make_handler = |link| SynapsHandler { link, status: status.clone(), ready: Some(ready_sender) };
        let connection =
            Connection::open((reader, writer), status.clone(), MAX_PENDING_COMMANDS, make_handler);
        let end_child = Mutex::new(end_child);
        (Self { connection, next_id: AtomicU64::new(1), status, end_child }, ready)
    }

    /// Sends a command and waits for its answer. If the future is dropped, the command may have been sent; its answer is
    /// then ignored.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        command: impl FnOnce(String) -> RpcCommand,
    ) -> Result<T, SynapsError> {
        let id = self.new_id();
        let command = command(id.clone());
        let (reply, answer) = oneshot::channel();
        let added = id.clone();
        self.submit(&command, |pending, slot| pending.add_call(added, reply, slot)).await?;
        let forget = |pending: &mut PendingCommands| pending.remove_call(&id);
        let body = self.connection.answer(answer, forget).await?;
        serde_json::from_value(Value::Object(body)).map_err(|error| {
            let error = SynapsError::protocol(&format!("an answer that cannot be read: {error}"));
            self.connection.end(error.clone());
            error
        })
    }

    /// Sends the command that begins a turn.
    pub(super) async fn begin_turn(
        &self,
        command: impl FnOnce(String) -> RpcCommand,
    ) -> Result<Arc<TurnEvents>, SynapsError> {
        let id = self.new_id();
        let command = command(id.clone());
        let turn = Arc::new(TurnEvents::new(id));
        self.submit(&command, |pending, slot| pending.add_turn(Arc::clone(&turn), slot)).await?;
        Ok(turn)
    }

    /// Sends `abort` and waits for its answer.
    pub(super) async fn abort(&self) -> Result<(), SynapsError> {
        let running = self.connection.link().with_pending(|pending| pending.running_turn());
        let _drop_overflow = running.as_ref().map(|turn| turn.drop_overflow());
        self.call(|id| RpcCommand::Abort { id }).await.map(|IgnoredAny| ())
    }

    /// Sends `shutdown` and waits until the child has exited. A child that runs for longer than `limit` gets SIGTERM.
    pub(super) async fn shut_down(&self, limit: Duration) -> Result<Option<ExitStatus>, SynapsError> {
        let mut status = self.status.clone();
        let exited = async {
            // The send fails only if the child is already gone.
            let _ = self.connection.send(encode(&RpcCommand::Shutdown)).await;
            if self.status.is_known() {
                status.exited().await
            } else {
                self.connection.closed().await;
                None
            }
        };
        if let Ok(status) = timeout(limit, exited).await {
            return Ok(status);
        }
        if self.end_child(EndChild::Terminate) {
            return Ok(self.status.clone().exited().await);
        }
        self.connection.end(SynapsError::CLOSED);
        Ok(None)
    }

    /// Kills the child and waits until it has exited.
    pub(super) async fn kill(&self) {
        if self.end_child(EndChild::Kill) {
            self.status.clone().exited().await;
        }
    }

    /// Why the connection ended.
    pub(super) fn end_reason(&self) -> SynapsError {
        self.connection.link().end_reason()
    }

    /// Ends a turn that the child has refused.
    pub(super) fn refuse_turn(&self, turn: &Arc<TurnEvents>) {
        self.connection.link().with_pending(|pending| pending.remove_turn(turn));
        turn.refuse();
    }

    /// Drops the events of a turn whose handle is gone.
    pub(super) fn abandon_turn(&self, turn: &Arc<TurnEvents>) {
        turn.abandon();
        if turn.has_error() {
            self.connection.link().with_pending(|pending| pending.remove_turn(turn));
        }
    }

    /// Ends the child at once. Returns false if another program started the child.
    fn end_child(&self, end: EndChild) -> bool {
        let sender = self.end_child.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The send fails only if the child has already exited.
        sender.is_some_and(|sender| sender.send(end).is_ok()) || self.status.is_known()
    }

    async fn submit(
        &self,
        command: &RpcCommand,
        add: impl FnOnce(&mut PendingCommands, OwnedSemaphorePermit),
    ) -> Result<(), SynapsError> {
        let frame = encode(command);
        // A child answers a frame over the limit with an error that names no command.
        if frame.len() > MAX_FRAME_BYTES {
            return Err(SynapsError::CommandTooLong { bytes: frame.len() });
        }
        let add = |pending: &mut PendingCommands, slot| {
            add(pending, slot);
            Ok(())
        };
        self.connection.submit(frame, add).await
    }

    fn new_id(&self) -> String {
        self.next_id.fetch_add(1, Ordering::Relaxed).to_string()
    }
}

fn encode(command: &RpcCommand) -> Vec<u8> {
    serde_json::to_vec(command).expect("commands have string keys, and writing to memory does not fail")
}
