//! Returns unused space to the file system, and removes deleted text from the write-ahead log.
//!
//! A deleted session leaves free pages, which later appends reuse. To make the file smaller instead, SQLite moves pages
//! from its end into the free ones: in steps, between which others can write.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::db_error::db_error;
use super::open_files::{OpenFiles, sibling};
use super::read::Readers;
use super::request::ReclaimStep;
use super::schema::connect;
use crate::{Erased, LogError};

/// The number of pages that one step returns. Other requests wait for about as long as it takes to write them.
pub const RECLAIM_PAGES: u64 = 256;

/// How often to try to empty the write-ahead log. It cannot be emptied while somebody reads an older state.
pub const SHRINK_TRIES: usize = 20;

/// The pause between further attempts in the background.
pub const ERASE_RETRY: Duration = Duration::from_secs(5);

/// How long one attempt waits for readers. Nobody can write during that time.
pub const SHRINK_WAIT: Duration = Duration::from_millis(50);

/// Returns up to [`RECLAIM_PAGES`] pages. Runs within a transaction.
pub(super) fn step(connection: &Connection) -> rusqlite::Result<ReclaimStep> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (before, size) = (number("page_count")?, number("page_size")?);
    // The statement moves one page for each row that is fetched.
    let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({RECLAIM_PAGES})"))?;
    let mut rows = vacuum.query([])?;
    while rows.next()?.is_some() {}
    let pages = u64::try_from(before - number("page_count")?).unwrap_or(0);
    let more = pages > 0 && number("freelist_count")? > 0;
    Ok(ReclaimStep { bytes: pages * u64::try_from(size).unwrap_or(0), more })
}

/// Removes deleted text from the write-ahead log by emptying it. If somebody reads an older state during all `tries`, one
/// background task tries again until it succeeds or the runtime ends.
pub(super) async fn erase(readers: &Arc<Readers>, tries: usize) -> Result<Erased, LogError> {
    let mut retrying = readers.retrying_erase.lock().await;
    for _ in 0..tries {
        if try_to_empty_log(readers).await? {
            return Ok(Erased::Yes);
        }
    }
    if !*retrying {
        *retrying = true;
        tokio::spawn(retry_erase(Arc::clone(readers)));
    }
    Ok(Erased::Later)
}

async fn retry_erase(readers: Arc<Readers>) {
    loop {
        tokio::time::sleep(ERASE_RETRY).await;
        let mut retrying = readers.retrying_erase.lock().await;
        *retrying = matches!(try_to_empty_log(&readers).await, Ok(false));
        if !*retrying {
            return;
        }
    }
}

async fn try_to_empty_log(readers: &Arc<Readers>) -> Result<bool, LogError> {
    let owned = Arc::clone(readers);
    readers.with(move |_, _| empty_log(owned.files())).await
}

/// Copies the write-ahead log into the database, truncates both files, and returns whether that was possible.
fn empty_log(files: &OpenFiles) -> Result<bool, LogError> {
    files.verify()?;
    let database = files.database();
    let checkpoint = || {
        let connection = connect(database)?;
        connection.busy_timeout(SHRINK_WAIT)?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
    };
    checkpoint().map(|busy| busy == 0).map_err(|error| db_error(database, error))
}

/// The size of the database and its write-ahead log in bytes.
pub(super) fn size(database: &Path) -> Result<u64, LogError> {
    let mut bytes = 0;
    for file in [database, &sibling(database, "-wal")] {
        match file.metadata() {
            Ok(metadata) => bytes += metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(LogError::io("look at", file)(error)),
        }
    }
    Ok(bytes)
}
