//! Leases: the rows that say who may write which session.
//!
//! A lease belongs to an incarnation of a process ([`node`](super::node)) and is free when that has expired. Taking over one
//! lease of a process marks its incarnation as expired, so that the process loses its other leases too and learns of it
//! with its next heartbeat. Each statement is a transaction of its own.

use std::time::Duration;

use parlor_vocab::{SessionId, Timestamp};
use tokio_postgres::{Row, SimpleQueryMessage};

use super::append::WriteOrigin;
use super::connect::Connection;
use super::db_error::DbError;
use super::request::{StoredValueError, optional_text};
use super::wake;
use crate::lease::Token;
use crate::{Announcement, LeaseHolder, random_u128};

/// The present time here is that of the start of the statement. A statement may wait for a lock, and what it has read of the
/// nodes' heartbeats is not newer than its start.
const ACQUIRE: &str = "WITH
    asked AS MATERIALIZED (
        SELECT * FROM unnest($1::bytea[], $2::bigint[]) WITH ORDINALITY AS a (session, token, number)
    ),
    own AS MATERIALIZED (
        SELECT incarnation, workspace FROM nodes
        WHERE incarnation = $3 AND NOT expired AND heartbeat > now() - make_interval(secs => $6)
    ),
    seen AS MATERIALIZED (
        SELECT l.session, l.token, l.incarnation, l.pid, l.since
        FROM leases AS l JOIN asked AS a ON l.session = a.session
    ),
    foreign_sessions AS MATERIALIZED (
        -- The workspace of a session never changes.
        SELECT s.id AS session, s.workspace FROM sessions AS s JOIN asked AS a ON s.id = a.session, own
        WHERE s.workspace <> own.workspace
    ),
    expired_nodes AS (
        UPDATE nodes AS n SET expired = true
        WHERE n.incarnation IN (SELECT incarnation FROM seen)
            AND NOT n.expired AND n.heartbeat <= now() - make_interval(secs => $6)
        RETURNING n.incarnation
    ),
    free AS MATERIALIZED (
        -- The token is compared again after a wait for the lock: somebody else may have taken the lease meanwhile.
        SELECT l.session, l.token FROM seen AS s JOIN leases AS l ON l.session = s.session AND l.token = s.token
        WHERE s.incarnation IN (SELECT incarnation FROM expired_nodes)
            OR NOT EXISTS (SELECT FROM nodes AS n WHERE n.incarnation = s.incarnation AND NOT n.expired)
        ORDER BY l.session
        FOR UPDATE OF l
    ),
    taken AS (
        UPDATE leases AS l SET token = a.token, incarnation = $3, pid = $4, since = $5
        FROM free AS f, asked AS a, own
        WHERE l.session = f.session AND l.token = f.token AND a.session = f.session
            AND a.session NOT IN (SELECT session FROM foreign_sessions)
        RETURNING l.session
    ),
    created AS (
        INSERT INTO leases (session, token, incarnation, pid, since)
        SELECT a.session, a.token, $3, $4, $5 FROM asked AS a, own
        WHERE a.session NOT IN (SELECT session FROM seen)
            AND a.session NOT IN (SELECT session FROM foreign_sessions)
        ORDER BY a.session
        ON CONFLICT (session) DO NOTHING
        RETURNING session
    )
    SELECT n.node, s.pid, s.since, n.version, n.address, s.token, s.incarnation,
        a.session IN (SELECT session FROM taken UNION ALL SELECT session FROM created),
        EXISTS (SELECT FROM own),
        coalesce(NOT n.expired AND n.heartbeat > now() - make_interval(secs => $6), false), f.workspace
    FROM asked AS a LEFT JOIN seen AS s ON s.session = a.session
    LEFT JOIN foreign_sessions AS f ON f.session = a.session
    LEFT JOIN nodes AS n ON n.incarnation = s.incarnation
    ORDER BY a.number";

