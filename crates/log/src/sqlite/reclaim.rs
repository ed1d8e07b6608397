//! Space that nothing uses any more, back to the file system.
//!
//! A deleted session leaves pages behind that later ones use. To make the file smaller instead, pages
//! from its end are moved into these gaps: in steps, between which others write.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::fault::fault;
use super::open_files::{OpenFiles, beside};
use super::read::Readers;
use super::schema::connect;
use super::work::Freed;
use crate::{Erased, LogError};

/// How many pages one step gives back. Others wait for about as long as it takes to write them.
pub const RECLAIM_PAGES: u64 = 256;

/// How often the write-ahead log is asked to shrink. It cannot while somebody reads an older state.
pub const SHRINK_TRIES: usize = 20;

/// How long it takes until another attempt, if what was deleted could not be taken out of the write-ahead log.
pub const ERASE_RETRY: Duration = Duration::from_secs(5);

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

/// Takes what was deleted out of the write-ahead log. If somebody reads an older state all the time, it is tried
/// again until it is done or the runtime ends.
pub(super) async fn erase(readers: &Arc<Readers>, tries: usize) -> Result<Erased, LogError> {
    for _ in 0..tries {
        if try_to_shrink(readers).await? {
            return Ok(Erased::Yes);
        }
    }
    let readers = Arc::clone(readers);
    tokio::spawn(async move {
        while matches!(try_to_shrink(&readers).await, Ok(false)) {
            tokio::time::sleep(ERASE_RETRY).await;
        }
    });
    Ok(Erased::Later)
}

async fn try_to_shrink(readers: &Arc<Readers>) -> Result<bool, LogError> {
    let owned = Arc::clone(readers);
    readers.with(move |_, _| shrink(owned.files())).await
}

/// Writes everything from the write-ahead log to the database, which can be cut then, and empties
/// the log. Returns whether it could.
fn shrink(files: &OpenFiles) -> Result<bool, LogError> {
    files.verify()?;
    let database = files.database();
    let try_it = || {
        let connection = connect(database)?;
        connection.busy_timeout(SHRINK_WAIT)?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
    };
    try_it().map(|busy| busy == 0).map_err(|error| fault(database, error))
}

/// How much the database and its write-ahead log take on the disk.
pub(super) fn size(database: &Path) -> Result<u64, LogError> {
    let mut bytes = 0;
    for file in [database, &beside(database, "-wal")] {
        match file.metadata() {
            Ok(metadata) => bytes += metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(LogError::io("look at", file)(error)),
        }
    }
    Ok(bytes)
}
