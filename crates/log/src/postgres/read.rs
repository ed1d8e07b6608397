//! The queries. Each is one statement, so it sees one state of the database.

use std::collections::BTreeSet;

use parlor_vocab::{Entry, EventId, MediaId, MessageId, Seq, SessionId, Timestamp, Usage};
use tokio_postgres::Row;

use super::Shared;
use super::leases::{HOLDER, holder_from};
use super::request::{StoredValueError, record_columns, record_from, text};
use crate::partial_text::join_pieces;
use crate::row::{Decoder, RowError};
use crate::{
    LeaseHolder, LogError, MAX_USAGE_LINES, Page, PageRequest, PartialMessage, READ_BYTES, SessionRecord,
    UsageLine,
};

/// The largest number of events that one statement reads. Longer reads take several.
pub const READ_EVENTS: usize = 4096;

/// Reads events up to the one that makes the result larger than the limit. An unknown session has no row, and one without
/// events after the cursor has a row of nulls.
const EVENTS: &str = "SELECT e.seq, e.id, e.at, e.version, e.body
    FROM sessions AS s LEFT JOIN LATERAL (
        SELECT * FROM (
            SELECT seq, id, at, version, body,
                sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS bytes_before
            FROM events WHERE session = s.id AND seq > $2 AND seq <= $3
        ) AS sized WHERE bytes_before <= $4
    ) AS e ON true
    WHERE s.id = $1 ORDER BY e.seq";

const FIND: &str = "SELECT seq FROM events WHERE session = $1 AND id = $2 ORDER BY seq DESC LIMIT 1";

const PARTIAL_TEXT: &str = "SELECT message, start, text FROM partial_texts WHERE session = $1 ORDER BY start";

const RECORD: &str = concat!("SELECT ", record_columns!(), " FROM sessions WHERE id = $1");

const FIRST_PAGE: &str =
    concat!("SELECT ", record_columns!(), " FROM sessions ORDER BY updated DESC, id DESC LIMIT $1");

const NEXT_PAGE: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM sessions WHERE (updated, id) < ($2, $3) ORDER BY updated DESC, id DESC LIMIT $1"
);

const MEDIA: &str = "SELECT DISTINCT id FROM media";

const USAGE: &str = "SELECT day, model, least(sum(runs), 9223372036854775807)::bigint,
        least(sum(failed), 9223372036854775807)::bigint, least(sum(input), 9223372036854775807)::bigint,
        least(sum(output), 9223372036854775807)::bigint, least(sum(cache_read), 9223372036854775807)::bigint,
        least(sum(cache_write), 9223372036854775807)::bigint, least(sum(cost), 9223372036854775807)::bigint
    FROM usage WHERE day >= $1 GROUP BY day, model ORDER BY day DESC, model DESC LIMIT $2";

const SIZE: &str =
    "SELECT sum(pg_total_relation_size(t))::bigint FROM unnest(ARRAY['sessions', 'events', 'media',
    'media_files', 'media_pieces', 'partial_texts', 'snapshots', 'usage', 'nodes', 'leases', 'write_probes', 'schema_version']::regclass[]) AS t";

impl Shared {
    /// Reads events of a session. See [`EventLog::read`](crate::EventLog::read).
    pub(super) async fn entries(
        &self,
        session: &SessionId,
        after: Seq,
        max: usize,
    ) -> Result<Vec<Entry>, LogError> {
        let mut decoder = Decoder::default();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let mut cursor = i64::try_from(after.0).unwrap_or(i64::MAX);
        loop {
            let count = READ_EVENTS.min(max - entries.len());
            let last = cursor.saturating_add(count as i64);
            let limit = READ_BYTES.saturating_sub(bytes) as i64;
            let name = session.as_str().as_bytes();
            let rows = self.read(EVENTS, &[&name, &cursor, &last, &limit]).await?;
            if rows.is_empty() && entries.is_empty() {
                return Err(LogError::UnknownSession(session.clone()));
            }
            let mut read = 0;
            for row in rows.iter().filter(|row| !matches!(row.try_get::<_, Option<i64>>(0), Ok(None))) {
                let seq = Seq(self.stored(row.try_get::<_, i64>(0).map_err(StoredValueError::from))? as u64);
                match entry_from(row, seq, &mut decoder, &mut bytes) {
                    Ok(entry) => entries.push(entry),
                    Err(error) if entries.is_empty() => {
                        let (session, reason) = (session.clone(), error.to_string());
                        return Err(LogError::Unreadable { session, seq, reason });
                    }
                    // Return the events before the unreadable one; the next call starts at it and fails.
                    Err(_) => return Ok(entries),
                }
                if bytes > READ_BYTES {
                    // The statement knows the stored sizes only, and deflated events are larger.
                    return Ok(entries);
                }
                read += 1;
            }
            if read < count || entries.len() == max {
                return Ok(entries);
            }
            cursor = last;
        }
    }