/// Gives leases back whose sessions have work left. No process has this incarnation, so that
/// others may take them, and find them among the orphans.
const ABANDON: &str = "UPDATE leases AS l SET incarnation = -1
    FROM unnest($1::bytea[], $2::bigint[]) AS a (session, token)
    WHERE l.session = a.session AND l.token = a.token";

const RELEASE: &str = "DELETE FROM leases AS l USING unnest($1::bytea[], $2::bigint[]) AS a (session, token)
    WHERE l.session = a.session AND l.token = a.token";

/// Everything of the session but its usage, if the lease is held. A file goes with it if no other session refers to it, and
/// nobody has stored or renewed it since the session last referred to it: somebody may be about to refer to it. Both statements arrive together and are one transaction;
/// the second sees what an append wrote that the first waited for.
const DELETE_SESSION: &str = "SELECT FROM leases WHERE session = $1 AND token = $2 FOR UPDATE;
    WITH
    held AS MATERIALIZED (SELECT session FROM leases WHERE session = $1 AND token = $2),
    record AS (DELETE FROM sessions AS s USING held AS h WHERE s.id = h.session RETURNING s.id),
    old_events AS (DELETE FROM events AS e USING held AS h WHERE e.session = h.session),
    old_media AS (DELETE FROM media AS m USING held AS h WHERE m.session = h.session RETURNING m.id, m.at),
    old_files AS (
        DELETE FROM media_files AS f USING old_media AS m WHERE f.id = m.id AND f.renewed <= m.at
            AND NOT EXISTS (SELECT FROM media AS o WHERE o.id = f.id AND o.session <> $1)
        RETURNING f.id),
    old_pieces AS (DELETE FROM media_pieces AS p USING old_files AS f WHERE p.id = f.id),
    old_texts AS (DELETE FROM partial_texts AS t USING held AS h WHERE t.session = h.session),
    lease AS (DELETE FROM leases AS l USING record AS r WHERE l.session = r.id AND l.token = $2),
    notified AS MATERIALIZED (SELECT pg_notify($3, $4) FROM record)
    SELECT EXISTS (SELECT FROM held), EXISTS (SELECT FROM record), (SELECT count(*) FROM notified)";

/// Who holds a lease and is alive.
pub(super) const HOLDER: &str = "SELECT n.node, l.pid, l.since, n.version, n.address
    FROM leases AS l JOIN nodes AS n ON n.incarnation = l.incarnation
    WHERE l.session = $1 AND NOT n.expired AND n.heartbeat > now() - make_interval(secs => $2)";

/// Who asks for leases, and when.
pub(super) struct LeaseRequest {
    pub(super) incarnation: i64,
    pub(super) pid: u32,
    pub(super) now: Timestamp,
    /// How old the last heartbeat of a living process may be.
    pub(super) lease_wait: Duration,
}

/// What became of a request for a lease.
pub(super) enum Acquired {
    /// The lease was free.
    Taken(Token),
    /// A living process has it.
    Held { holder: LeaseHolder, token: Token, incarnation: i64 },
    /// Only nodes of this workspace may take it, and none of them has it.
    OtherWorkspace(String),
    /// Another process took it at the same moment. Ask again to see who.
    Raced,
    /// The process that asks counts as dead.
    RequesterExpired,
}

/// Takes the leases of these sessions that are free.
pub(super) async fn acquire(
    connection: &mut Connection,
    sessions: &[&SessionId],
    request: &LeaseRequest,
) -> Result<Result<Vec<Acquired>, StoredValueError>, DbError> {
    let names: Vec<&[u8]> = sessions.iter().map(|session| session.as_str().as_bytes()).collect();
    let tokens: Vec<i64> = sessions.iter().map(|_| random_number()).collect();
    let LeaseRequest { incarnation, pid, now, lease_wait } = request;
    let (pid, wait) = (i64::from(*pid), lease_wait.as_secs_f64());
    let rows = connection.query(ACQUIRE, &[&names, &tokens, incarnation, &pid, &now.0, &wait]).await?;
    Ok(rows.iter().zip(tokens).map(|(row, token)| acquired(row, token)).collect())
}

