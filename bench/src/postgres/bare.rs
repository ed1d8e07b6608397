//! `tokio-postgres` without the log around it.

use std::sync::Arc;

use anyhow::ensure;
use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use crate::log::Row;

const TABLE: &str =
    "CREATE TABLE bare_events (session bytea NOT NULL, seq bigint NOT NULL, id bytea NOT NULL,
    at bigint NOT NULL, version bigint NOT NULL, body text NOT NULL, PRIMARY KEY (session, seq))";

const INSERT_ONE: &str = "INSERT INTO bare_events VALUES ($1, $2, $3, $4, $5, $6)";

const INSERT_GROUP: &str = "INSERT INTO bare_events SELECT * FROM
    unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::text[])";

/// Reads a part of a session.
const SELECT: &str = "SELECT seq, id, at, version, body FROM events WHERE session = $1 AND seq > $2 AND seq <= $3 ORDER BY seq";

/// A session that inserts its rows itself.
pub(super) struct BareSession {
    client: Client,
    insert: Statement,
    name: Vec<u8>,
    next: i64,
}

/// A connection that inserts the rows of all sessions.
pub(super) struct BareGroup {
    client: Client,
    insert: Statement,
    next: i64,
}

/// Creates the table, and a session for each connection.
pub(super) async fn sessions(clients: Vec<Client>) -> anyhow::Result<Vec<BareSession>> {
    let mut sessions = Vec::new();
    for (client, number) in clients.into_iter().zip(0..) {
        if number == 0 {
            client.batch_execute(TABLE).await?;
        }
        let insert = client.prepare(INSERT_ONE).await?;
        sessions.push(BareSession { client, insert, name: format!("bare {number}").into_bytes(), next: 1 });
    }
    Ok(sessions)
}

pub(super) async fn group(client: Client) -> anyhow::Result<BareGroup> {
    let insert = client.prepare(INSERT_GROUP).await?;
    Ok(BareGroup { client, insert, next: 1 })
}

impl BareSession {
    async fn write(&mut self, rows: &[Row]) -> anyhow::Result<()> {
        for row in rows {
            let id = row.id.as_bytes();
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                [&self.name, &self.next, &id, &row.at, &row.version, &row.body];
            self.client.execute(&self.insert, &values).await?;
            self.next += 1;
        }
        Ok(())
    }
}

/// Lets the first `count` sessions write the rows at the same time, each row in a transaction of its own.
pub(super) async fn write_each(
    sessions: &mut Vec<BareSession>,
    count: usize,
    rows: &Arc<[Row]>,
) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    for mut session in sessions.drain(..count) {
        let rows = Arc::clone(rows);
        tasks.spawn(async move {
            session.write(&rows).await?;
            anyhow::Ok(session)
        });
    }
    while let Some(session) = tasks.join_next().await {
        sessions.push(session??);
    }
    Ok(())
}

impl BareGroup {
    /// Writes each row for `count` sessions with one statement.
    pub(super) async fn write(&mut self, count: usize, rows: &[Row]) -> anyhow::Result<()> {
        let names: Vec<Vec<u8>> = (0..count).map(|number| format!("group {number}").into_bytes()).collect();
        for row in rows {
            let id = row.id.as_bytes();
            let (seqs, ids) = (vec![self.next; count], vec![id; count]);
            let (ats, versions) = (vec![row.at; count], vec![row.version; count]);
            let bodies = vec![row.body.as_str(); count];
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                [&names, &seqs, &ids, &ats, &versions, &bodies];
            self.client.execute(&self.insert, &values).await?;
            self.next += 1;
        }
        Ok(())
    }
}

/// Reads all bytes of a session of the log. Returns the number of its events.
pub(super) async fn scan(client: &Client, session: &str, page: i64) -> anyhow::Result<usize> {
    let select = client.prepare(SELECT).await?;
    let (mut after, mut count, mut sum) = (0_i64, 0, 0_u64);
    loop {
        let rows = client.query(&select, &[&session.as_bytes(), &after, &(after + page)]).await?;
        for row in &rows {
            let (id, body): (&[u8], &str) = (row.try_get(1)?, row.try_get(4)?);
            sum += id.iter().chain(body.as_bytes()).map(|byte| u64::from(*byte)).sum::<u64>();
        }
        count += rows.len();
        after += page;
        if rows.len() < usize::try_from(page)? {
            ensure!(sum > 0 && count > 0, "nothing was read");
            return Ok(count);
        }
    }
}
