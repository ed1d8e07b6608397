//! Durable appends per second.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use parlor_log::{EventLog, Lease, SqliteLog, SystemClock};
use parlor_vocab::{NewEntry, Seq, SessionId};
use tokio::task::JoinSet;

use super::bare_sqlite::{self, Row};
use super::{answer, runtime};
use crate::stats::{Spread, median};

/// How many sessions append at the same time, each one event after another.
pub(crate) const APPENDERS: [usize; 3] = [1, 8, 64];

/// How many rounds there are.
const ROUNDS: usize = 45;

/// How many rows bare SQLite writes in a round, one at a time.
const ROWS: usize = 120;

/// How many events each session appends in a round, for each number of sessions in [`APPENDERS`].
const EVENTS: [u64; 3] = [120, 60, 60];

/// Rows or events per second, the medians of all rounds.
pub(crate) struct Appends {
    /// A file: each row's bytes are written and flushed to the disk.
    pub(crate) disk: f64,
    /// Bare SQLite: each row is inserted and committed.
    pub(crate) bare: f64,
    /// The log, for each number of sessions in [`APPENDERS`].
    pub(crate) parlor: [f64; 3],
    /// The ratio of the log to bare SQLite in the same round, for each number of sessions in [`APPENDERS`]. The speed of the
    /// disk's flushes varies by half within seconds, so only figures of the same round can be compared.
    pub(crate) ratios: [Spread; 3],
}

pub(super) fn measure(folder: &Path) -> anyhow::Result<Appends> {
    let home = folder.join("append");
    let runtime = runtime()?;
    let log: Arc<dyn EventLog> = Arc::new(SqliteLog::open(&home, Arc::new(SystemClock))?);
    let most = APPENDERS.into_iter().max().unwrap_or(1);
    let mut sessions = runtime.block_on(open_sessions(&*log, most))?;
    let rows = bare_sqlite::stored(&home.join("parlor.db"), ROWS)?;
    let connection = bare_sqlite::open(&folder.join("bare.db"))?;
    let mut file = File::create(folder.join("flushed"))?;

    let (mut disk, mut bare, mut parlor) = (Vec::new(), Vec::new(), [const { Vec::new() }; 3]);
    for round in 0..ROUNDS {
        disk.push(rate(ROWS, || flush_each(&mut file, &rows))?);
        let first = i64::try_from(round * ROWS)?;
        bare.push(rate(ROWS, || bare_sqlite::write(&connection, first, &rows))?);
        for ((appenders, events), rates) in APPENDERS.into_iter().zip(EVENTS).zip(&mut parlor) {
            let total = appenders * usize::try_from(events)?;
            let new: Arc<[NewEntry]> = (0..events).map(answer).collect();
            let appending = append_events(&log, &mut sessions, appenders, new);
            rates.push(rate(total, || runtime.block_on(appending))?);
        }
    }
    let ratios = parlor
        .each_ref()
        .map(|rates| Spread::of(rates.iter().zip(&bare).map(|(parlor, bare)| parlor / bare).collect()));
    Ok(Appends { disk: median(disk), bare: median(bare), parlor: parlor.map(median), ratios })
}

/// An open session and its last sequence number.
pub(crate) struct AppendingSession {
    lease: Lease,
    head: Seq,
}

/// Opens sessions, each with [`ROWS`] events. Bare SQLite and the file get copies of these rows.
pub(crate) async fn open_sessions(log: &dyn EventLog, count: usize) -> anyhow::Result<Vec<AppendingSession>> {
    let mut sessions = Vec::new();
    for number in 0..count {
        let lease = log.acquire(&SessionId::parse(&format!("session {number}"))?).await?;
        let new: Vec<_> = (0..ROWS as u64).map(answer).collect();
        let head = log.append(&lease, Seq::START, &new).await?;
        sessions.push(AppendingSession { lease, head });
    }
    Ok(sessions)
}

/// Appends events as the engine's actors do: each session is a task that waits for one append before the next.
pub(crate) async fn append_events(
    log: &Arc<dyn EventLog>,
    sessions: &mut Vec<AppendingSession>,
    count: usize,
    new: Arc<[NewEntry]>,
) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    for mut session in sessions.drain(..count) {
        let (log, new) = (Arc::clone(log), Arc::clone(&new));
        tasks.spawn(async move {
            for event in &*new {
                session.head = log.append(&session.lease, session.head, slice::from_ref(event)).await?;
            }
            anyhow::Ok(session)
        });
    }
    while let Some(session) = tasks.join_next().await {
        sessions.push(session??);
    }
    Ok(())
}

fn flush_each(file: &mut File, rows: &[Row]) -> anyhow::Result<()> {
    for row in rows {
        file.write_all(row.body.as_bytes())?;
        file.sync_data()?;
    }
    Ok(())
}

/// How many of the `count` steps of `work` were done per second.
fn rate(count: usize, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    work()?;
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}
