//! The event log: one append-only stream of events for each session, and a record of each session.
//!
//! [`EventLog`] is the contract, and `conformance` tests it. [`MemoryLog`], [`SqliteLog`] and, with the feature `postgres`,
//! `PostgresLog` implement it. A reader holds
//! a cursor and reads from the log; the log queues nothing for readers, so a slow reader is late but misses nothing.
//!
//! The log does not interpret events, with four exceptions that it computes while appending: session records, token
//! usage, references to stored files, and the end of a message whose text so far it keeps.

#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
pub mod copy;
mod error;
mod heads;
mod lease;
mod lost_leases;
mod media;
mod memory;
mod node_record;
mod observed;
mod partial_text;
#[cfg(feature = "postgres")]
pub mod postgres;
mod record;
mod row;
mod shared_media;
mod snapshot;
mod sqlite;
mod system;
mod usage;

use std::collections::BTreeSet;

use async_trait::async_trait;
use parlor_vocab::{Entry, EventId, MediaId, NewEntry, Seq, SessionId};
use tokio::sync::watch;

pub use error::{Announcement, LeaseHolder, LogError};
pub use lease::Lease;
pub use memory::MemoryLog;
pub use node_record::NodeRecord;
pub use observed::{LogWrite, ObserveWrite, ObservedLog};
pub use partial_text::{PartialMessage, PartialText};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresLog, PostgresOptions};
pub use record::{Page, PageCursor, PageRequest, SessionRecord};
pub use row::ROW_VERSION;
pub use shared_media::{MediaVersion, SharedMedia, SweptMedia};
pub use snapshot::{HistorySnapshot, MAX_SNAPSHOT_BYTES, SessionSnapshot};
pub use sqlite::{
    BUSY_WAIT, CopyProgress, DATABASE_FORMAT, DamageCheck, DatabaseContents, ERASE_RETRY, FOLLOW_INTERVAL,
    FRESH_BYTES, FRESH_EVENTS, GATHER_WAIT, LEAST_FREE_BYTES, LostData, MAX_BATCH, OPEN_CHECK_WAIT,
    READ_CONNECTIONS, RECLAIM_PAGES, Recovered, RecoveryProgress, SHORT_READ_CONNECTIONS, SHRINK_TRIES,
    SHRINK_WAIT, SavedData, SqliteLog, UnusedDatabase, WRITE_QUEUE_JOBS, WriteCounts, check_database,
    check_foreign_database, copy_database, database_contents, recover,
};
pub use system::{SystemClock, TimeOrderedIds, random_u128};
pub use usage::UsageLine;

/// [`EventLog::read`] stops at the event that makes its result larger than this, or at most 16 KiB later.
pub const READ_BYTES: usize = 4 << 20;

/// The largest number of sessions on one [`Page`], whatever the request says.
pub const MAX_PAGE: usize = 1000;

/// The largest number of lines that [`EventLog::usage`] returns: enough for a year of many models.
pub const MAX_USAGE_LINES: usize = 10_000;

