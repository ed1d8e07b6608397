//! Sessions that other processes have open, and how this process reaches them.
//!
//! The program provides the connections ([`Peers`]). The registry sends commands through them, and mirrors what the owner
//! of a session writes live (`mirror.rs`). Events come from the log, which all processes share.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use parlor_vocab::{PeerUpdate, SessionCommand, SessionId, SessionRefusal, SessionReply};
use tokio::sync::mpsc;

/// Connects to other processes that have sessions open.
#[async_trait]
pub trait Peers: Send + Sync {
    /// The connection to the process that announced `address`; opened if there is none. Fails with the reason if the
    /// process does not answer within a second, or speaks no common version.
    async fn connect(&self, address: &str) -> Result<Arc<dyn PeerConnection>, String>;
}

/// A connection to another process, shared by all sessions that it has open.
pub trait PeerConnection: Send + Sync {
    /// Whether the other process is still there.
    fn is_connected(&self) -> bool;

    /// Sends a command to a session. The other process executes commands in the order of these calls; the returned
    /// future waits for the reply, at most [`PEER_REPLY_WAIT`](crate::PEER_REPLY_WAIT). A compaction may take longer,
    /// as long as the other process answers at all.
    fn submit(
        &self,
        session: &SessionId,
        command: &SessionCommand,
    ) -> BoxFuture<'static, Result<SessionReply, PeerError>>;

    /// Deletes a session.
    fn delete(&self, session: &SessionId) -> BoxFuture<'static, Result<(), PeerError>>;

    /// Watches a session from the start of its active run on, or from now on if none is active. The channel closes when
    /// the connection or the watch ends; the other process may refuse to watch a session that it does not have open.
    /// Dropping the receiver ends the watch.
    fn watch(&self, session: &SessionId) -> mpsc::Receiver<PeerUpdate>;
}

/// Why a request to another process failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerError {
    /// The other process refused the request.
    Refused(SessionRefusal),
    /// The connection had ended: the request was not sent.
    NotSent,
    /// The connection ended before the reply: the request may have been executed, or not.
    Lost,
    /// The other process did not reply within [`PEER_REPLY_WAIT`](crate::PEER_REPLY_WAIT).
    NoReply {
        /// Whether the request was sent: then the other process may execute it later. Otherwise it was taken back.
        was_sent: bool,
    },
}
