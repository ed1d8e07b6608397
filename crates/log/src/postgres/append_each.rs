//! The statement that writes those changes of a group that can be written, and tells of the others why not.
//!
//! It joins everything with what is held, which takes time. [`append_all`](super::append_all) comes first.

use parlor_vocab::{AgentId, RunId};
use tokio_postgres::types::ToSql;

use super::append::{Append, Change, ChangeKind, ChangeOutcome, WriteOrigin, usage_numbers};
use super::connect::Connection;
use super::db_error::DbError;
use super::request::EncodedEntry;
use super::wake;
use crate::media::media_of;
use crate::partial_text::ends_partial_text;

/// Appends and partial texts of many sessions. A session occurs once at most.
const WRITE_EACH: &str = include_str!("append_each.sql");

/// Writes the changes that can be written, in one transaction. The outcomes have the order of the changes. An error means
/// that nothing was written, unless the connection was lost.
pub(super) async fn write_each(
    connection: &mut Connection,
    changes: &[Change<'_>],
    origin: &WriteOrigin<'_>,
) -> Result<Vec<ChangeOutcome>, DbError> {
    let mut group = Columns::default();
    for (change, number) in changes.iter().zip(1..) {
        group.add(change, number);
    }
    let incarnation = origin.incarnation.to_string();
    let node = origin.node.as_bytes();
    let Columns { asked, records, events, media, usage, ended_texts, pieces } = &group;
    let parameters: [&(dyn ToSql + Sync); 40] = [
        &asked.0,
        &asked.1,
        &asked.2, //
        &records.0,
        &records.1,
        &records.2,
        &records.3,
        &records.4,
        &records.5,
        &records.6,
        &records.7,
        &records.8,
        &records.9,
        &records.10, //
        &events.0,
        &events.1,
        &events.2,
        &events.3,
        &events.4,
        &events.5, //
        &media.0,
        &media.1, //
        &node,
        &usage.0,
        &usage.1,
        &usage.2,
        &usage.3[0],
        &usage.3[1],
        &usage.3[2],
        &usage.3[3],
        &usage.3[4],
        &usage.3[5],
        &usage.3[6], //
        ended_texts, //
        &pieces.0,
        &pieces.1,
        &pieces.2,
        &pieces.3, //
        &origin.channel,
        &incarnation,
    ];
    let rows = connection.query(WRITE_EACH, &parameters).await?;
    let outcomes = rows.iter().zip(changes).map(|(row, change)| {
        let is_append = matches!(change.kind, ChangeKind::Append(_));
        match (row.try_get(0)?, row.try_get(1)?) {
            (false, _) => Ok(ChangeOutcome::NotHeld),
            (true, false) if is_append => Ok(ChangeOutcome::OtherHead),
            (true, _) => Ok(ChangeOutcome::Done),
        }
    });
    outcomes.collect()
}

type Bytes<'a> = &'a [u8];

/// The values of a group, column by column, as the statement takes them. The number of a change leads to its session.
#[derive(Default)]
#[expect(
    clippy::type_complexity,
    reason = "each tuple has the columns of one table, as append_each.sql lists them"
)]
struct Columns<'a> {
    asked: (Vec<Bytes<'a>>, Vec<i64>, Vec<String>),
    records: (
        Vec<i64>,
        Vec<i64>,
        Vec<Option<Bytes<'a>>>,
        Vec<Bytes<'a>>,
        Vec<Option<Bytes<'a>>>,
        Vec<i64>,
        Vec<i64>,
        Vec<i64>,
        Vec<i64>,
        Vec<i64>,
        Vec<Option<Bytes<'a>>>,
    ),
    events: (Vec<i64>, Vec<i64>, Vec<Bytes<'a>>, Vec<i64>, Vec<i64>, Vec<&'a str>),
    media: (Vec<i64>, Vec<Bytes<'a>>),
    usage: (Vec<i64>, Vec<i64>, Vec<Bytes<'a>>, [Vec<i64>; 7]),
    ended_texts: Vec<i64>,
    pieces: (Vec<i64>, Vec<i64>, Vec<Bytes<'a>>, Vec<Bytes<'a>>),
}

impl<'a> Columns<'a> {
    fn add(&mut self, change: &'a Change<'_>, number: i64) {
        self.asked.0.push(change.session.as_str().as_bytes());
        self.asked.1.push(change.token.0 as i64);
        self.asked.2.push(wake::hash_text(change.session));
        match &change.kind {
            ChangeKind::Append(append) => self.add_append(append, number),
            ChangeKind::PartialText { message, start, text } => {
                self.pieces.0.push(number);
                self.pieces.1.push(*start as i64);
                self.pieces.2.push(message.as_str().as_bytes());
                self.pieces.3.push(text.as_bytes());
            }
        }
    }

    fn add_append(&mut self, append: &'a Append<'_>, number: i64) {
        let Append { after, new, record, usage } = append;
        let columns = &mut self.records;
        columns.0.push(number);
        columns.1.push(after.0 as i64);
        columns.2.push(record.title.as_ref().map(String::as_bytes));
        columns.3.push(record.door.as_bytes());
        columns.4.push(record.agent.as_ref().map(AgentId::as_str).map(str::as_bytes));
        columns.5.push(record.created.0);
        columns.6.push(record.updated.0);
        columns.7.push(record.head.0 as i64);
        columns.8.push(record.messages as i64);
        columns.9.push(record.bytes as i64);
        columns.10.push(record.running.as_ref().map(RunId::as_str).map(str::as_bytes));
        for (EncodedEntry { entry, row }, seq) in new.iter().zip(after.0 as i64 + 1..) {
            let columns = &mut self.events;
            columns.0.push(number);
            columns.1.push(seq);
            columns.2.push(entry.id.as_str().as_bytes());
            columns.3.push(entry.at.0);
            columns.4.push(row.version);
            columns.5.push(&row.body);
            for id in media_of(&entry.event) {
                self.media.0.push(number);
                self.media.1.push(id.as_str().as_bytes());
            }
        }
        for line in usage.values() {
            self.usage.0.push(number);
            self.usage.1.push(line.day);
            self.usage.2.push(line.model.as_bytes());
            for (column, number) in self.usage.3.iter_mut().zip(usage_numbers(line)) {
                column.push(number);
            }
        }
        if new.iter().any(|event| ends_partial_text(&event.entry.event)) {
            self.ended_texts.push(number);
        }
    }
}
