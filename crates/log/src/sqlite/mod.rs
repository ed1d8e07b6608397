//! The log in an SQLite database, for any number of processes on one machine.
//!
//! Each store has one writer thread, which starts with the first write. Requests that wait for it at the same time share
//! one transaction, so that the disk is flushed once for all of them ([`writer`]). Reads run on the runtime's blocking
//! threads with a few connections of their own ([`read`]). An idle store has one sleeping thread, or none.

mod backup;
mod check;
mod copying;
mod db_error;
mod fresh;
mod holder;
mod open_files;
mod queue;
mod read;
mod read_events;
mod reclaim;
mod recover;
mod request;
mod rescue;
mod schema;
mod statements;
mod unused;
mod write_connection;
mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{Clock, Entry, EventId, MediaId, NewEntry, Seq, SessionId};
use rusqlite::Connection;
use tokio::sync::watch;

use self::open_files::OpenFiles;
use self::queue::Queue;
use self::read::Readers;
use self::request::{EncodedEntry, WriteReply, WriteRequest};
use crate::heads::Heads;
use crate::lease::{LeaseReleaser, Token};
use crate::lost_leases::LostLeases;
use crate::snapshot::StoredSnapshot;
use crate::{
    Announcement, Erased, EventLog, Lease, LeaseHolder, LogError, Page, PageRequest, PartialMessage,
    PartialText, Reclaimed, SessionRecord, SessionSnapshot, UsageLine,
};

pub use self::backup::{
    CopyProgress, DatabaseContents, check_foreign_database, copy_database, database_contents,
};
pub use self::check::{DamageCheck, LEAST_FREE_BYTES, OPEN_CHECK_WAIT, check_database};
pub use self::fresh::{FRESH_BYTES, FRESH_EVENTS};
pub use self::reclaim::{ERASE_RETRY, RECLAIM_PAGES, SHRINK_TRIES, SHRINK_WAIT};
pub use self::recover::{LostData, Recovered, RecoveryProgress, SavedData, recover};
pub use self::unused::UnusedDatabase;

/// The newest format of the database that this version knows.
pub const DATABASE_FORMAT: i64 = schema::NEWEST_FORMAT;

/// How long an operation waits while another process has the database locked.
pub const BUSY_WAIT: Duration = Duration::from_secs(10);

/// The number of connections that can read events at the same time.
pub const READ_CONNECTIONS: usize = 2;

/// The number of connections for short reads, such as records and lists, that reads of events cannot take.
pub const SHORT_READ_CONNECTIONS: usize = 1;

/// The largest number of requests in the writer's queue. When it is full, callers wait asynchronously.
pub const WRITE_QUEUE_JOBS: usize = 1024;

/// The largest number of requests in one transaction.
pub const MAX_BATCH: usize = 256;

/// The longest time that the writer waits for the callers of the last transaction to send their next requests, before it
/// begins a transaction without them.
pub const GATHER_WAIT: Duration = Duration::from_micros(200);

/// The writer also waits no longer than the time that the last transaction took, divided by this number.
const GATHER_DIVISOR: u32 = 4;

/// How often the writer polls for appends of other processes while a caller follows a session, and for the loss of a
/// lease while its holder waits for that.
pub const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// An event log in the file `parlor.db` of a folder. Several processes can share it.
pub struct SqliteLog(Arc<Shared>);

/// What a store has written since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteCounts {
    /// Successful appends.
    pub appends: u64,
    /// Committed transactions of all kinds of requests.
    pub commits: u64,
}

/// The data that the handle, its leases and its writer thread share.
struct Shared {
    files: Files,
    /// Set before the first lease, if at all.
    announcement: OnceLock<Announcement>,
    open_files: Arc<OpenFiles>,
    clock: Arc<dyn Clock>,
    queue: Queue,
    heads: Heads,
    lost_leases: LostLeases,
    readers: Arc<Readers>,
    appends: AtomicU64,
    commits: AtomicU64,
    /// The value of `commits` at the last [`EventLog::check`].
    commits_at_check: AtomicU64,
    writer: Mutex<WriterThread>,
}

