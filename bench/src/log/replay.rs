//! Replay: reading a long session from its first event to its last.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use parlor_log::{EventLog, SqliteLog, SystemClock};
use parlor_vocab::{Seq, SessionId};

use super::{answer, bare_sqlite, runtime};
use crate::stats::median;

/// How many events are read.
pub(crate) const EVENTS: usize = 1_000_000;

/// How many events the engine reads at a time when it opens a session.
const PAGE: usize = 16 * 1024;

/// How many rounds there are.
const ROUNDS: usize = 5;

/// Events per second, the medians of all rounds.
pub(crate) struct Replay {
    /// Rows that a bare SQLite scan reads.
    pub(crate) bare: f64,
    /// Events that the log returns.
    pub(crate) parlor: f64,
}

pub(super) fn measure(folder: &Path) -> anyhow::Result<Replay> {
    let home = folder.join("replay");
    let runtime = runtime()?;
    let log = SqliteLog::open(&home, Arc::new(SystemClock))?;
    let session = SessionId::parse("long")?;
    runtime.block_on(fill(&log, &session))?;
    let database = rusqlite::Connection::open(home.join("parlor.db"))?;
    let (mut scans, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let (count, sum) = bare_sqlite::scan(&database)?;
        scans.push(EVENTS as f64 / begun.elapsed().as_secs_f64());
        ensure!(count == EVENTS && sum > 0, "{count} rows were found, not {EVENTS}");

        let begun = Instant::now();
        let count = runtime.block_on(read(&log, &session))?;
        reads.push(EVENTS as f64 / begun.elapsed().as_secs_f64());
        ensure!(count == EVENTS, "{count} events were read, not {EVENTS}");
    }
    Ok(Replay { bare: median(scans), parlor: median(reads) })
}

async fn fill(log: &SqliteLog, session: &SessionId) -> anyhow::Result<()> {
    let lease = log.acquire(session).await?;
    let mut head = Seq::START;
    while head.0 < EVENTS as u64 {
        let end = (head.0 + 10_000).min(EVENTS as u64);
        let new: Vec<_> = (head.0..end).map(answer).collect();
        head = log.append(&lease, head, &new).await?;
    }
    Ok(log.release(lease).await?)
}

async fn read(log: &SqliteLog, session: &SessionId) -> anyhow::Result<usize> {
    let (mut cursor, mut count) = (Seq::START, 0);
    loop {
        let entries = log.read(session, cursor, PAGE).await?;
        let Some(last) = entries.last() else { return Ok(count) };
        (cursor, count) = (last.seq, count + entries.len());
    }
}
