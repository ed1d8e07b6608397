//! What a group of appends and partial texts changes.

use std::collections::BTreeMap;

use parlor_vocab::{EventId, MessageId, Seq, SessionId, Usage};

use super::MAX_MODEL_BYTES;
use super::connect::Connection;
use super::db_error::DbError;
use super::request::EncodedEntry;
use crate::lease::Token;
use crate::record::apply;
use crate::{SessionRecord, UsageLine};

/// Finds appends by the id of their first event.
const FIND_FIRST_EVENTS: &str = "SELECT e.id IS NOT NULL
    FROM unnest($1::bytea[], $2::bigint[], $3::bytea[]) WITH ORDINALITY AS a (session, seq, id, number)
    LEFT JOIN events AS e ON e.session = a.session AND e.seq = a.seq AND e.id = a.id
    ORDER BY a.number";

/// The largest number of an absurd usage that is added: even a million of them do not overflow a column.
const MAX_USAGE_NUMBER: u64 = (i64::MAX >> 20) as u64;

/// What a group changes in one session.
pub(super) struct Change<'a> {
    pub(super) session: &'a SessionId,
    pub(super) token: Token,
    pub(super) kind: ChangeKind<'a>,
}

pub(super) enum ChangeKind<'a> {
    Append(Append<'a>),
    PartialText { message: &'a MessageId, start: usize, text: &'a str },
}

/// New events, with the record of the session after them.
pub(super) struct Append<'a> {
    pub(super) after: Seq,
    pub(super) new: &'a [EncodedEntry],
    pub(super) record: SessionRecord,
    pub(super) usage: BTreeMap<(i64, String), UsageLine>,
}

impl<'a> Append<'a> {
    /// Computes the record after the events. `record` is that before them.
    pub(super) fn new(mut record: SessionRecord, new: &'a [EncodedEntry]) -> Self {
        let after = record.head;
        let mut usage: BTreeMap<(i64, String), UsageLine> = BTreeMap::new();
        for EncodedEntry { entry, row } in new {
            if let Some(mut line) = UsageLine::of(&record, entry) {
                line.model.truncate(line.model.floor_char_boundary(MAX_MODEL_BYTES));
                let empty = UsageLine { day: line.day, model: line.model.clone(), ..UsageLine::default() };
                usage.entry((line.day, line.model.clone())).or_insert(empty).add(&line);
            }
            apply(&mut record, entry, row.body.len());
        }
        Self { after, new, record, usage }
    }
}

/// The numbers of a line, in the order of the columns.
pub(super) fn usage_numbers(line: &UsageLine) -> [i64; 7] {
    let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros } =
        line.usage;
    let numbers = [
        line.runs,
        line.failed,
        input_tokens,
        output_tokens,
        cache_read_tokens,
        cache_write_tokens,
        cost_micros,
    ];
    // An absurd number from a provider must not make an append fail, now or when numbers are added.
    numbers.map(|number| number.min(MAX_USAGE_NUMBER) as i64)
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeOutcome {
    Done,
    /// The lease belongs to somebody else, or to nobody.
    NotHeld,
    /// The head in the database is not the expected one.
    OtherHead,
}

/// The process that writes.
pub(super) struct WriteOrigin<'a> {
    pub(super) node: &'a str,
    pub(super) incarnation: i64,
    /// The channel of notifications.
    pub(super) channel: &'a str,
}

/// An append, as [`find_appends`] looks for it.
pub(super) struct SentAppend<'a> {
    pub(super) session: &'a SessionId,
    pub(super) after: Seq,
    pub(super) first_event: &'a EventId,
}

/// For each append, whether it is in the database. Appends are stored as a whole, so the first event tells.
pub(super) async fn find_appends(
    connection: &mut Connection,
    appends: &[SentAppend<'_>],
) -> Result<Vec<bool>, DbError> {
    let sessions: Vec<&[u8]> = appends.iter().map(|append| append.session.as_str().as_bytes()).collect();
    let seqs: Vec<i64> = appends.iter().map(|append| append.after.0 as i64 + 1).collect();
    let ids: Vec<&[u8]> = appends.iter().map(|append| append.first_event.as_str().as_bytes()).collect();
    let rows = connection.query(FIND_FIRST_EVENTS, &[&sessions, &seqs, &ids]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