/// The paths of a store.
#[derive(Clone)]
struct Files {
    database: PathBuf,
    /// The folder of the lock files of lease holders ([`holder`]).
    holders: PathBuf,
}

impl Files {
    /// The paths in the state folder `home`.
    fn in_home(home: &Path) -> Self {
        Self { database: home.join("parlor.db"), holders: home.join("holders") }
    }
}

enum WriterThread {
    /// Nothing has been written yet; the thread will use this connection.
    NotStarted(Connection),
    Running(JoinHandle<()>),
    Ended,
}

impl SqliteLog {
    /// Opens the log in the folder `home`, and creates folder and log if they are missing. Blocks. The clock sets
    /// [`LeaseHolder::since`].
    ///
    /// Looks for damage for at most [`OPEN_CHECK_WAIT`], and fails with `Damaged` if it finds any.
    pub fn open(home: &Path, clock: Arc<dyn Clock>) -> Result<Self, LogError> {
        Self::open_with_check_wait(home, clock, OPEN_CHECK_WAIT)
    }

    /// Like [`open`](Self::open), but looks for damage for at most `check_wait`.
    pub fn open_with_check_wait(
        home: &Path,
        clock: Arc<dyn Clock>,
        check_wait: Duration,
    ) -> Result<Self, LogError> {
        let home = &std::path::absolute(home).map_err(LogError::io("find", home))?;
        let files = Files::in_home(home);
        let (connection, open_files) = schema::open(home, &files, check_wait)?;
        let open_files = Arc::new(open_files);
        let readers = Arc::new(Readers::new(Arc::clone(&open_files)));
        Ok(Self(Arc::new(Shared {
            files,
            announcement: OnceLock::new(),
            open_files,
            clock,
            queue: Queue::default(),
            heads: Heads::default(),
            lost_leases: LostLeases::default(),
            readers,
            appends: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            commits_at_check: AtomicU64::new(0),
            writer: Mutex::new(WriterThread::NotStarted(connection)),
        })))
    }

    /// Sets what this process tells others of itself. Takes effect with the first lease, and only once.
    pub fn announce(&self, announcement: Announcement) {
        // A second announcement is ignored: others may have read the first.
        let _ = self.0.announcement.set(announcement);
    }

    /// Counts what was written through this handle.
    pub fn counts(&self) -> WriteCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WriteCounts { appends: load(&self.0.appends), commits: load(&self.0.commits) }
    }

    /// Sends a request to the writer thread and waits for its reply.
    async fn write(&self, request: WriteRequest) -> Result<WriteReply, LogError> {
        self.0.open_files.check_usable()?;
        self.start_writer()?;
        let reply = self.0.queue.push(request).await.ok_or(LogError::Closed)?;
        reply.await.unwrap_or(Err(LogError::Closed))
    }

    fn start_writer(&self) -> Result<(), LogError> {
        let mut writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let WriterThread::NotStarted(_) = *writer {
            let WriterThread::NotStarted(connection) = std::mem::replace(&mut *writer, WriterThread::Ended)
            else {
                unreachable!("the condition above matched this variant")
            };
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new()
                .name("parlor-log".to_owned())
                .spawn(move || {
                    // Runs also if the writer panics: otherwise callers would wait for their replies forever.
                    let _abandon = AbandonOnDrop(&shared.queue);
                    writer::run(&shared, &connection);
                })
                .map_err(LogError::io("start a thread for", &self.0.files.database))?;
            *writer = WriterThread::Running(thread);
        }
        Ok(())
    }

    /// Returns the session and token of a lease. Fails if the lease is of another store.
    fn check_lease(&self, lease: &Lease) -> Result<(SessionId, Token), LogError> {
        if lease.is_from(&self.0) {
            Ok((lease.session().clone(), lease.token()))
        } else {
            Err(LogError::NotHeld { session: lease.session().clone() })
        }
    }
}

