//! The nodes of a log that several machines share, as a list shows them.

use std::time::Duration;

use crate::Announcement;

/// A process that has a shared log open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// The name of the node.
    pub node: String,
    /// The process id on its machine.
    pub pid: u32,
    /// The label of the file system with its working folders; `None` for a process that opens all sessions.
    pub workspace: Option<String>,
    /// What the process announced of itself.
    pub announcement: Announcement,
    /// Whether it counts as alive, by the database's clock.
    pub is_alive: bool,
    /// How old its last heartbeat is.
    pub heartbeat_age: Duration,
    /// How long ago it opened the log, or reached it again after it was away for too long.
    pub up: Duration,
    /// How many sessions it has open.
    pub sessions: u64,
    /// How many of them have an active run.
    pub runs: u64,
}
