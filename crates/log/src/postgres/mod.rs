//! The log in a PostgreSQL database, for any number of processes on any number of machines.
//!
//! A log has a writer task with one connection, which commits all requests that wait at the same time together
//! (`writer.rs`); a task that sends heartbeats (`node.rs`); a task that listens for the appends of others (`wake.rs`); and a
//! few connections for reading (`readers.rs`). Each write is one statement and a transaction of its own, so that a process
//! that is paused at any moment holds no lock. Poolers that share a connection between transactions cannot be used.

mod append;
mod append_all;
mod append_each;
mod cluster;
mod connect;
mod copying;
mod db_error;
mod group;
mod leases;
mod media;
mod node;
mod queue;
mod read;
mod readers;
mod record_cache;
mod request;
mod schema;
mod shared_values;
mod snapshots;
#[cfg(any(test, feature = "test-util"))]
pub mod test_server;
mod tls;
mod wake;
mod writer;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{Clock, Entry, EventId, MediaId, NewEntry, Seq, SessionId};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::connect::Connector;
use self::db_error::{DbError, log_error};
use self::node::{Membership, NumberedAnnouncement};
use self::queue::Queue;
use self::readers::Readers;
use self::request::{EncodedEntry, WriteReply, WriteRequest};
use self::wake::FollowedSessions;
use crate::heads::Heads;
use crate::lease::{LeaseReleaser, Token};
use crate::lost_leases::LostLeases;
use crate::snapshot::StoredSnapshot;
use crate::{
    Announcement, Erased, EventLog, Lease, LeaseHolder, LogError, NodeRecord, Page, PageRequest,
    PartialMessage, PartialText, Reclaimed, SessionRecord, SessionSnapshot, UsageLine,
};

pub use self::cluster::{MAX_NODES, MAX_ORPHANS};
pub use self::connect::{
    CONNECT_WAIT, KEEPALIVE_INTERVAL, MAX_BACKOFF, MIN_BACKOFF, NEXT_HOST_WAIT, SILENCE_LIMIT,
};
pub use self::media::MEDIA_PIECE_BYTES;
pub use self::node::NODE_KEEP;
pub use self::read::READ_EVENTS;
pub use self::readers::READ_CONNECTIONS;
pub use self::record_cache::MAX_CACHED_RECORDS;

/// How often a process renews its heartbeat.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Others may take the leases of a process whose last heartbeat is older than this, by the database's clock.
pub const LEASE_WAIT: Duration = Duration::from_secs(5);

/// A process gives up its leases when no heartbeat succeeded for this long, by its own clock. Less than [`LEASE_WAIT`], so
/// that it has stopped its tools before others take over.
pub const RENEW_LIMIT: Duration = Duration::from_secs(3);

/// The largest number of requests in the writer's queue. When it is full, callers wait.
pub const WRITE_QUEUE_REQUESTS: usize = 1024;

/// The largest number of requests in one transaction.
pub const MAX_GROUP: usize = 256;

/// The longest time that the writer waits for the callers of the last transaction to send their next requests.
pub const GATHER_WAIT: Duration = Duration::from_micros(200);

/// A transaction has about this many bytes of events at most, unless a single append has more.
pub const MAX_GROUP_BYTES: usize = 8 << 20;

/// The largest append in bytes. The server closes a connection that sends a message of 1 GiB.
pub const MAX_APPEND_BYTES: usize = 256 << 20;

/// The longest name of a node in bytes. It is a part of the key of usage rows.
pub const MAX_NODE_BYTES: usize = 256;

/// The name of a model is cut at this many bytes in the usage of a day. It is a part of the key of usage rows, and the server
/// refuses a key of 2,700 bytes.
pub const MAX_MODEL_BYTES: usize = 1024;

/// Where a log is, and who opens it.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The address, such as `postgres://user@host1,host2:5433/database?sslmode=verify-full&search_path=parlor`. Beside the
    /// parameters of the driver it may have `sslmode` (without it, servers on other machines have to prove their names),
    /// `sslrootcert` (a file; the system's authorities otherwise) and `search_path` (the schema).
    pub url: String,
    /// Replaces the password of the URL.
    pub password: Option<String>,
    /// The name of this node.
    pub node: String,
    /// The label of the file system with the working folders of this node: a node with a label opens only sessions that
    /// nodes with the same label created.
    pub workspace: Option<String>,
    /// See [`HEARTBEAT_INTERVAL`].
    pub heartbeat_interval: Duration,
    /// See [`LEASE_WAIT`]. All processes that share a log need the same value.
    pub lease_wait: Duration,
    /// See [`RENEW_LIMIT`].
    pub renew_limit: Duration,
}

