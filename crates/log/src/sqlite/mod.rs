//! The log in an SQLite database, for any number of processes on one machine.
//!
//! One thread of each store writes, and it starts with the first thing to write: what waits for it
//! at the same time shares one transaction, hence one flush of the disk ([`writer`]). Reading
//! happens on the runtime's blocking threads, on a few connections ([`read`]). An idle store has
//! one sleeping thread, or none.

mod check;
mod fault;
mod fresh;
mod holder;
mod ledger;
mod open_files;
mod queue;
mod read;
mod reclaim;
mod recover;
mod replay;
mod save;
mod schema;
mod statements;
mod work;
mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{Clock, Entry, EventId, MediaId, NewEntry, Seq, SessionId};
use rusqlite::Connection;
use tokio::sync::watch;

use self::open_files::OpenFiles;
use self::queue::Queue;
use self::read::Readers;
use self::work::{Done, NewEvent, Work};
use crate::heads::Heads;
use crate::lease::{LeaseReleaser, Token};
use crate::{
    Erased, EventLog, Lease, LeaseHolder, LogError, Page, PageRequest, Reclaimed, SessionRecord, UsageLine,
};

pub use self::check::{Checked, LEAST_FREE_BYTES, OPEN_CHECK_WAIT, check_database};
pub use self::fresh::{FRESH_BYTES, FRESH_EVENTS};
pub use self::reclaim::{ERASE_RETRY, RECLAIM_PAGES, SHRINK_TRIES, SHRINK_WAIT};
pub use self::recover::{LostData, Recovered, RecoveryProgress, SavedData, recover};

/// How long the database may be kept busy by other processes before one of ours gives up.
pub const BUSY_WAIT: Duration = Duration::from_secs(10);

/// How many connections read at the same time.
pub const READ_CONNECTIONS: usize = 2;

/// How many appends and other changes may wait for the writer. Who comes then waits for room.
pub const WRITE_QUEUE_JOBS: usize = 1024;

/// How many changes share one transaction at most.
pub const MAX_BATCH: usize = 256;

/// How long a transaction waits for those who took part in the one before: at most about as long as
/// they need to come back, and little beside what the last transaction took, which is mostly a flush of the disk.
pub const GATHER_WAIT: Duration = Duration::from_micros(200);

/// The part of a transaction's time that the next one may wait.
const GATHER_SHARE: u32 = 4;

/// How often the appends of other processes are looked for, while somebody waits for any.
pub const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// A log in `parlor.db` of a folder, shared with other processes.
pub struct SqliteLog(Arc<Shared>);

/// How much a store has written since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Appends that are durable.
    pub appends: u64,
    /// Transactions that they and other changes took.
    pub commits: u64,
}

/// What the handle, its leases and its writer share.
struct Shared {
    files: Files,
    open_files: Arc<OpenFiles>,
    clock: Arc<dyn Clock>,
    queue: Queue,
    heads: Heads,
    readers: Arc<Readers>,
    appends: AtomicU64,
    commits: AtomicU64,
    /// How many commits there were at the last look whether there can be more.
    probed: AtomicU64,
    writer: Mutex<WriterThread>,
}

/// Where everything is.
#[derive(Clone)]
struct Files {
    database: PathBuf,
    holders: PathBuf,
}

impl Files {
    /// Those of the state folder `home`.
    fn of(home: &Path) -> Self {
        Self { database: home.join("parlor.db"), holders: home.join("holders") }
    }
}

enum WriterThread {
    /// Nothing was to be written yet.
    Waiting(Connection),
    Running(JoinHandle<()>),
    Ended,
}

impl SqliteLog {
    /// Opens the log in folder `home`, and makes both if they are missing. Waits for the disk. The
    /// clock tells since when a lease is held.
    ///
    /// Fails with `Damaged` if the database is found to be; [`OPEN_CHECK_WAIT`] is spent to look for it.
    pub fn open(home: &Path, clock: Arc<dyn Clock>) -> Result<Self, LogError> {
        Self::open_checked(home, clock, OPEN_CHECK_WAIT)
    }

    /// The same, and spends as long as `wait` to look for damage.
    pub fn open_checked(home: &Path, clock: Arc<dyn Clock>, wait: Duration) -> Result<Self, LogError> {
        let home = &std::path::absolute(home).map_err(LogError::io("find", home))?;
        let files = Files::of(home);
        let (connection, open_files) = schema::open(home, &files, wait)?;
        let open_files = Arc::new(open_files);
        let readers = Arc::new(Readers::new(Arc::clone(&open_files)));
        Ok(Self(Arc::new(Shared {
            files,
            open_files,
            clock,
            queue: Queue::default(),
            heads: Heads::default(),
            readers,
            appends: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            probed: AtomicU64::new(0),
            writer: Mutex::new(WriterThread::Waiting(connection)),
        })))
    }

    /// How much was written through this handle.
    pub fn counts(&self) -> Counts {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Counts { appends: count(&self.0.appends), commits: count(&self.0.commits) }
    }

    /// Has the writer do something, and waits for it.
    async fn write(&self, work: Work) -> Result<Done, LogError> {
        self.0.open_files.refusal()?;
        self.start_writer()?;
        let answer = self.0.queue.put(work).await.ok_or(LogError::Closed)?;
        answer.await.unwrap_or(Err(LogError::Closed))
    }

