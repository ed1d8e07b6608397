//! The life of this process in the log: its row in the table `nodes`, its heartbeat, and the leases that depend on it.
//!
//! The heartbeat has a connection of its own, so that a long append does not delay it. Others may take the leases of a
//! process whose heartbeat is older than [`LEASE_WAIT`](super::LEASE_WAIT), by the database's clock. This process gives all
//! of its leases up earlier, after [`RENEW_LIMIT`](super::RENEW_LIMIT) by its own monotonic clock, and takes a new
//! incarnation when the database is back. Leases of the old incarnation stay invalid.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parlor_vocab::SessionId;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_postgres::types::ToSql;

use super::connect::{Backoff, Connection, Connector};
use super::db_error::{DbError, describe};
use super::leases::random_number;
use super::{PostgresOptions, Shared};
use crate::lease::Token;
use crate::{Announcement, LogError};

/// A node's row is removed by the next process that opens the log, when it is this old and has no lease.
pub const NODE_KEEP: Duration = Duration::from_secs(3600);

/// A heartbeat does not wait for a standby, so that nodes keep their leases while a standby restarts. If heartbeats are lost
/// with the primary, others may take over a little earlier than this process gives up; what it then writes is refused.
const HEARTBEAT_SETTINGS: &str = "SET synchronous_commit = local";

/// Adds a node, gives up its last incarnation and forgets nodes that ended long ago.
const REGISTER: &str = "WITH
    given_up AS (UPDATE nodes SET expired = true WHERE incarnation = $6),
    forgotten AS (
        DELETE FROM nodes AS n WHERE n.heartbeat < now() - make_interval(secs => $7)
            AND NOT EXISTS (SELECT FROM leases AS l WHERE l.incarnation = n.incarnation)
    )
    INSERT INTO nodes (incarnation, node, pid, address, version, workspace, started, heartbeat)
    VALUES ($1, $2, $3, $4, $5, $8, clock_timestamp(), clock_timestamp())";

/// An incarnation that expired is not renewed: others may have taken some of its leases.
const RENEW: &str = "UPDATE nodes SET heartbeat = clock_timestamp(), address = $2, version = $3
    WHERE incarnation = $1 AND NOT expired AND heartbeat > clock_timestamp() - make_interval(secs => $4)
    RETURNING incarnation";

/// Ends an incarnation. Leases that it still has are free from now on; others find them among the orphans.
const UNREGISTER: &str = "DELETE FROM nodes WHERE incarnation = $1";

/// Why the leases of a log end that is closed, or whose writer panicked.
pub(super) const CLOSED: &str = "the log is closed";

/// The incarnation of this process, and the leases that it holds.
#[derive(Default)]
pub(super) struct Membership(Mutex<State>);

#[derive(Default)]
struct State {
    incarnation: Option<i64>,
    /// When the last heartbeat that succeeded was sent.
    renewed: Option<Instant>,
    leases: HashMap<SessionId, Token>,
}

impl Membership {
    /// Begins an incarnation, whose row was written after `sent`.
    pub(super) fn begin(&self, incarnation: i64, sent: Instant) {
        let mut state = self.lock();
        *state = State { incarnation: Some(incarnation), renewed: Some(sent), leases: HashMap::new() };
    }

    /// The incarnation, also if it is too old.
    fn incarnation(&self) -> Option<(i64, Instant)> {
        let state = self.lock();
        state.incarnation.zip(state.renewed)
    }

    /// Notes a heartbeat that succeeded.
    fn renew(&self, incarnation: i64, sent: Instant) {
        let mut state = self.lock();
        if state.incarnation == Some(incarnation) {
            state.renewed = Some(sent);
        }
    }

    /// Ends the incarnation and returns the leases that are lost. `None` if it was ended before.
    fn end(&self) -> Option<HashMap<SessionId, Token>> {
        let state = std::mem::take(&mut *self.lock());
        state.incarnation.map(|_| state.leases)
    }

