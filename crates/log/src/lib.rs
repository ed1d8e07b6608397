//! Where events and session records are kept: one stream of events for each session.
//!
//! [`EventLog`] is the contract and `conformance` is the contract as tests; [`MemoryLog`] and
//! [`SqliteLog`] keep it. Readers hold a cursor and read on from the log: nothing is queued for
//! them, so a slow one is late and never wrong.
//!
//! Deliberately absent: what the events mean. The one exception is [`SessionRecord`], a line about
//! each session that a list can show without reading its events.

#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
mod error;
mod heads;
mod lease;
mod media;
mod memory;
mod record;
mod row;
mod sqlite;
mod system;
mod usage;

use std::collections::BTreeSet;

use async_trait::async_trait;
use parlor_vocab::{Entry, EventId, MediaId, NewEntry, Seq, SessionId};
use tokio::sync::watch;

pub use error::{LeaseHolder, LogError};
pub use lease::Lease;
pub use memory::MemoryLog;
pub use record::{Page, PageCursor, PageRequest, SessionRecord};
pub use sqlite::{
    BUSY_WAIT, Checked, Counts, ERASE_RETRY, FOLLOW_INTERVAL, FRESH_BYTES, FRESH_EVENTS, GATHER_WAIT,
    LEAST_FREE_BYTES, LostData, MAX_BATCH, OPEN_CHECK_WAIT, READ_CONNECTIONS, RECLAIM_PAGES, Recovered,
    RecoveryProgress, SHRINK_TRIES, SHRINK_WAIT, SavedData, SqliteLog, WRITE_QUEUE_JOBS, check_database,
    recover,
};
pub use system::{SystemClock, TimeOrderedIds};
pub use usage::UsageLine;

/// One answer of [`EventLog::read`] ends at the event that makes it larger than this, or at most 16 KiB later.
pub const READ_BYTES: usize = 4 << 20;

/// The most sessions on one [`Page`], whatever is asked for.
pub const MAX_PAGE: usize = 1000;

/// The most lines of [`EventLog::usage`]: a year of many models.
pub const MAX_USAGE_LINES: usize = 10_000;

/// What happened, one stream for each session. Chosen at start-up, hence used as `dyn`.
///
/// - A session is written by whoever holds its [`Lease`], and by nobody else.
/// - `append` returns when the events are durable, not before.
/// - `after` is the head the caller saw; if it moved, nothing is written: `Conflict`.
/// - The first event of a session has [`Seq`] 1, and there are no gaps.
/// - Reading from any cursor, then following `head`, gives each event once and in order.
/// - Several processes may use one log at once; each sees what the others have appended.
///
/// A future that is dropped before it is done may have had its effect, or have it later.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Appends `new` to the leased session, all or none, and returns the new head. The first
    /// append after [`Seq::START`] brings the session into being. The session's record is brought
    /// up to date in the same step. Nothing to append is an append that changes nothing.
    ///
    /// Fails with `Conflict` if the head is not `after`, with `NotHeld` if the lease was lost.
    async fn append(&self, lease: &Lease, after: Seq, new: &[NewEntry]) -> Result<Seq, LogError>;

    /// The events that stand after `after`, in order: at most `max`, fewer if they are large (see
    /// [`READ_BYTES`]), and none only if there are none or `max` is zero.
    ///
    /// Events before an unreadable one are returned; the next call then fails with `Unreadable`
    /// and the event's place, which can be skipped by reading after it.
    async fn read(&self, of: &SessionId, after: Seq, max: usize) -> Result<Vec<Entry>, LogError>;

    /// Where in the session the event of this id stands; none if it is not there. Fast for late events, slow
    /// for early ones of a long session.
    async fn find(&self, of: &SessionId, event: &EventId) -> Result<Option<Seq>, LogError>;

    /// Wakes when there may be more to read, whichever process appended it, and when the session
    /// is deleted. Only wakes: the value is a head that was seen, and events come from `read`.
    /// Subscribe first, then read until there is nothing, then wait.
    fn head(&self, of: &SessionId) -> watch::Receiver<Seq>;

    /// The records of all sessions, the last updated first.
    ///
    /// Following the cursors, no session is listed twice; one that is updated meanwhile moves
    /// before the cursor, where a new list begins.
    async fn sessions(&self, page: PageRequest) -> Result<Page, LogError>;

    /// The record of one session.
    async fn session(&self, id: &SessionId) -> Result<SessionRecord, LogError>;

    /// Takes the right to write a session, which need not exist yet.
    ///
    /// Fails with `Held` while somebody has it. The lease of a process that is dead is taken over
    /// at once, that of a living one never.
    async fn acquire(&self, session: &SessionId) -> Result<Lease, LogError>;

    /// Who holds the lease of a session at the moment; nobody, if its holder is dead. What is true when it is looked
    /// up may have changed when it is told.
    async fn holder(&self, of: &SessionId) -> Result<Option<LeaseHolder>, LogError>;

    /// Gives a lease back and returns when others can take it. Dropping it does the same without
    /// waiting. That the lease was lost before is no error.
    async fn release(&self, lease: Lease) -> Result<(), LogError>;

    /// Deletes the leased session with its events and its record. The lease is lost with it. The
    /// id may be used anew; cursors into the old session mean nothing then.
    ///
    /// Its space is used by what is appended later; [`reclaim`](Self::reclaim) makes the store smaller. What it held
    /// is overwritten, but for copies that [`erase`](Self::erase) takes away.
    async fn delete(&self, lease: &Lease) -> Result<(), LogError>;

    /// Takes the last copies of what was deleted out of the store's files. For after one deletion or many;
    /// [`reclaim`](Self::reclaim) does it too.
    async fn erase(&self) -> Result<Erased, LogError>;

    /// The stored files that any event of any session speaks of.
    async fn referenced_media(&self) -> Result<BTreeSet<MediaId>, LogError>;

    /// What was used from a day on, by day and model, the oldest first: at most [`MAX_USAGE_LINES`], the last ones.
    /// Days are those of UTC since 1970. Counts all sessions, also those that were deleted.
    async fn usage(&self, since: i64) -> Result<Vec<UsageLine>, LogError>;

    /// Whether events can be appended now, as far as a look at the files and a small write can tell. Waits for the
    /// disk, so it is not for every request.
    async fn check(&self) -> Result<(), LogError>;

    /// How many bytes the store takes on the disk. None, if it is not on a disk.
    async fn size(&self) -> Result<u64, LogError>;

    /// Gives the space of what was deleted back to the file system. Others append meanwhile.
    async fn reclaim(&self) -> Result<Reclaimed, LogError>;
}

/// Whether what was deleted is in no file of the store any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erased {
    /// It is not.
    Yes,
    /// It still is, since somebody reads an older state. It is tried again while this process lives, and when the
    /// last process that has the store open closes it.
    Later,
}

/// What [`EventLog::reclaim`] has given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclaimed {
    /// By how much the store became smaller. While somebody reads an older state of it, its files
    /// are as large as before; they shrink when others write after that.
    pub bytes: u64,
    /// Whether what was deleted is in no file any more.
    pub erased: Erased,
}