fn acquired(row: &Row, token: i64) -> Result<Acquired, StoredValueError> {
    if row.try_get(7)? {
        return Ok(Acquired::Taken(Token(token as u64)));
    }
    if !row.try_get::<_, bool>(8)? {
        return Ok(Acquired::RequesterExpired);
    }
    let (holder, is_alive) = (row.try_get::<_, Option<i64>>(6)?, row.try_get(9)?);
    match (row.try_get::<_, Option<i64>>(5)?, holder) {
        (Some(token), Some(incarnation)) if is_alive => {
            Ok(Acquired::Held { holder: holder_from(row)?, token: Token(token as u64), incarnation })
        }
        // Nobody has it, or a dead process: it belongs to others, or somebody else was faster.
        (Some(_), Some(_)) | (None, _) | (_, None) => {
            Ok(row.try_get::<_, Option<String>>(10)?.map_or(Acquired::Raced, Acquired::OtherWorkspace))
        }
    }
}

/// Reads the first columns of [`HOLDER`].
pub(super) fn holder_from(row: &Row) -> Result<LeaseHolder, StoredValueError> {
    let announcement = Announcement {
        version: optional_text(row, 3)?.map(str::to_owned),
        address: optional_text(row, 4)?.map(str::to_owned),
    };
    let pid = u32::try_from(row.try_get::<_, i64>(1)?).unwrap_or_default();
    // The node's row is gone if the holder ended a moment ago.
    let node = optional_text(row, 0)?.map(str::to_owned);
    Ok(LeaseHolder { node, pid, since: Timestamp(row.try_get(2)?), announcement })
}

/// Gives leases back, those of `abandoned` with work left. Those that were lost before are not touched.
pub(super) async fn release(
    connection: &mut Connection,
    finished: &[(&SessionId, Token)],
    abandoned: &[(&SessionId, Token)],
) -> Result<(), DbError> {
    for (sql, leases) in [(RELEASE, finished), (ABANDON, abandoned)] {
        if !leases.is_empty() {
            give_back(connection, sql, leases).await?;
        }
    }
    Ok(())
}

async fn give_back(
    connection: &mut Connection,
    sql: &'static str,
    leases: &[(&SessionId, Token)],
) -> Result<(), DbError> {
    let names: Vec<&[u8]> = leases.iter().map(|(session, _)| session.as_str().as_bytes()).collect();
    let tokens: Vec<i64> = leases.iter().map(|(_, token)| token.0 as i64).collect();
    connection.query(sql, &[&names, &tokens]).await.map(|_| ())
}

/// What became of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deletion {
    Done,
    NotHeld,
    UnknownSession,
}

/// Deletes a session and its lease, and tells followers.
pub(super) async fn delete(
    connection: &mut Connection,
    session: &SessionId,
    token: Token,
    origin: &WriteOrigin<'_>,
) -> Result<Deletion, DbError> {
    let hex: String = session.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
    let payload = wake::payload_of_deletion(origin.incarnation, session);
    // Parameters would need a round trip between the two statements. None of these values contains a quote.
    let sql = DELETE_SESSION
        .replace("$1", &format!("'\\x{hex}'::bytea"))
        .replace("$2", &(token.0 as i64).to_string())
        .replace("$3", &format!("'{}'", origin.channel))
        .replace("$4", &format!("'{payload}'"));
    let messages = connection.client_mut().simple_query(&sql).await?;
    // The rows of the first statement have no columns.
    let row = messages.iter().find_map(|message| {
        if let SimpleQueryMessage::Row(row) = message {
            Some(row).filter(|row| !row.is_empty())
        } else {
            None
        }
    });
    let Some(row) = row else { return Ok(Deletion::NotHeld) };
    Ok(match (row.try_get(0)?, row.try_get(1)?) {
        (Some("t"), Some("t")) => Deletion::Done,
        (Some("t"), _) => Deletion::UnknownSession,
        _ => Deletion::NotHeld,
    })
}

/// A random number for an incarnation or a token; never negative.
pub(super) fn random_number() -> i64 {
    (random_u128() >> 65) as i64
}