    /// Notes a new lease of this incarnation. Returns whether the incarnation still lasts.
    pub(super) fn add_lease(&self, incarnation: i64, session: &SessionId, token: Token) -> bool {
        let mut state = self.lock();
        let lasts = state.incarnation == Some(incarnation);
        if lasts {
            state.leases.insert(session.clone(), token);
        }
        lasts
    }

    /// Whether this process believes that it holds the lease.
    pub(super) fn holds(&self, session: &SessionId, token: Token) -> bool {
        self.lock().leases.get(session) == Some(&token)
    }

    /// Whether this process believes that it holds a lease of the session.
    pub(super) fn holds_any(&self, session: &SessionId) -> bool {
        self.lock().leases.contains_key(session)
    }

    /// Removes a lease that was released or lost.
    pub(super) fn remove_lease(&self, session: &SessionId, token: Token) {
        let mut state = self.lock();
        if state.leases.get(session) == Some(&token) {
            state.leases.remove(session);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half changed: each change is a single call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// The incarnation of this process. `None` while the database is away, and after a pause of this process for longer
    /// than the limit.
    pub(super) fn incarnation(&self) -> Option<i64> {
        let (incarnation, renewed) = self.membership.incarnation()?;
        if renewed.elapsed() < self.options.renew_limit {
            return Some(incarnation);
        }
        self.give_up("no heartbeat succeeded in time");
        None
    }

    /// Gives up the incarnation with all of its leases, and tells their holders.
    pub(super) fn give_up(&self, reason: &str) {
        let Some(lost) = self.membership.end() else { return };
        if !lost.is_empty() {
            tracing::warn!(reason, leases = lost.len(), "the log gave up its leases");
        }
        for token in lost.into_values() {
            self.lost_leases.report(token);
        }
        self.gave_up.send_modify(|count| *count += 1);
        // Notifications of the old incarnation were taken for our own.
        self.heads_stale.notify_one();
    }

    /// Removes the row and the leases of this process, so that others can take them at once.
    pub(super) async fn leave(&self, connection: &mut Connection) -> Result<(), DbError> {
        let Some((incarnation, _)) = self.membership.incarnation() else { return Ok(()) };
        self.give_up(CLOSED);
        connection.query(UNREGISTER, &[&incarnation]).await.map(|_| ())
    }
}

/// Connects for heartbeats.
pub(super) async fn connect(connector: &Connector) -> Result<Connection, DbError> {
    let mut connection = connector.connect().await?;
    connection.client_mut().batch_execute(HEARTBEAT_SETTINGS).await?;
    Ok(connection)
}

/// Registers a new incarnation and returns it. `last` is the one before, which is given up.
pub(super) async fn register(
    connection: &mut Connection,
    options: &PostgresOptions,
    announcement: &Announcement,
    last: Option<i64>,
) -> Result<i64, DbError> {
    let incarnation = random_number();
    let (address, version) = announced(announcement);
    let (pid, keep) = (i64::from(std::process::id()), NODE_KEEP.as_secs_f64());
    let (node, workspace) = (options.node.as_bytes(), &options.workspace);
    let parameters: [&(dyn ToSql + Sync); 8] =
        [&incarnation, &node, &pid, &address, &version, &last, &keep, workspace];
    connection.query(REGISTER, &parameters).await?;
    Ok(incarnation)
}

/// The address and the version, as the statements take them.
fn announced(announcement: &Announcement) -> (Option<&[u8]>, Option<&[u8]>) {
    (announcement.address.as_ref().map(String::as_bytes), announcement.version.as_ref().map(String::as_bytes))
}

/// Renews the heartbeat. Returns false if the incarnation has expired.
pub(super) async fn renew(
    connection: &mut Connection,
    incarnation: i64,
    announcement: &Announcement,
    lease_wait: Duration,
) -> Result<bool, DbError> {
    let (address, version) = announced(announcement);
    let parameters = [&incarnation as _, &address as _, &version as _, &lease_wait.as_secs_f64() as _];
    connection.query(RENEW, &parameters).await.map(|rows| !rows.is_empty())
}

/// Sends heartbeats until the log is closed.
pub(super) async fn run(shared: Arc<Shared>, connection: Connection) {
    let mut closed = shared.closed.subscribe();
    tokio::select! {
        _ = closed.wait_for(|closed| *closed) => {}
        () = beat(&shared, Some(connection)) => {}
    }
}

async fn beat(shared: &Shared, mut connection: Option<Connection>) {
    let mut backoff = Backoff::default();
    let mut last_incarnation = shared.membership.incarnation().map(|(incarnation, _)| incarnation);
    let mut next = Instant::now() + shared.options.heartbeat_interval;
    let mut announcements = shared.announcement.subscribe();
    loop {
        tokio::select! {
            () = sleep_until(next) => {}
            _ = announcements.changed() => {}
        }
        let announced = announcements.borrow_and_update().clone();
        let sent = Instant::now();
        let incarnation = shared.incarnation();
        // A connection that does not answer is replaced while there is time for another attempt.
        let mut deadline = sent + shared.options.renew_limit / 2;
        if let Some((_, renewed)) = shared.membership.incarnation() {
            deadline = deadline.min(renewed + shared.options.renew_limit);
        }
        match timeout_at(
            deadline,
            beat_once(shared, &mut connection, &announced, incarnation, last_incarnation),
        )
        .await
        {
            Ok(Ok(Beat::Renewed)) => {
                shared.membership.renew(incarnation.unwrap_or_default(), sent);
                shared.written_announcement.send_replace(announced.number);
                (next, backoff) = (sent + shared.options.heartbeat_interval, Backoff::default());
            }
            Ok(Ok(Beat::Registered(new))) => {
                shared.membership.begin(new, sent);
                shared.written_announcement.send_replace(announced.number);
                last_incarnation = Some(new);
                tracing::info!("the log is available again");
                (next, backoff) = (sent + shared.options.heartbeat_interval, Backoff::default());
            }
            Ok(Ok(Beat::Expired)) => {
                shared.give_up("another process took over, because the last heartbeat was too old");
                next = Instant::now();
            }
            Ok(Err(error)) => {
                tracing::debug!(error = describe(&error), "a heartbeat failed");
                connection = None;
                next = Instant::now() + backoff.next_pause();
            }
            Err(_) => {
                connection.take().into_iter().for_each(Connection::abandon);
                next = Instant::now() + backoff.next_pause();
            }
        }
        // Gives up what is too old now.
        shared.incarnation();
    }
}

enum Beat {
    Renewed,
    Expired,
    Registered(i64),
}

async fn beat_once(
    shared: &Shared,
    connection: &mut Option<Connection>,
    announced: &NumberedAnnouncement,
    incarnation: Option<i64>,
    last_incarnation: Option<i64>,
) -> Result<Beat, DbError> {
    let connection = match connection {
        Some(open) if !open.is_closed() => open,
        other => {
            let new = connect(&shared.connector).await?;
            shared.note_reconnect();
            other.insert(new)
        }
    };
    let announcement = &announced.announcement;
    match incarnation {
        Some(incarnation) => {
            let renewed = renew(connection, incarnation, announcement, shared.options.lease_wait).await?;
            Ok(if renewed { Beat::Renewed } else { Beat::Expired })
        }
        None => {
            register(connection, &shared.options, announcement, last_incarnation).await.map(Beat::Registered)
        }
    }
}

/// What this process tells others of itself. The number grows with each change.
#[derive(Clone, Default)]
pub(super) struct NumberedAnnouncement {
    number: u64,
    announcement: Announcement,
}

impl Shared {
    /// Changes what this process tells others of itself, and waits until it is written. The heartbeat writes it: a second
    /// writer could wait for a standby, and keep the row of the node locked.
    pub(super) async fn announce(&self, announcement: Announcement) -> Result<(), LogError> {
        let mut number = 0;
        self.announcement.send_modify(|announced| {
            number = announced.number + 1;
            *announced = NumberedAnnouncement { number, announcement };
        });
        let mut written = self.written_announcement.subscribe();
        let written = written.wait_for(|written| *written >= number);
        match timeout(self.options.renew_limit, written).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(LogError::Closed),
            Err(_) => Err(self.unavailable("no heartbeat succeeded in time")),
        }
    }
}
