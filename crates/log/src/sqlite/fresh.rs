//! Where events are written first.
//!
//! The places of a session stand together, hence on pages of their own. If many sessions append at
//! once, each with an event to its own page, a flush of the disk has to wait for all these pages.
//! So events go to the table `fresh`, one after another as they come, and many at a time are moved
//! from there to their places. What is large by itself gains nothing by that, and goes to its place
//! at once.

use rusqlite::params;

use super::statements::Statements;
use super::work::{NewEvent, SPAN};

/// How many fresh events there are when they are moved to their places, if not more.
pub const FRESH_EVENTS: usize = 2048;

/// An append of more bytes than this goes to its place at once.
pub const FRESH_BYTES: usize = 4 << 10;

/// Writes events of the session `key`, of which the first gets the place of `seq`. Returns the number
/// of the last, if it was written to the fresh ones: how many there are at most.
pub(super) fn insert(
    statements: &mut Statements<'_>,
    key: i64,
    seq: i64,
    new: &[NewEvent],
) -> rusqlite::Result<Option<usize>> {
    let at_once = new.iter().map(|event| event.row.body.len()).sum::<usize>() > FRESH_BYTES;
    if at_once {
        // What comes before them goes before them.
        settle(statements, key)?;
    }
    let insert = if at_once { &mut statements.insert_event } else { &mut statements.insert_fresh };
    let mut number = 0;
    for (NewEvent { draft, row }, place) in new.iter().zip(key * SPAN + seq..) {
        number = insert.insert(params![place, draft.id.as_str(), draft.at.0, row.version, row.body])?;
    }
    if at_once {
        // SQLite keeps a copy of what was bound last, which may be megabytes.
        insert.clear_bindings();
    }
    Ok((!at_once).then(|| usize::try_from(number).unwrap_or(0)))
}

/// Moves what the session `key` has.
fn settle(statements: &mut Statements<'_>, key: i64) -> rusqlite::Result<()> {
    let range = [key * SPAN, (key + 1) * SPAN];
    statements.move_fresh.execute(range)?;
    statements.delete_fresh.execute(range)?;
    Ok(())
}

/// Moves all that there is.
pub(super) fn settle_all(statements: &mut Statements<'_>) -> rusqlite::Result<()> {
    statements.move_fresh.execute([0, i64::MAX])?;
    statements.delete_all_fresh.execute([])?;
    Ok(())
}
