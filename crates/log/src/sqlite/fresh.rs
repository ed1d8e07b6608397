//! The table `fresh`, where most events are written first.
//!
//! In the table `events`, each session has pages of its own. If many sessions append at once, a commit would have to
//! write a page for each of them. So the writer inserts small appends into the table `fresh`, in the order in which they
//! arrive, and moves many events at a time to `events`. A large append fills pages of its own anyway, so the writer inserts
//! it into `events` directly.

use rusqlite::params;

use super::request::{EncodedEntry, PLACES_PER_SESSION};
use super::statements::Statements;

/// When `fresh` has this many events, the writer moves them to `events`.
pub const FRESH_EVENTS: usize = 2048;

/// The writer inserts an append of more bytes than this into `events` directly.
pub const FRESH_BYTES: usize = 4 << 10;

/// Inserts new events of the session with this key; `seq` is the number of the first one. If it inserts them into `fresh`,
/// returns the last row id there: `fresh` has at most this many rows.
pub(super) fn insert(
    statements: &mut Statements<'_>,
    key: i64,
    seq: i64,
    new: &[EncodedEntry],
) -> rusqlite::Result<Option<usize>> {
    let is_large = new.iter().map(|event| event.row.body.len()).sum::<usize>() > FRESH_BYTES;
    if is_large {
        // Readers rely on this order: a session's events in `fresh` come after those in `events`.
        move_session(statements, key)?;
    }
    let statement = if is_large { &mut statements.insert_event } else { &mut statements.insert_fresh };
    let mut last_row = 0;
    for (EncodedEntry { entry, row }, place) in new.iter().zip(key * PLACES_PER_SESSION + seq..) {
        last_row = statement.insert(params![place, entry.id.as_str(), entry.at.0, row.version, row.body])?;
    }
    if is_large {
        // Otherwise SQLite keeps a copy of the last bound values, which may be megabytes.
        statement.clear_bindings();
    }
    Ok((!is_large).then(|| usize::try_from(last_row).unwrap_or(0)))
}

/// Moves the events of the session with this key from `fresh` to `events`.
fn move_session(statements: &mut Statements<'_>, key: i64) -> rusqlite::Result<()> {
    let range = [key * PLACES_PER_SESSION, (key + 1) * PLACES_PER_SESSION];
    statements.copy_fresh_to_events.execute(range)?;
    statements.delete_fresh.execute(range)?;
    Ok(())
}

/// Moves all events from `fresh` to `events`.
pub(super) fn move_all(statements: &mut Statements<'_>) -> rusqlite::Result<()> {
    statements.copy_fresh_to_events.execute([0, i64::MAX])?;
    statements.delete_all_fresh.execute([])?;
    Ok(())
}
