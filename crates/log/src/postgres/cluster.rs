//! What a node sees of the others: the list of nodes, and the sessions that dead ones left behind.

use std::time::Duration;

use parlor_vocab::SessionId;
use tokio_postgres::Row;

use super::Shared;
use super::request::{StoredValueError, optional_text, text};
use crate::{Announcement, LogError, NodeRecord};

/// The largest number of sessions that [`EventLog::orphans`](crate::EventLog::orphans) returns. The next call returns more.
pub const MAX_ORPHANS: i64 = 256;

/// The largest number of nodes that [`EventLog::nodes`](crate::EventLog::nodes) returns.
pub const MAX_NODES: i64 = 1000;

/// Leases that no living process has. Each node gets them in another order, so that nodes that ask at the same time begin
/// with different ones; acquiring a lease decides who gets it.
const ORPHANS: &str = "SELECT l.session FROM leases AS l
    LEFT JOIN nodes AS n ON n.incarnation = l.incarnation
    LEFT JOIN sessions AS s ON s.id = l.session
    WHERE (n.incarnation IS NULL OR n.expired OR n.heartbeat <= now() - make_interval(secs => $1))
        AND ($2::text IS NULL OR s.workspace IS NULL OR s.workspace = $2)
    ORDER BY md5(l.session || int8send($3)) LIMIT $4";

/// Processes that others can reach, and dead ones with sessions. The living come first.
const NODES: &str = "SELECT n.node, n.pid, n.workspace, n.version, n.address, n.is_alive,
        extract(epoch FROM greatest(now() - n.heartbeat, interval '0'))::float8,
        extract(epoch FROM greatest(now() - n.started, interval '0'))::float8,
        count(l.session), count(s.running)
    FROM (SELECT *, NOT expired AND heartbeat > now() - make_interval(secs => $1) AS is_alive FROM nodes) AS n
    LEFT JOIN leases AS l ON l.incarnation = n.incarnation
    LEFT JOIN sessions AS s ON s.id = l.session
    GROUP BY n.incarnation, n.node, n.pid, n.workspace, n.version, n.address, n.is_alive, n.heartbeat, n.started
    HAVING n.is_alive AND n.address IS NOT NULL OR count(l.session) > 0
    ORDER BY n.is_alive DESC, n.node, n.pid, n.incarnation LIMIT $2";

impl Shared {
    pub(super) async fn orphans(&self) -> Result<Vec<SessionId>, LogError> {
        // Without an incarnation nothing can be leased, and this process's own sessions may be among the orphans.
        let Some(incarnation) = self.incarnation() else {
            return Err(self.unavailable("no heartbeat succeeded in time"));
        };
        let wait = self.options.lease_wait.as_secs_f64();
        let rows = self.read(ORPHANS, &[&wait, &self.options.workspace, &incarnation, &MAX_ORPHANS]).await?;
        let session = |row: &Row| Ok(SessionId::parse(text(row, 0)?)?);
        self.stored(rows.iter().map(session).collect())
    }

    pub(super) async fn nodes(&self) -> Result<Vec<NodeRecord>, LogError> {
        let rows = self.read(NODES, &[&self.options.lease_wait.as_secs_f64(), &MAX_NODES]).await?;
        self.stored(rows.iter().map(node_from).collect())
    }
}

fn node_from(row: &Row) -> Result<NodeRecord, StoredValueError> {
    let seconds = |column: usize| {
        let seconds = row.try_get::<_, f64>(column)?;
        Ok::<_, StoredValueError>(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    };
    Ok(NodeRecord {
        node: text(row, 0)?.to_owned(),
        pid: u32::try_from(row.try_get::<_, i64>(1)?).unwrap_or_default(),
        workspace: row.try_get(2)?,
        announcement: Announcement {
            version: optional_text(row, 3)?.map(str::to_owned),
            address: optional_text(row, 4)?.map(str::to_owned),
        },
        is_alive: row.try_get(5)?,
        heartbeat_age: seconds(6)?,
        up: seconds(7)?,
        sessions: row.try_get::<_, i64>(8)? as u64,
        runs: row.try_get::<_, i64>(9)? as u64,
    })
}