/// Closes the queue when it is dropped, and fails all requests in it.
struct AbandonOnDrop<'q>(&'q Queue);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Drop for SqliteLog {
    /// Carries out the queued requests first. After that, other processes can take the leases of this store.
    fn drop(&mut self) {
        self.0.queue.close();
        let mut writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let WriterThread::Running(thread) = std::mem::replace(&mut *writer, WriterThread::Ended) {
            // An error means that the thread panicked, which the panic hook has reported.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn announcement(&self) -> &Announcement {
        self.announcement.get_or_init(Announcement::default)
    }
}

impl LeaseReleaser for Shared {
    fn release(&self, session: &SessionId, token: Token) {
        self.queue.push_release(WriteRequest::Release { session: session.clone(), token });
    }
}

#[async_trait]
impl EventLog for SqliteLog {
    async fn append(&self, lease: &Lease, after: Seq, new: &[NewEntry]) -> Result<Seq, LogError> {
        let (session, token) = self.check_lease(lease)?;
        let new = new.iter().map(EncodedEntry::new).collect();
        match self.write(WriteRequest::Append { session, token, after, new }).await? {
            WriteReply::Appended(head) => Ok(head),
            WriteReply::PartialTextKept
            | WriteReply::SnapshotKept
            | WriteReply::Leased(_)
            | WriteReply::Released
            | WriteReply::Deleted
            | WriteReply::Reclaimed(_) => {
                unreachable!("the writer replies to an append with `Appended` or an error")
            }
        }
    }

    async fn keep_partial_text(&self, lease: &Lease, part: PartialText<'_>) -> Result<(), LogError> {
        let (session, token) = self.check_lease(lease)?;
        let PartialText { message, start, text } = part;
        let (message, text) = (message.clone(), text.to_owned());
        let request = WriteRequest::KeepPartialText { session, token, message, start, text };
        self.write(request).await.map(|_| ())
    }

    async fn partial_message(&self, session: &SessionId) -> Result<Option<PartialMessage>, LogError> {
        let session = session.clone();
        self.0.readers.with(move |connection, path| read::partial_message(connection, path, &session)).await
    }

    async fn keep_snapshot(&self, lease: &Lease, snapshot: &SessionSnapshot) -> Result<(), LogError> {
        let (session, token) = self.check_lease(lease)?;
        let Some(snapshot) = StoredSnapshot::encode(snapshot) else { return Ok(()) };
        self.write(WriteRequest::KeepSnapshot { session, token, snapshot }).await.map(|_| ())
    }

    async fn snapshot(&self, session: &SessionId) -> Result<Option<SessionSnapshot>, LogError> {
        let session = session.clone();
        let read = move |connection: &Connection, path: &Path| read::snapshot(connection, path, &session);
        Ok(self.0.readers.with(read).await?.and_then(StoredSnapshot::decode))
    }

    async fn read(&self, session: &SessionId, after: Seq, max: usize) -> Result<Vec<Entry>, LogError> {
        let (session, readers) = (session.clone(), Arc::clone(&self.0.readers));
        let read = move |connection: &Connection, path: &Path| {
            read_events::entries(&readers, connection, path, &session, after, max)
        };
        self.0.readers.with_events(read).await
    }

    async fn find(&self, session: &SessionId, event: &EventId) -> Result<Option<Seq>, LogError> {
        let (session, event) = (session.clone(), event.clone());
        self.0.readers.with(move |connection, path| read::find(connection, path, &session, &event)).await
    }

    fn head(&self, session: &SessionId) -> watch::Receiver<Seq> {
        let receiver = self.0.heads.subscribe(session);
        // Another process may append to the session, so the writer thread has to poll for new events.
        if self.start_writer().is_ok() {
            self.0.queue.request_poll();
        }
        receiver
    }