    pub(super) async fn find_event(
        &self,
        session: &SessionId,
        event: &EventId,
    ) -> Result<Option<Seq>, LogError> {
        let (session, event) = (session.as_str().as_bytes(), event.as_str().as_bytes());
        let rows = self.read(FIND, &[&session, &event]).await?;
        let seq = rows.first().map(|row| row.try_get::<_, i64>(0)).transpose();
        Ok(self.stored(seq.map_err(StoredValueError::from))?.map(|seq| Seq(seq as u64)))
    }

    /// The message that is being written, with its text so far.
    pub(super) async fn partial_text(&self, session: &SessionId) -> Result<Option<PartialMessage>, LogError> {
        let rows = self.read(PARTIAL_TEXT, &[&session.as_str().as_bytes()]).await?;
        let piece = |row: &Row| {
            let start = usize::try_from(row.try_get::<_, i64>(1)?).unwrap_or(usize::MAX);
            Ok((MessageId::parse(text(row, 0)?)?, start, text(row, 2)?.to_owned()))
        };
        join_pieces(rows.iter().map(|row| self.stored(piece(row))))
    }

    pub(super) async fn record(&self, id: &SessionId) -> Result<SessionRecord, LogError> {
        let rows = self.read(RECORD, &[&id.as_str().as_bytes()]).await?;
        let row = rows.first().ok_or_else(|| LogError::UnknownSession(id.clone()))?;
        self.stored(record_from(row))
    }

    /// A page of the list of sessions.
    pub(super) async fn page(&self, page: &PageRequest) -> Result<Page, LogError> {
        let limit = page.clamped_limit();
        let fetch = limit as i64 + 1;
        let rows = match &page.after {
            None => self.read(FIRST_PAGE, &[&fetch]).await?,
            Some(after) => {
                let id = after.id.as_str().as_bytes();
                self.read(NEXT_PAGE, &[&fetch, &after.updated.0, &id]).await?
            }
        };
        let records: Result<_, _> = rows.iter().map(record_from).collect();
        Ok(Page::from_extra(self.stored(records)?, limit))
    }

    pub(super) async fn media(&self) -> Result<BTreeSet<MediaId>, LogError> {
        let rows = self.read(MEDIA, &[]).await?;
        self.stored(rows.iter().map(|row| Ok(MediaId::parse(text(row, 0)?)?)).collect())
    }

    /// Usage of all nodes by day and model. See [`EventLog::usage`](crate::EventLog::usage).
    pub(super) async fn usage_lines(&self, since: i64) -> Result<Vec<UsageLine>, LogError> {
        let rows = self.read(USAGE, &[&since, &(MAX_USAGE_LINES as i64)]).await?;
        self.stored(rows.iter().rev().map(usage_from).collect())
    }

    /// The living holder of a session's lease.
    pub(super) async fn lease_holder(&self, session: &SessionId) -> Result<Option<LeaseHolder>, LogError> {
        let wait = self.options.lease_wait.as_secs_f64();
        let rows = self.read(HOLDER, &[&session.as_str().as_bytes(), &wait]).await?;
        self.stored(rows.first().map(holder_from).transpose())
    }

    /// The size of all tables with their indexes.
    pub(super) async fn table_bytes(&self) -> Result<u64, LogError> {
        let rows = self.read(SIZE, &[]).await?;
        let bytes = rows.first().map(|row| row.try_get::<_, i64>(0)).transpose();
        Ok(self.stored(bytes.map_err(StoredValueError::from))?.unwrap_or_default() as u64)
    }

    /// Translates the error of a value that cannot be read.
    pub(super) fn stored<T>(&self, value: Result<T, StoredValueError>) -> Result<T, LogError> {
        let store = || self.connector.store().to_owned();
        value.map_err(|error| LogError::Database { store: store(), source: error.into() })
    }
}

/// Decodes an event, and adds its size to `bytes`.
fn entry_from(
    row: &Row,
    seq: Seq,
    decoder: &mut Decoder,
    bytes: &mut usize,
) -> Result<Entry, UnreadableEvent> {
    let stored = |error: tokio_postgres::Error| UnreadableEvent::Value(error.into());
    let id = EventId::parse(text(row, 1)?).map_err(StoredValueError::from)?;
    let at = Timestamp(row.try_get(2).map_err(stored)?);
    let (version, body): (i64, &str) = (row.try_get(3).map_err(stored)?, row.try_get(4).map_err(stored)?);
    let event = decoder.decode(version, body)?;
    *bytes += decoder.json_bytes();
    Ok(Entry { seq, id, at, event })
}

#[derive(Debug, thiserror::Error)]
enum UnreadableEvent {
    #[error("{0}")]
    Value(#[from] StoredValueError),
    #[error("{0}")]
    Row(#[from] RowError),
}

fn usage_from(row: &Row) -> Result<UsageLine, StoredValueError> {
    let number = |column| row.try_get::<_, i64>(column).map(|number| number as u64);
    let usage = Usage {
        input_tokens: number(4)?,
        output_tokens: number(5)?,
        cache_read_tokens: number(6)?,
        cache_write_tokens: number(7)?,
        cost_micros: number(8)?,
    };
    let (day, model) = (row.try_get(0)?, text(row, 1)?.to_owned());
    Ok(UsageLine { day, model, runs: number(2)?, failed: number(3)?, usage })
}
