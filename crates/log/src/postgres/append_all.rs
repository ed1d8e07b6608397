//! The statement that writes all changes of a group, or fails.
//!
//! It is one statement and a transaction of its own: a process that is paused in the middle of it holds no lock, because the
//! server needs nothing more from it. It locks the leases, so that nobody takes one over before the commit. At the end it
//! counts the leases that it found and the records with the expected head; if one is missing, it divides by zero, which
//! undoes everything. Then [`append_each`](super::append_each) finds out which change it was. That is rare.
//!
//! A statement has only the parts that its group needs, because the server spends more time on preparing a part than on
//! running it.

use std::collections::BTreeMap;

use parlor_vocab::{AgentId, RunId, Seq};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::append::{Append, Change, ChangeKind, WriteOrigin, usage_numbers};
use super::connect::Connection;
use super::db_error::DbError;
use super::request::EncodedEntry;
use super::wake;
use crate::UsageLine;
use crate::media::media_of;
use crate::partial_text::ends_partial_text;

/// The first words, by which an operator finds the statement among those that run.
const COMMENT: &str = "/* Appends events. */ ";

/// Writes the group. Returns false, and writes nothing, if a lease is not held or a head is not the expected one.
pub(super) async fn write_all(
    connection: &mut Connection,
    changes: &[Change<'_>],
    origin: &WriteOrigin<'_>,
) -> Result<bool, DbError> {
    let mut group = Group::default();
    for change in changes {
        group.add(change);
    }
    let node = origin.node.as_bytes();
    let usage = group.usage_columns();
    let (count, updated) = (changes.len() as i64, group.updated.session.len() as i64);
    let payloads = wake::payloads(origin.incarnation, &group.heads);
    let mut statement = Statement::default();
    statement.add_held(&group);
    statement.add_records(&group);
    statement.add_events(&group);
    statement.add_usage(&usage, &node);
    statement.add_texts(&group);
    statement.finish([&count, &updated], &origin.channel, &payloads);
    match connection.query(&statement.sql, &statement.parameters).await {
        Ok(_) => Ok(true),
        // A record that exists already is another head than expected, too.
        Err(error)
            if matches!(error.code(), Some(&SqlState::DIVISION_BY_ZERO | &SqlState::UNIQUE_VIOLATION)) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

type Bytes<'a> = &'a [u8];

/// The values of a group, column by column.
#[derive(Default)]
struct Group<'a> {
    leases: (Vec<Bytes<'a>>, Vec<i64>),
    created: Records<'a>,
    updated: Records<'a>,
    events: Events<'a>,
    media: (Vec<Bytes<'a>>, Vec<Bytes<'a>>),
    usage: BTreeMap<(i64, &'a str), UsageLine>,
    ended_texts: Vec<Bytes<'a>>,
    pieces: (Vec<Bytes<'a>>, Vec<i64>, Vec<Bytes<'a>>, Vec<Bytes<'a>>),
    heads: Vec<(String, Seq)>,
}

#[derive(Default)]
struct Events<'a> {
    session: Vec<Bytes<'a>>,
    seq: Vec<i64>,
    id: Vec<Bytes<'a>>,
    at: Vec<i64>,
    version: Vec<i64>,
    body: Vec<&'a str>,
}

#[derive(Default)]
struct Records<'a> {
    session: Vec<Bytes<'a>>,
    after: Vec<i64>,
    title: Vec<Option<Bytes<'a>>>,
    door: Vec<Bytes<'a>>,
    agent: Vec<Option<Bytes<'a>>>,
    created: Vec<i64>,
    updated: Vec<i64>,
    head: Vec<i64>,
    messages: Vec<i64>,
    bytes: Vec<i64>,
    running: Vec<Option<Bytes<'a>>>,
}

impl<'a> Group<'a> {
    fn add(&mut self, change: &'a Change<'_>) {
        let session = change.session.as_str().as_bytes();
        self.leases.0.push(session);
        self.leases.1.push(change.token.0 as i64);
        match &change.kind {
            ChangeKind::Append(append) => {
                self.heads.push((wake::hash_text(change.session), append.record.head));
                self.add_append(session, append);
            }
            ChangeKind::PartialText { message, start, text } => {
                self.pieces.0.push(session);
                self.pieces.1.push(*start as i64);
                self.pieces.2.push(message.as_str().as_bytes());
                self.pieces.3.push(text.as_bytes());
            }
        }
    }

    fn add_append(&mut self, session: Bytes<'a>, append: &'a Append<'_>) {
        let Append { after, new, record, usage } = append;
        let columns = if *after == Seq::START { &mut self.created } else { &mut self.updated };
        columns.session.push(session);
        columns.after.push(after.0 as i64);
        columns.title.push(record.title.as_ref().map(String::as_bytes));
        columns.door.push(record.door.as_bytes());
        columns.agent.push(record.agent.as_ref().map(AgentId::as_str).map(str::as_bytes));
        columns.created.push(record.created.0);
        columns.updated.push(record.updated.0);
        columns.head.push(record.head.0 as i64);
        columns.messages.push(record.messages as i64);
        columns.bytes.push(record.bytes as i64);
        columns.running.push(record.running.as_ref().map(RunId::as_str).map(str::as_bytes));
        for (EncodedEntry { entry, row }, seq) in new.iter().zip(after.0 as i64 + 1..) {
            self.events.session.push(session);
            self.events.seq.push(seq);
            self.events.id.push(entry.id.as_str().as_bytes());
            self.events.at.push(entry.at.0);
            self.events.version.push(row.version);
            self.events.body.push(&row.body);
            for id in media_of(&entry.event) {
                self.media.0.push(session);
                self.media.1.push(id.as_str().as_bytes());
            }
        }
        for line in usage.values() {
            self.usage.entry((line.day, &line.model)).or_default().add(line);
        }
        if new.iter().any(|event| ends_partial_text(&event.entry.event)) {
            self.ended_texts.push(session);
        }
    }

    /// Day, model and numbers of the usage, column by column, in an order that is the same for all processes.
    fn usage_columns(&self) -> (Vec<i64>, Vec<Bytes<'a>>, [Vec<i64>; 7]) {
        let mut columns = (Vec::new(), Vec::new(), <[Vec<i64>; 7]>::default());
        for ((day, model), line) in &self.usage {
            columns.0.push(*day);
            columns.1.push(model.as_bytes());
            for (column, number) in columns.2.iter_mut().zip(usage_numbers(line)) {
                column.push(number);
            }
        }
        columns
    }
}

type Parameter<'p> = &'p (dyn ToSql + Sync);

/// The text of a statement and its parameters.
struct Statement<'p> {
    sql: String,
    parameters: Vec<Parameter<'p>>,
}

impl Default for Statement<'_> {
    fn default() -> Self {
        Self { sql: COMMENT.to_owned(), parameters: Vec::new() }
    }
}

impl<'p> Statement<'p> {
    /// Adds a text. Each `?` in it stands for the next parameter.
    fn add(&mut self, text: &str, parameters: &[Parameter<'p>]) {
        let mut rest = parameters.iter();
        for (number, piece) in text.split('?').enumerate() {
            if number > 0 {
                self.parameters.extend(rest.next());
                self.sql.push('$');
                self.sql.push_str(&self.parameters.len().to_string());
            }
            self.sql.push_str(piece);
        }
    }

    fn add_held(&mut self, group: &'p Group<'_>) {
        let text = "WITH held AS MATERIALIZED (
            SELECT l.session FROM unnest(?::bytea[], ?::bigint[]) AS a (session, token)
            JOIN leases AS l ON l.session = a.session AND l.token = a.token
            ORDER BY l.session FOR SHARE OF l)";
        self.add(text, &[&group.leases.0, &group.leases.1]);
    }

    fn add_records(&mut self, group: &'p Group<'_>) {
        if !group.created.session.is_empty() {
            let r = &group.created;
            let text = ", created AS (
                INSERT INTO sessions (id, title, door, agent, created, updated, head, messages, bytes, running)
                SELECT * FROM unnest(?::bytea[], ?::bytea[], ?::bytea[], ?::bytea[], ?::bigint[], ?::bigint[],
                    ?::bigint[], ?::bigint[], ?::bigint[], ?::bytea[]))";
            self.add(
                text,
                &[
                    &r.session,
                    &r.title,
                    &r.door,
                    &r.agent,
                    &r.created,
                    &r.updated,
                    &r.head,
                    &r.messages,
                    &r.bytes,
                    &r.running,
                ],
            );
        }
        let r = &group.updated;
        if r.session.is_empty() {
            self.add(", updated AS (SELECT WHERE false)", &[]);
            return;
        }
        let text = ", updated AS (
            UPDATE sessions AS s
            SET title = r.title, door = r.door, agent = r.agent, created = r.created, updated = r.updated,
                head = r.head, messages = r.messages, bytes = r.bytes, running = r.running
            FROM unnest(?::bytea[], ?::bigint[], ?::bytea[], ?::bytea[], ?::bytea[], ?::bigint[], ?::bigint[],
                ?::bigint[], ?::bigint[], ?::bigint[], ?::bytea[])
                AS r (session, after, title, door, agent, created, updated, head, messages, bytes, running)
            WHERE s.id = r.session AND s.head = r.after
            RETURNING s.id)";
        self.add(
            text,
            &[
                &r.session,
                &r.after,
                &r.title,
                &r.door,
                &r.agent,
                &r.created,
                &r.updated,
                &r.head,
                &r.messages,
                &r.bytes,
                &r.running,
            ],
        );
    }

    fn add_events(&mut self, group: &'p Group<'_>) {
        let events = &group.events;
        if !events.session.is_empty() {
            let text = ", new_events AS (
                INSERT INTO events (session, seq, id, at, version, body)
                SELECT * FROM unnest(?::bytea[], ?::bigint[], ?::bytea[], ?::bigint[], ?::bigint[], ?::text[]))";
            self.add(
                text,
                &[&events.session, &events.seq, &events.id, &events.at, &events.version, &events.body],
            );
        }
        if !group.media.0.is_empty() {
            let text = ", new_media AS (
                INSERT INTO media (session, id) SELECT DISTINCT * FROM unnest(?::bytea[], ?::bytea[])
                ON CONFLICT (session, id) DO UPDATE SET at = excluded.at)";
            self.add(text, &[&group.media.0, &group.media.1]);
        }
    }

    fn add_usage(&mut self, usage: &'p (Vec<i64>, Vec<Bytes<'_>>, [Vec<i64>; 7]), node: &'p Bytes<'_>) {
        let (days, models, [runs, failed, input, output, cache_read, cache_write, cost]) = usage;
        if days.is_empty() {
            return;
        }
        let text = ", added_usage AS (
            INSERT INTO usage AS u
                (day, model, node, runs, failed, input, output, cache_read, cache_write, cost)
            SELECT n.day, n.model, ?::bytea, n.runs, n.failed, n.input, n.output, n.cache_read, n.cache_write,
                n.cost
            FROM unnest(?::bigint[], ?::bytea[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[],
                ?::bigint[], ?::bigint[])
                AS n (day, model, runs, failed, input, output, cache_read, cache_write, cost)
            ON CONFLICT (day, model, node) DO UPDATE
            SET runs = u.runs + excluded.runs, failed = u.failed + excluded.failed,
                input = u.input + excluded.input, output = u.output + excluded.output,
                cache_read = u.cache_read + excluded.cache_read,
                cache_write = u.cache_write + excluded.cache_write, cost = u.cost + excluded.cost)";
        self.add(text, &[node, days, models, runs, failed, input, output, cache_read, cache_write, cost]);
    }

    fn add_texts(&mut self, group: &'p Group<'_>) {
        if !group.ended_texts.is_empty() {
            let text = ", ended_texts AS (DELETE FROM partial_texts WHERE session = ANY (?::bytea[]))";
            self.add(text, &[&group.ended_texts]);
        }
        let pieces = &group.pieces;
        if !pieces.0.is_empty() {
            let text = ", pieces AS MATERIALIZED (
                    SELECT * FROM unnest(?::bytea[], ?::bigint[], ?::bytea[], ?::bytea[])
                        AS p (session, start, message, text)
                ), replaced_texts AS (
                    DELETE FROM partial_texts AS t USING pieces AS p
                    WHERE t.session = p.session AND t.start <> p.start
                        AND (t.start > p.start OR t.message <> p.message)
                ), kept_texts AS (
                    INSERT INTO partial_texts (session, start, message, text) SELECT * FROM pieces
                    ON CONFLICT (session, start) DO UPDATE SET message = excluded.message, text = excluded.text)";
            self.add(text, &[&pieces.0, &pieces.1, &pieces.2, &pieces.3]);
        }
    }

    /// Proves that all leases are held and all heads are as expected, and notifies followers.
    fn finish(&mut self, counts: [&'p i64; 2], channel: &'p &str, payloads: &'p Vec<String>) {
        let text =
            " SELECT 1 / ((SELECT count(*) FROM held) = ? AND (SELECT count(*) FROM updated) = ?)::int,
            (SELECT count(pg_notify(?, p)) FROM unnest(?::text[]) AS p)";
        self.add(text, &[counts[0], counts[1], channel, payloads]);
    }
}