impl PostgresOptions {
    /// The usual options.
    pub fn new(url: impl Into<String>, node: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            password: None,
            node: node.into(),
            workspace: None,
            heartbeat_interval: HEARTBEAT_INTERVAL,
            lease_wait: LEASE_WAIT,
            renew_limit: RENEW_LIMIT,
        }
    }
}

impl PostgresOptions {
    /// The hosts and the database of the URL, without user, password and parameters. Fails if it is not the URL of a log.
    pub fn store(&self) -> Result<String, LogError> {
        Connector::new(&self.url, None).map(|connector| connector.store().to_owned())
    }

    /// The password in the URL, if there is one.
    pub fn password_in_url(&self) -> Option<String> {
        connect::password_in(&self.url)
    }

    fn check(&self) -> Result<(), String> {
        if self.node.is_empty() || self.node.len() > MAX_NODE_BYTES {
            return Err(format!("the name of a node has 1 to {MAX_NODE_BYTES} bytes"));
        }
        if !(self.heartbeat_interval < self.renew_limit && self.renew_limit < self.lease_wait) {
            return Err(format!(
                "the heartbeat interval ({:?}) must be shorter than the renew limit ({:?}), and that shorter than the \
                 lease wait ({:?})",
                self.heartbeat_interval, self.renew_limit, self.lease_wait
            ));
        }
        Ok(())
    }
}

impl std::fmt::Debug for PostgresOptions {
    /// Without URL and password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions").field("node", &self.node).finish_non_exhaustive()
    }
}

/// An event log in a PostgreSQL database, which several machines can share. It lives in the runtime that opened it.
pub struct PostgresLog {
    shared: Arc<Shared>,
    /// Taken by [`close`](EventLog::close).
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// The data that the handle, its leases and its tasks share.
struct Shared {
    options: PostgresOptions,
    connector: Connector,
    clock: Arc<dyn Clock>,
    announcement: watch::Sender<NumberedAnnouncement>,
    /// The number of the announcement that others can see.
    written_announcement: watch::Sender<u64>,
    queue: Queue,
    heads: Heads,
    followed_sessions: FollowedSessions,
    /// Asks the listening task to wake all followers.
    heads_stale: Notify,
    lost_leases: LostLeases,
    membership: Membership,
    /// How often this process has given up its leases.
    gave_up: watch::Sender<u64>,
    readers: Readers,
    /// How often the writer or the heartbeat has reconnected. The new server may not be the one that the other connections
    /// lead to; those would not see what is written to it.
    reconnects: watch::Sender<u64>,
    /// The channel of notifications.
    channel: String,
    /// Ends the tasks.
    closed: watch::Sender<bool>,
}

impl PostgresLog {
    /// Opens the log, and creates or migrates its tables. The clock sets [`LeaseHolder::since`]. Fails with `Newer` if a
    /// newer parlor migrated the tables.
    pub async fn open(options: PostgresOptions, clock: Arc<dyn Clock>) -> Result<Self, LogError> {
        let connector = Connector::new(&options.url, options.password.as_deref())?;
        options.check().map_err(|reason| LogError::Database {
            store: connector.store().to_owned(),
            source: reason.into(),
        })?;
        let failed = |error| log_error(connector.store(), options.heartbeat_interval, error);
        let mut heartbeat = node::connect(&connector).await.map_err(failed)?;
        schema::migrate(&mut heartbeat).await.map_err(failed)??;
        let rows = heartbeat.query("SELECT current_schema()::text", &[]).await.map_err(failed)?;
        let schema: Option<String> = rows.first().and_then(|row| row.get(0));
        let channel = wake::channel_name(&schema.unwrap_or_default());
        let sent = Instant::now();
        let registered = node::register(&mut heartbeat, &options, &Announcement::default(), None).await;
        let incarnation = registered.map_err(failed)?;
        let shared = Arc::new(Shared {
            options,
            connector,
            clock,
            announcement: watch::Sender::default(),
            written_announcement: watch::Sender::default(),
            queue: Queue::default(),
            heads: Heads::default(),
            followed_sessions: FollowedSessions::default(),
            heads_stale: Notify::new(),
            lost_leases: LostLeases::default(),
            membership: Membership::default(),
            gave_up: watch::Sender::new(0),
            readers: Readers::default(),
            reconnects: watch::Sender::new(0),
            channel,
            closed: watch::Sender::new(false),
        });
        shared.membership.begin(incarnation, sent);
        let listening = wake::listen(&shared).await.map_err(|error| shared.log_error(error))?;
        let writing = writer::connect(&shared).await.map_err(|error| shared.log_error(error))?;
        tokio::spawn(node::run(Arc::clone(&shared), heartbeat));
        tokio::spawn(wake::run(Arc::clone(&shared), listening));
        let writer = tokio::spawn(writer::run(Arc::clone(&shared), writing));
        Ok(Self { shared, writer: Mutex::new(Some(writer)) })
    }