/// A log with one stream of events for each session. The program chooses the implementation at start-up and uses it as
/// `dyn EventLog`.
///
/// - Only the holder of a session's [`Lease`] writes the session.
/// - `append` returns after the events are durable.
/// - The caller passes the head that it last saw. If the head is another one now, `append` writes nothing and fails with
///   `Conflict`.
/// - The first event of a session has [`Seq`] 1, and there are no gaps.
/// - A reader that reads from any cursor and then follows `head` gets each event once and in order.
/// - Several processes may use one log at the same time; each sees the events of the others.
///
/// If the caller drops a future early, its work may have been done or may still be done later.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Appends all of `new` to the leased session, or none of it, and returns the new head. Updates the session's record
    /// in the same step. The first append, after [`Seq::START`], creates the session. An empty `new` changes nothing.
    ///
    /// Fails with `Conflict` if the head is not `after`, and with `NotHeld` if the lease was lost.
    async fn append(&self, lease: &Lease, after: Seq, new: &[NewEntry]) -> Result<Seq, LogError>;

    /// Keeps a part of the text of a message that is being written in the leased session, and returns when it is durable.
    /// It is not an event: the head stays, and nobody is woken. Later parts replace earlier ones from their start on, and
    /// the text of another message replaces all of it. An append removes it that completes a message or ends a run.
    ///
    /// Fails with `UnknownSession` if the session has no event, and with `NotHeld` if the lease was lost.
    async fn keep_partial_text(&self, lease: &Lease, part: PartialText<'_>) -> Result<(), LogError>;

    /// The message that [`keep_partial_text`](Self::keep_partial_text) has kept, with its text up to the first missing
    /// part.
    async fn partial_message(&self, session: &SessionId) -> Result<Option<PartialMessage>, LogError>;

    /// Keeps a snapshot of the leased session, in place of the one before. It is not an event: the head stays, and nobody
    /// is woken. One larger than [`MAX_SNAPSHOT_BYTES`] is not kept. A snapshot may be lost at any time.
    ///
    /// Fails with `UnknownSession` if the session has no event, and with `NotHeld` if the lease was lost.
    async fn keep_snapshot(&self, lease: &Lease, snapshot: &SessionSnapshot) -> Result<(), LogError>;

    /// The snapshot that [`keep_snapshot`](Self::keep_snapshot) has kept last. `None` if there is none, if its event is
    /// not in the session, or if another version of parlor wrote it.
    async fn snapshot(&self, session: &SessionId) -> Result<Option<SessionSnapshot>, LogError>;

    /// Reads the events after `after`, in order: at most `max`, and fewer if they are large (see [`READ_BYTES`]). The
    /// result is empty only at the end of the session, or if `max` is zero.
    ///
    /// If an event cannot be decoded, the call returns the events before it. The next call fails with `Unreadable` and
    /// the event's number; to skip the event, read after that number.
    async fn read(&self, session: &SessionId, after: Seq, max: usize) -> Result<Vec<Entry>, LogError>;

    /// Finds the number of an event by its id. Searches from the end of the session: fast for late events, slow for
    /// early events of a long session.
    async fn find(&self, session: &SessionId, event: &EventId) -> Result<Option<Seq>, LogError>;

    /// Returns a receiver that wakes when any process has appended to the session or deleted it. Its value is a head
    /// that was seen; the events themselves come from `read`. Subscribe first, then read until nothing is left, then
    /// wait.
    fn head(&self, session: &SessionId) -> watch::Receiver<Seq>;

    /// Lists the records of all sessions, the last updated first.
    ///
    /// A caller that follows the cursors sees no session twice. A session that is updated between two calls moves to the
    /// front, before the cursor.
    async fn sessions(&self, page: PageRequest) -> Result<Page, LogError>;

    /// The record of one session.
    async fn session(&self, id: &SessionId) -> Result<SessionRecord, LogError>;

    /// Takes the lease of a session. The session need not exist yet.
    ///
    /// Fails with `Held` while the lease is taken. The log takes over the lease of a dead process once it is certain that
    /// the process writes no more: at once on one machine, and after `postgres::LEASE_WAIT` on several. It takes over the
    /// lease of a living process never.
    async fn acquire(&self, session: &SessionId) -> Result<Lease, LogError>;

    /// Returns a receiver that becomes true when the lease is lost, also if its holder writes nothing. The store may need
    /// a moment to notice. Holders use it to stop effects that the log cannot prevent, such as running tools. A lease
    /// that was lost before the call may be reported by no more than a refused append.
    fn lost(&self, lease: &Lease) -> watch::Receiver<bool>;

    /// The holder of a session's lease, if there is one and it is alive. The answer may be out of date when it arrives.
    async fn holder(&self, session: &SessionId) -> Result<Option<LeaseHolder>, LogError>;

    /// Releases a lease, and returns when others can take it. Dropping the lease does the same without waiting.
    /// Succeeds also if the lease was lost before.
    async fn release(&self, lease: Lease) -> Result<(), LogError>;

    /// Like [`release`](Self::release), for a session that has work left, such as inputs that wait: processes that look for
    /// [orphans](Self::orphans) find it.
    async fn abandon(&self, lease: Lease) -> Result<(), LogError> {
        self.release(lease).await
    }

    /// Sessions whose last holder died or left before their work was done, and that this process may open. Others may be
    /// faster. Only a log that several machines share has any.
    async fn orphans(&self) -> Result<Vec<SessionId>, LogError> {
        Ok(Vec::new())
    }

    /// The processes that serve their sessions to others, with those that have ended and left sessions behind. Empty if the
    /// log is on one machine.
    async fn nodes(&self) -> Result<Vec<NodeRecord>, LogError> {
        Ok(Vec::new())
    }

    /// Deletes the leased session with its events and its record. The lease is lost. The id may be used again; cursors
    /// into the old session are meaningless then.
    ///
    /// The log overwrites the deleted text. Further copies may exist until [`erase`](Self::erase) removes them. Later
    /// appends reuse the space; [`reclaim`](Self::reclaim) returns it to the file system.
    async fn delete(&self, lease: &Lease) -> Result<(), LogError>;

    /// Removes the last copies of deleted text from the store's files. Call it after one deletion or many;
    /// [`reclaim`](Self::reclaim) includes it.
    async fn erase(&self) -> Result<Erased, LogError>;

    /// The stored files that any event of any session refers to.
    async fn referenced_media(&self) -> Result<BTreeSet<MediaId>, LogError>;

    /// Usage by day and model from the day `since` on, oldest first: at most the last [`MAX_USAGE_LINES`] lines. Days
    /// are counted since the start of 1970 in UTC. Includes sessions that were deleted.
    async fn usage(&self, since: i64) -> Result<Vec<UsageLine>, LogError>;

    /// Checks whether events can be appended now: inspects the files and tries a small write. Waits for the disk, so do
    /// not call it for every request.
    async fn check(&self) -> Result<(), LogError>;

    /// The size of the store's files in bytes; 0 if the store is not on a disk.
    async fn size(&self) -> Result<u64, LogError>;

    /// Returns the space of deleted sessions to the file system, in steps between which others can append.
    async fn reclaim(&self) -> Result<Reclaimed, LogError>;

    /// Gives back what this process holds in a shared store, so that others need not find out that it has ended. For a
    /// process that ends: the log may refuse all further writes.
    async fn close(&self) {}
}

/// Whether deleted text is gone from all files of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erased {
    /// The text is gone.
    Yes,
    /// The text is still in a file, because somebody reads an older state of the store. The store tries again while this
    /// process lives, and when the last process closes the store.
    Later,
}

/// The result of [`EventLog::reclaim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclaimed {
    /// How many bytes the store gave up. While somebody reads an older state, the files keep their size; they shrink
    /// with later writes.
    pub bytes: u64,
    /// Whether deleted text is gone from all files.
    pub erased: Erased,
}
