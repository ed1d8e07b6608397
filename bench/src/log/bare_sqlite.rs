//! SQLite without the log around it.

use std::path::Path;

use rusqlite::{Connection, params};

/// A row of the log's table of events.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) at: i64,
    pub(crate) version: i64,
    pub(crate) body: String,
}

/// Opens a database with the log's settings and a table with the log's columns.
pub(super) fn open(file: &Path) -> anyhow::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(
        "CREATE TABLE events (place INTEGER PRIMARY KEY, id TEXT NOT NULL, at INTEGER NOT NULL,
         version INTEGER NOT NULL, body TEXT NOT NULL) STRICT",
    )?;
    Ok(connection)
}

/// Writes each row in a transaction of its own, which flushes it to the disk.
pub(super) fn write(connection: &Connection, first: i64, rows: &[Row]) -> anyhow::Result<()> {
    let mut insert = connection.prepare("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for (row, place) in rows.iter().zip(first..) {
        insert.execute(params![place, row.id, row.at, row.version, row.body])?;
    }
    Ok(())
}

/// The first `limit` rows in the log's database.
pub(crate) fn stored(database: &Path, limit: usize) -> anyhow::Result<Vec<Row>> {
    let connection = Connection::open(database)?;
    let mut select =
        connection.prepare("SELECT id, at, version, body FROM events ORDER BY place LIMIT ?1")?;
    let rows = select.query_map([i64::try_from(limit)?], |row| {
        Ok(Row { id: row.get(0)?, at: row.get(1)?, version: row.get(2)?, body: row.get(3)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Reads all bytes of all events in the log's database. Returns the number of events, and a sum that depends on every byte.
pub(super) fn scan(connection: &Connection) -> anyhow::Result<(usize, u64)> {
    let mut select = connection.prepare("SELECT place, id, at, version, body FROM events ORDER BY place")?;
    let mut rows = select.query([])?;
    let (mut count, mut sum) = (0, 0_u64);
    let add = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    while let Some(row) = rows.next()? {
        let numbers: [i64; 3] = [row.get(0)?, row.get(2)?, row.get(3)?];
        let texts = add(row.get_ref(1)?.as_bytes()?) + add(row.get_ref(4)?.as_bytes()?);
        sum = numbers.iter().fold(sum, |sum, number| sum.wrapping_add_signed(*number)).wrapping_add(texts);
        count += 1;
    }
    Ok((count, sum))
}
