//! Space that nothing uses any more, back to the file system.
//!
//! A deleted session leaves pages behind that later ones use. To make the file smaller instead, pages
//! from its end are moved into these gaps: in steps, between which others write.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use super::fault::fault;
use super::schema::connect;
use super::work::Freed;
use crate::LogError;

/// How many pages one step gives back. Others wait for about as long as it takes to write them.
pub const RECLAIM_PAGES: u64 = 256;

/// How often the write-ahead log is asked to shrink. It cannot while somebody reads an older state.
pub const SHRINK_TRIES: usize = 20;

/// How long one of these times waits for those who read; as long, nobody can write.
pub const SHRINK_WAIT: Duration = Duration::from_millis(50);

/// One step, within a transaction.
pub(super) fn step(connection: &Connection) -> rusqlite::Result<Freed> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (before, size) = (number("page_count")?, number("page_size")?);
    // Each row that it gives stands for a page, and none is moved before it is asked for.
    let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({RECLAIM_PAGES})"))?;
    let mut rows = vacuum.query([])?;
    while rows.next()?.is_some() {}
    let pages = u64::try_from(before - number("page_count")?).unwrap_or(0);
    let more = pages > 0 && number("freelist_count")? > 0;
    Ok(Freed { bytes: pages * u64::try_from(size).unwrap_or(0), more })
}

/// Writes everything from the write-ahead log to the database, which can be cut then, and empties
/// the log. Returns whether it could.
pub(super) fn shrink(database: &Path) -> Result<bool, LogError> {
    let try_it = || {
        let connection = connect(database)?;
        connection.busy_timeout(SHRINK_WAIT)?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
    };
    try_it().map(|busy| busy == 0).map_err(|error| fault(database, error))
}

/// How much the database and its write-ahead log take on the disk.
pub(super) fn size(database: &Path) -> Result<u64, LogError> {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    let mut bytes = 0;
    for file in [database, Path::new(&log)] {
        match file.metadata() {
            Ok(metadata) => bytes += metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(LogError::io("look at", file)(error)),
        }
    }
    Ok(bytes)
}