    fn start_writer(&self) -> Result<(), LogError> {
        let mut writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let WriterThread::Waiting(_) = *writer {
            let WriterThread::Waiting(connection) = std::mem::replace(&mut *writer, WriterThread::Ended)
            else {
                unreachable!("it was just looked at")
            };
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new()
                .name("parlor-log".to_owned())
                .spawn(move || {
                    // Also if it panics: nobody shall wait for a writer that is gone.
                    let _closing = Closing(&shared.queue);
                    writer::run(&shared, &connection);
                })
                .map_err(LogError::io("start a thread for", &self.0.files.database))?;
            *writer = WriterThread::Running(thread);
        }
        Ok(())
    }

    fn fenced(&self, lease: &Lease) -> Result<(SessionId, Token), LogError> {
        if lease.is_of(&self.0) {
            Ok((lease.session().clone(), lease.token()))
        } else {
            Err(LogError::NotHeld { session: lease.session().clone() })
        }
    }
}

/// Closes the queue when it is dropped, and leaves nobody waiting in it.
struct Closing<'q>(&'q Queue);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Drop for SqliteLog {
    /// What was asked for is done first; leases that are still out are up for others then.
    fn drop(&mut self) {
        self.0.queue.close();
        let mut writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let WriterThread::Running(thread) = std::mem::replace(&mut *writer, WriterThread::Ended) {
            // It panicked, and has said so.
            let _ = thread.join();
        }
    }
}

impl LeaseReleaser for Shared {
    fn give_back(&self, session: &SessionId, token: Token) {
        self.queue.put_release(Work::Release { session: session.clone(), token });
    }
}

#[async_trait]
impl EventLog for SqliteLog {
    async fn append(&self, lease: &Lease, after: Seq, new: &[NewEntry]) -> Result<Seq, LogError> {
        let (session, token) = self.fenced(lease)?;
        let new = new.iter().map(NewEvent::of).collect();
        match self.write(Work::Append { session, token, after, new }).await? {
            Done::Appended(head) => Ok(head),
            Done::Leased(_) | Done::Released | Done::Deleted | Done::Reclaimed(_) => {
                unreachable!("an append was asked for")
            }
        }
    }

    async fn read(&self, of: &SessionId, after: Seq, max: usize) -> Result<Vec<Entry>, LogError> {
        let (of, readers) = (of.clone(), Arc::clone(&self.0.readers));
        let read = move |connection: &Connection, path: &Path| {
            replay::entries(&readers, connection, path, &of, after, max)
        };
        self.0.readers.with(read).await
    }

    async fn find(&self, of: &SessionId, event: &EventId) -> Result<Option<Seq>, LogError> {
        let (of, event) = (of.clone(), event.clone());
        self.0.readers.with(move |connection, path| read::find(connection, path, &of, &event)).await
    }

    fn head(&self, of: &SessionId) -> watch::Receiver<Seq> {
        let receiver = self.0.heads.subscribe(of);
        // Another process may write it; the writer looks whether there is somebody to ask.
        if self.start_writer().is_ok() {
            self.0.queue.look();
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
        match self.write(Work::Acquire { session: session.clone() }).await? {
            Done::Leased(lease) => Ok(lease),
            Done::Appended(_) | Done::Released | Done::Deleted | Done::Reclaimed(_) => {
                unreachable!("a lease was asked for")
            }
        }
    }

    async fn holder(&self, of: &SessionId) -> Result<Option<LeaseHolder>, LogError> {
        let (of, holders) = (of.clone(), self.0.files.holders.clone());
        self.0.readers.with(move |connection, path| read::holder(connection, path, &holders, &of)).await
    }

    async fn release(&self, lease: Lease) -> Result<(), LogError> {
        // That of another store goes back where it came from.
        self.fenced(&lease)?;
        let (session, token) = lease.into_parts();
        self.write(Work::Release { session, token }).await.map(|_| ())
    }

    async fn delete(&self, lease: &Lease) -> Result<(), LogError> {
        let (session, token) = self.fenced(lease)?;
        self.write(Work::Delete { session, token }).await.map(|_| ())
    }
    async fn referenced_media(&self) -> Result<BTreeSet<MediaId>, LogError> {
        self.0.readers.with(read::media).await
    }

    async fn usage(&self, since: i64) -> Result<Vec<UsageLine>, LogError> {
        self.0.readers.with(move |connection, path| read::usage(connection, path, since)).await
    }

    async fn check(&self) -> Result<(), LogError> {
        // Once whoever writes has broken down, nothing can be appended, whatever the disk says.
        if self.0.queue.is_closed() {
            return Err(LogError::Closed);
        }
        let commits = self.0.commits.load(Ordering::Relaxed);
        // What was written since the last look needs no proof that it can be.
        let writes = self.0.probed.swap(commits, Ordering::Relaxed) == commits;
        let files = Arc::clone(&self.0.open_files);
        let probed = tokio::task::spawn_blocking(move || check::probe(&files, writes)).await;
        let probed = probed.unwrap_or(Err(LogError::Closed));
        if self.0.open_files.are_replaced() {
            // The writer keeps what was acknowledged, if there is any.
            self.0.queue.look();
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
        // One after another through the queue: appends come in between.
        while let Done::Reclaimed(freed) = self.write(Work::Reclaim).await? {
            bytes += freed.bytes;
            if !freed.more {
                break;
            }
        }
        Ok(Reclaimed { bytes, erased: self.erase().await? })
    }
}