    /// Sets what this process tells others of itself, and returns when they can see it.
    pub async fn announce(&self, announcement: Announcement) -> Result<(), LogError> {
        self.shared.announce(announcement).await
    }

    /// Sends a request to the writer and waits for its reply.
    async fn write(&self, request: WriteRequest) -> Result<WriteReply, LogError> {
        let reply = self.shared.queue.push(request).await.ok_or(LogError::Closed)?;
        reply.await.unwrap_or(Err(LogError::Closed))
    }

    /// Carries out an append.
    async fn append_encoded(&self, request: WriteRequest) -> Result<Seq, LogError> {
        if request.bytes() > MAX_APPEND_BYTES {
            let text = format!("an append of {} bytes is too large", request.bytes());
            return Err(LogError::Database {
                store: self.shared.connector.store().to_owned(),
                source: text.into(),
            });
        }
        match self.write(request).await? {
            WriteReply::Appended(head) => Ok(head),
            WriteReply::PartialTextKept
            | WriteReply::SnapshotKept
            | WriteReply::Leased(_)
            | WriteReply::Released
            | WriteReply::Deleted => {
                unreachable!("the writer replies to an append with `Appended` or an error")
            }
        }
    }

    /// Returns the session and token of a lease. Fails if the lease is of another store.
    fn check_lease(&self, lease: &Lease) -> Result<(SessionId, Token), LogError> {
        if lease.is_from(&self.shared) {
            Ok((lease.session().clone(), lease.token()))
        } else {
            Err(LogError::NotHeld { session: lease.session().clone() })
        }
    }
}

impl Drop for PostgresLog {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.shared.readers.close();
    }
}

impl Shared {
    /// The [`LogError`] for an error of the server.
    fn log_error(&self, error: DbError) -> LogError {
        log_error(self.connector.store(), self.options.heartbeat_interval, error)
    }

    /// Makes readers and the listener reconnect too.
    fn note_reconnect(&self) {
        self.reconnects.send_modify(|count| *count += 1);
    }

    fn unavailable(&self, reason: &str) -> LogError {
        LogError::Unavailable { retry: self.options.heartbeat_interval, reason: reason.to_owned() }
    }
}

impl LeaseReleaser for Shared {
    fn release(&self, session: &SessionId, token: Token) {
        // Whoever opened the session failed or was cancelled, maybe between the acquisition and the end of a run that
        // another node left. Without a row, nobody would look for what the session has left to do.
        self.queue.push_release(WriteRequest::Release { session: session.clone(), token, has_work: true });
    }
}

#[async_trait]
impl EventLog for PostgresLog {
    async fn append(&self, lease: &Lease, after: Seq, new: &[NewEntry]) -> Result<Seq, LogError> {
        let (session, token) = self.check_lease(lease)?;
        let new = new.iter().map(EncodedEntry::new).collect();
        self.append_encoded(WriteRequest::Append { session, token, after, new }).await
    }

    async fn keep_partial_text(&self, lease: &Lease, part: PartialText<'_>) -> Result<(), LogError> {
        let (session, token) = self.check_lease(lease)?;
        let PartialText { message, start, text } = part;
        let (message, text) = (message.clone(), text.to_owned());
        let request = WriteRequest::KeepPartialText { session, token, message, start, text };
        self.write(request).await.map(|_| ())
    }

    async fn partial_message(&self, session: &SessionId) -> Result<Option<PartialMessage>, LogError> {
        self.shared.partial_text(session).await
    }

    async fn keep_snapshot(&self, lease: &Lease, snapshot: &SessionSnapshot) -> Result<(), LogError> {
        let (session, token) = self.check_lease(lease)?;
        let Some(snapshot) = StoredSnapshot::encode(snapshot) else { return Ok(()) };
        self.write(WriteRequest::KeepSnapshot { session, token, snapshot }).await.map(|_| ())
    }

    async fn snapshot(&self, session: &SessionId) -> Result<Option<SessionSnapshot>, LogError> {
        Ok(self.shared.stored_snapshot(session).await?.and_then(StoredSnapshot::decode))
    }

    async fn read(&self, session: &SessionId, after: Seq, max: usize) -> Result<Vec<Entry>, LogError> {
        self.shared.entries(session, after, max).await
    }

