//! The prepared statements of the writer.

use rusqlite::{Connection, Statement};

use super::request::RECORD_COLUMNS;

/// Prepared once, when the writer starts.
pub(super) struct Statements<'c> {
    pub(super) begin: Statement<'c>,
    pub(super) commit: Statement<'c>,
    pub(super) rollback: Statement<'c>,
    pub(super) data_version: Statement<'c>,
    pub(super) head: Statement<'c>,
    pub(super) has_lease: Statement<'c>,
    pub(super) record: Statement<'c>,
    pub(super) insert_record: Statement<'c>,
    pub(super) update_record: Statement<'c>,
    pub(super) insert_event: Statement<'c>,
    pub(super) insert_fresh: Statement<'c>,
    pub(super) insert_media: Statement<'c>,
    pub(super) add_usage: Statement<'c>,
    pub(super) copy_fresh_to_events: Statement<'c>,
    pub(super) lease: Statement<'c>,
    pub(super) insert_lease: Statement<'c>,
    pub(super) delete_lease: Statement<'c>,
    pub(super) delete_record: Statement<'c>,
    pub(super) delete_events: Statement<'c>,
    pub(super) delete_fresh: Statement<'c>,
    pub(super) delete_all_fresh: Statement<'c>,
    pub(super) insert_partial_text: Statement<'c>,
    pub(super) delete_partial_text_from: Statement<'c>,
    pub(super) delete_partial_text: Statement<'c>,
    pub(super) delete_media: Statement<'c>,
    pub(super) put_snapshot: Statement<'c>,
    pub(super) delete_snapshot: Statement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let prepare = |sql: &str| connection.prepare(sql);
        Ok(Self {
            begin: prepare("BEGIN IMMEDIATE")?,
            commit: prepare("COMMIT")?,
            rollback: prepare("ROLLBACK")?,
            data_version: prepare("PRAGMA data_version")?,
            head: prepare("SELECT head FROM sessions WHERE id = ?1")?,
            has_lease: prepare("SELECT 1 FROM leases WHERE session = ?1 AND holder = ?2 AND token = ?3")?,
            record: prepare(&format!("SELECT {RECORD_COLUMNS}, s.key FROM sessions AS s WHERE s.id = ?1"))?,
            insert_record: prepare(
                "INSERT INTO sessions (key, id, title, door, agent, created, updated, head, messages, bytes,
                 running) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?,
            update_record: prepare(
                "UPDATE sessions SET title = ?3, door = ?4, agent = ?5, created = ?6, updated = ?7, head = ?8,
                 messages = ?9, bytes = ?10, running = ?11 WHERE key = ?1 AND id = ?2",
            )?,
            insert_event: prepare(
                "INSERT INTO events (place, id, at, version, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            insert_fresh: prepare(
                "INSERT INTO fresh (place, id, at, version, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            insert_media: prepare("INSERT OR IGNORE INTO media (session, id) VALUES (?1, ?2)")?,
            add_usage: prepare(
                "INSERT INTO usage (day, model, runs, failed, input, output, cache_read, cache_write, cost)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT (day, model) DO UPDATE SET runs = runs + excluded.runs,
                 failed = failed + excluded.failed, input = input + excluded.input,
                 output = output + excluded.output, cache_read = cache_read + excluded.cache_read,
                 cache_write = cache_write + excluded.cache_write, cost = cost + excluded.cost",
            )?,
            copy_fresh_to_events: prepare(
                "INSERT INTO events (place, id, at, version, body)
                 SELECT place, id, at, version, body FROM fresh WHERE place > ?1 AND place < ?2 ORDER BY place",
            )?,
            lease: prepare("SELECT holder, pid, since FROM leases WHERE session = ?1")?,
            insert_lease: prepare(
                "INSERT OR REPLACE INTO leases (session, holder, token, pid, since)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            delete_lease: prepare("DELETE FROM leases WHERE session = ?1 AND holder = ?2 AND token = ?3")?,
            delete_record: prepare("DELETE FROM sessions WHERE key = ?1")?,
            delete_events: prepare("DELETE FROM events WHERE place > ?1 AND place < ?2")?,
            delete_fresh: prepare("DELETE FROM fresh WHERE place > ?1 AND place < ?2")?,
            delete_all_fresh: prepare("DELETE FROM fresh")?,
            insert_partial_text: prepare(
                "INSERT INTO partial_texts (session, start, message, text) VALUES (?1, ?2, ?3, ?4)",
            )?,
            delete_partial_text_from: prepare(
                "DELETE FROM partial_texts WHERE session = ?1 AND (start >= ?2 OR message <> ?3)",
            )?,
            delete_partial_text: prepare("DELETE FROM partial_texts WHERE session = ?1")?,
            delete_media: prepare("DELETE FROM media WHERE session = ?1")?,
            put_snapshot: prepare(
                "INSERT OR REPLACE INTO snapshots (session, seq, event, version, body)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            delete_snapshot: prepare("DELETE FROM snapshots WHERE session = ?1")?,
        })
    }
}
