//! Copying to and from the log in PostgreSQL. See [`CopyableLog`].

use std::collections::BTreeMap;

use async_trait::async_trait;
use parlor_vocab::{EventId, Seq, SessionId, Timestamp};
use tokio_postgres::types::ToSql;

use super::append::usage_numbers;
use super::request::{EncodedEntry, StoredValueError, WriteRequest, text};
use super::{MAX_MODEL_BYTES, PostgresLog};
use crate::copy::{CopyableLog, StoredEvent};
use crate::row::{Decoder, Row};
use crate::{Lease, LogError, READ_BYTES, UsageLine};

/// Reads events up to the one that makes the result larger than the limit.
const EVENTS: &str = "SELECT seq, id, at, version, body FROM (
        SELECT seq, id, at, version, body,
            sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS bytes_before
        FROM events WHERE session = $1 AND seq > $2 AND seq <= $3
    ) AS sized WHERE bytes_before <= $4 ORDER BY seq";

/// Adds to the rows of this node what the sum of all nodes lacks.
const RAISE_USAGE: &str = "WITH
    wanted AS MATERIALIZED (
        SELECT * FROM unnest($2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::bigint[], $10::bigint[])
            AS w (day, model, runs, failed, input, output, cache_read, cache_write, cost)
    ),
    found AS MATERIALIZED (
        SELECT w.day, w.model, coalesce(sum(u.runs), 0) AS runs, coalesce(sum(u.failed), 0) AS failed,
            coalesce(sum(u.input), 0) AS input, coalesce(sum(u.output), 0) AS output,
            coalesce(sum(u.cache_read), 0) AS cache_read, coalesce(sum(u.cache_write), 0) AS cache_write,
            coalesce(sum(u.cost), 0) AS cost
        FROM wanted AS w LEFT JOIN usage AS u ON u.day = w.day AND u.model = w.model
        GROUP BY w.day, w.model
    )
    INSERT INTO usage AS u (day, model, node, runs, failed, input, output, cache_read, cache_write, cost)
    SELECT w.day, w.model, $1::bytea, greatest(w.runs - f.runs, 0)::bigint, greatest(w.failed - f.failed, 0)::bigint,
        greatest(w.input - f.input, 0)::bigint, greatest(w.output - f.output, 0)::bigint,
        greatest(w.cache_read - f.cache_read, 0)::bigint, greatest(w.cache_write - f.cache_write, 0)::bigint,
        greatest(w.cost - f.cost, 0)::bigint
    FROM wanted AS w JOIN found AS f ON f.day = w.day AND f.model = w.model
    WHERE w.runs > f.runs OR w.failed > f.failed OR w.input > f.input OR w.output > f.output
        OR w.cache_read > f.cache_read OR w.cache_write > f.cache_write OR w.cost > f.cost
    ORDER BY w.day, w.model
    ON CONFLICT (day, model, node) DO UPDATE
    SET runs = u.runs + excluded.runs, failed = u.failed + excluded.failed, input = u.input + excluded.input,
        output = u.output + excluded.output, cache_read = u.cache_read + excluded.cache_read,
        cache_write = u.cache_write + excluded.cache_write, cost = u.cost + excluded.cost";

/// Another living process that has the log open.
const OTHER_NODE: &str = "SELECT node, pid FROM nodes
    WHERE incarnation <> $1 AND NOT expired AND heartbeat > now() - make_interval(secs => $2) LIMIT 1";

#[async_trait]
impl CopyableLog for PostgresLog {
    async fn stored_events(
        &self,
        session: &SessionId,
        after: Seq,
        max: usize,
    ) -> Result<Vec<StoredEvent>, LogError> {
        let cursor = i64::try_from(after.0).unwrap_or(i64::MAX);
        let last = cursor.saturating_add(i64::try_from(max).unwrap_or(i64::MAX));
        let name = session.as_str().as_bytes();
        let rows = self.shared.read(EVENTS, &[&name, &cursor, &last, &(READ_BYTES as i64)]).await?;
        let (mut events, mut bytes) = (Vec::with_capacity(rows.len()), 0);
        for (row, expected) in rows.iter().zip(after.0 + 1..) {
            let event = stored_event(row);
            match event {
                Ok(event) if event.seq.0 == expected && bytes <= READ_BYTES => {
                    bytes += event.row.memory_bytes();
                    events.push(event);
                }
                Ok(_) => break,
                Err(error) if events.is_empty() => {
                    let (session, reason) = (session.clone(), error.to_string());
                    return Err(LogError::Unreadable { session, seq: Seq(expected), reason });
                }
                Err(_) => break,
            }
        }
        Ok(events)
    }

    async fn append_stored(
        &self,
        lease: &Lease,
        after: Seq,
        events: Vec<StoredEvent>,
    ) -> Result<Seq, LogError> {
        let (session, token) = self.check_lease(lease)?;
        let mut decoder = Decoder::default();
        let encoded = events.into_iter().map(|event| {
            let (entry, row) = event.decode(&session, &mut decoder)?;
            Ok(EncodedEntry { entry, row })
        });
        let new = encoded.collect::<Result<_, LogError>>()?;
        self.append_encoded(WriteRequest::Append { session, token, after, new }).await
    }

    async fn raise_usage(&self, lines: &[UsageLine]) -> Result<(), LogError> {
        let node = self.shared.options.node.as_bytes();
        // Long names of models may be the same where they are cut.
        let mut by_key: BTreeMap<(i64, &[u8]), UsageLine> = BTreeMap::new();
        for line in lines {
            let end = line.model.floor_char_boundary(MAX_MODEL_BYTES);
            let model = line.model.as_bytes().get(..end).unwrap_or_default();
            by_key.entry((line.day, model)).or_default().add(line);
        }
        let (days, models): (Vec<i64>, Vec<&[u8]>) = by_key.keys().copied().unzip();
        let mut numbers = <[Vec<i64>; 7]>::default();
        for line in by_key.values() {
            for (column, number) in numbers.iter_mut().zip(usage_numbers(line)) {
                column.push(number);
            }
        }
        let [runs, failed, input, output, cache_read, cache_write, cost] = &numbers;
        // If the connection breaks, it may run twice. The second time it finds nothing to raise.
        let parameters: [&(dyn ToSql + Sync); 10] =
            [&node, &days, &models, runs, failed, input, output, cache_read, cache_write, cost];
        self.shared.read(RAISE_USAGE, &parameters).await.map(|_| ())
    }

    async fn other_user(&self) -> Result<Option<String>, LogError> {
        let own = self.shared.incarnation().unwrap_or_default();
        let wait = self.shared.options.lease_wait.as_secs_f64();
        let rows = self.shared.read(OTHER_NODE, &[&own, &wait]).await?;
        let name = |row: &tokio_postgres::Row| -> Result<String, StoredValueError> {
            Ok(format!("process {} on node {}", row.try_get::<_, i64>(1)?, text(row, 0)?))
        };
        self.shared.stored(rows.first().map(name).transpose())
    }
}

fn stored_event(row: &tokio_postgres::Row) -> Result<StoredEvent, StoredValueError> {
    Ok(StoredEvent {
        seq: Seq(row.try_get::<_, i64>(0)? as u64),
        id: EventId::parse(text(row, 1)?)?,
        at: Timestamp(row.try_get(2)?),
        row: Row { version: row.try_get(3)?, body: row.try_get::<_, &str>(4)?.to_owned() },
    })
}