    async fn find(&self, session: &SessionId, event: &EventId) -> Result<Option<Seq>, LogError> {
        self.shared.find_event(session, event).await
    }

    fn head(&self, session: &SessionId) -> watch::Receiver<Seq> {
        let receiver = self.shared.heads.subscribe(session);
        let followed =
            || self.shared.heads.followed().into_iter().map(|(session, _)| session).collect::<Vec<_>>();
        self.shared.followed_sessions.add(session, followed);
        receiver
    }

    async fn sessions(&self, page: PageRequest) -> Result<Page, LogError> {
        self.shared.page(&page).await
    }

    async fn session(&self, id: &SessionId) -> Result<SessionRecord, LogError> {
        self.shared.record(id).await
    }

    async fn acquire(&self, session: &SessionId) -> Result<Lease, LogError> {
        match self.write(WriteRequest::Acquire { session: session.clone() }).await? {
            WriteReply::Leased(lease) => Ok(lease),
            WriteReply::Appended(_)
            | WriteReply::PartialTextKept
            | WriteReply::SnapshotKept
            | WriteReply::Released
            | WriteReply::Deleted => {
                unreachable!("the writer replies to an acquire with `Leased` or an error")
            }
        }
    }

    fn lost(&self, lease: &Lease) -> watch::Receiver<bool> {
        let receiver = self.shared.lost_leases.subscribe(lease.session(), lease.token());
        // It may have been lost before anybody waited for that.
        if !lease.is_from(&self.shared) || !self.shared.membership.holds(lease.session(), lease.token()) {
            self.shared.lost_leases.report(lease.token());
        }
        receiver
    }

    async fn holder(&self, session: &SessionId) -> Result<Option<LeaseHolder>, LogError> {
        self.shared.lease_holder(session).await
    }

    async fn release(&self, lease: Lease) -> Result<(), LogError> {
        // On failure, dropping the lease releases it in the store that gave it.
        self.check_lease(&lease)?;
        let (session, token) = lease.into_parts();
        self.write(WriteRequest::Release { session, token, has_work: false }).await.map(|_| ())
    }

    async fn abandon(&self, lease: Lease) -> Result<(), LogError> {
        self.check_lease(&lease)?;
        let (session, token) = lease.into_parts();
        self.write(WriteRequest::Release { session, token, has_work: true }).await.map(|_| ())
    }

    async fn orphans(&self) -> Result<Vec<SessionId>, LogError> {
        self.shared.orphans().await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, LogError> {
        self.shared.nodes().await
    }

    async fn delete(&self, lease: &Lease) -> Result<(), LogError> {
        let (session, token) = self.check_lease(lease)?;
        self.write(WriteRequest::Delete { session, token }).await.map(|_| ())
    }

    async fn referenced_media(&self) -> Result<BTreeSet<MediaId>, LogError> {
        self.shared.media().await
    }

    async fn usage(&self, since: i64) -> Result<Vec<UsageLine>, LogError> {
        self.shared.usage_lines(since).await
    }

    async fn check(&self) -> Result<(), LogError> {
        // After a panic of the writer task the store accepts no writes, whatever the state of the database.
        if self.shared.queue.is_closed() {
            return Err(LogError::Closed);
        }
        // Without an incarnation this node holds no lease, so that it can read but not write.
        if self.shared.incarnation().is_none() {
            return Err(self.shared.unavailable("no heartbeat succeeded in time"));
        }
        let node = self.shared.options.node.as_bytes();
        match self.shared.read_with_warning(group::PROBE, &[&node]).await? {
            (_, false) => Ok(()),
            (_, true) => Err(self.shared.unavailable("a commit did not wait for the standby")),
        }
    }

    /// Always [`Erased::Later`]. PostgreSQL does not overwrite deleted rows: their text stays in the files of the tables
    /// until autovacuum has run and new rows take its place, and in the write-ahead log, on standbys and in backups for as
    /// long as the operator keeps those.
    async fn erase(&self) -> Result<Erased, LogError> {
        Ok(Erased::Later)
    }

    async fn size(&self) -> Result<u64, LogError> {
        self.shared.table_bytes().await
    }

    /// Returns nothing: autovacuum makes the space of deleted sessions free for later appends.
    async fn reclaim(&self) -> Result<Reclaimed, LogError> {
        Ok(Reclaimed { bytes: 0, erased: Erased::Later })
    }

    /// Carries out the queued requests, and returns when others can take the leases of this process. Dropping the log does
    /// the same without waiting.
    async fn close(&self) {
        self.shared.queue.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            // An error means that the task panicked, which the panic hook has reported.
            let _ = writer.await;
        }
    }
}