    async fn sessions(&self, page: PageRequest) -> Result<Page, LogError> {
        self.0.readers.with(move |connection, path| read::page(connection, path, &page)).await
    }

    async fn session(&self, id: &SessionId) -> Result<SessionRecord, LogError> {
        let id = id.clone();
        self.0.readers.with(move |connection, path| read::record(connection, path, &id)).await
    }

    async fn acquire(&self, session: &SessionId) -> Result<Lease, LogError> {
        match self.write(WriteRequest::Acquire { session: session.clone() }).await? {
            WriteReply::Leased(lease) => Ok(lease),
            WriteReply::Appended(_)
            | WriteReply::PartialTextKept
            | WriteReply::SnapshotKept
            | WriteReply::Released
            | WriteReply::Deleted
            | WriteReply::Reclaimed(_) => {
                unreachable!("the writer replies to an acquire with `Leased` or an error")
            }
        }
    }

    fn lost(&self, lease: &Lease) -> watch::Receiver<bool> {
        let receiver = self.0.lost_leases.subscribe(lease.session(), lease.token());
        // Another process may take the lease over, so the writer thread has to poll for that.
        self.0.queue.request_poll();
        receiver
    }

    async fn holder(&self, session: &SessionId) -> Result<Option<LeaseHolder>, LogError> {
        let (session, holders) = (session.clone(), self.0.files.holders.clone());
        self.0.readers.with(move |connection, path| read::holder(connection, path, &holders, &session)).await
    }

    async fn release(&self, lease: Lease) -> Result<(), LogError> {
        // On failure, dropping the lease releases it in the store that gave it.
        self.check_lease(&lease)?;
        let (session, token) = lease.into_parts();
        self.write(WriteRequest::Release { session, token }).await.map(|_| ())
    }

    async fn delete(&self, lease: &Lease) -> Result<(), LogError> {
        let (session, token) = self.check_lease(lease)?;
        self.write(WriteRequest::Delete { session, token }).await.map(|_| ())
    }

    async fn referenced_media(&self) -> Result<BTreeSet<MediaId>, LogError> {
        self.0.readers.with(read::media).await
    }

    async fn usage(&self, since: i64) -> Result<Vec<UsageLine>, LogError> {
        self.0.readers.with(move |connection, path| read::usage(connection, path, since)).await
    }

    async fn check(&self) -> Result<(), LogError> {
        // After a panic of the writer thread the store accepts no writes, whatever the state of the disk.
        if self.0.queue.is_closed() {
            return Err(LogError::Closed);
        }
        let commits = self.0.commits.load(Ordering::Relaxed);
        // Commits since the last check prove that writing works.
        let try_write = self.0.commits_at_check.swap(commits, Ordering::Relaxed) == commits;
        let files = Arc::clone(&self.0.open_files);
        let probed = tokio::task::spawn_blocking(move || check::probe(&files, try_write)).await;
        let probed = probed.unwrap_or(Err(LogError::Closed));
        if self.0.open_files.are_replaced() {
            // Wakes the writer thread, which then rescues the acknowledged events.
            self.0.queue.request_poll();
        }
        probed
    }

    async fn erase(&self) -> Result<Erased, LogError> {
        reclaim::erase(&self.0.readers, SHRINK_TRIES).await
    }

    async fn size(&self) -> Result<u64, LogError> {
        self.0.readers.with(|_, path| reclaim::size(path)).await
    }

    async fn reclaim(&self) -> Result<Reclaimed, LogError> {
        let mut bytes = 0;
        // Each step goes through the queue, so that appends are carried out in between.
        while let WriteReply::Reclaimed(freed) = self.write(WriteRequest::Reclaim).await? {
            bytes += freed.bytes;
            if !freed.more {
                break;
            }
        }
        Ok(Reclaimed { bytes, erased: self.erase().await? })
    }
}
