//! Replay: reading a long session from its first event to its last.

use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use parlor_log::postgres::{READ_EVENTS, test_server::TestServer};
use parlor_log::{EventLog, PostgresLog, PostgresOptions, SystemClock};
use parlor_vocab::{Seq, SessionId};

use super::bare;
use crate::log::answer;
use crate::stats::median;

/// How many events are read.
pub(super) const EVENTS: usize = 100_000;

/// How many events the engine reads at a time when it opens a session.
const PAGE: usize = 16 * 1024;

/// How many rounds there are.
const ROUNDS: usize = 9;

/// Events per second, the medians of all rounds.
pub(super) struct PostgresReplay {
    pub(super) bare: f64,
    pub(super) parlor: f64,
}

pub(super) async fn measure(server: &TestServer) -> anyhow::Result<PostgresReplay> {
    let database = server.new_database().await;
    let options = PostgresOptions::new(server.url(&database), "bench");
    let log = PostgresLog::open(options, Arc::new(SystemClock)).await?;
    let session = SessionId::parse("long")?;
    fill(&log, &session).await?;
    server.execute(&database, "VACUUM ANALYZE").await;
    let client = server.client(&database).await;
    let (mut scans, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let count = bare::scan(&client, session.as_str(), i64::try_from(READ_EVENTS)?).await?;
        scans.push(EVENTS as f64 / begun.elapsed().as_secs_f64());
        ensure!(count == EVENTS, "{count} rows were found, not {EVENTS}");
        let begun = Instant::now();
        let (mut cursor, mut count) = (Seq::START, 0);
        loop {
            let entries = log.read(&session, cursor, PAGE).await?;
            let Some(last) = entries.last() else { break };
            (cursor, count) = (last.seq, count + entries.len());
        }
        reads.push(EVENTS as f64 / begun.elapsed().as_secs_f64());
        ensure!(count == EVENTS, "{count} events were read, not {EVENTS}");
    }
    log.close().await;
    Ok(PostgresReplay { bare: median(scans), parlor: median(reads) })
}

async fn fill(log: &PostgresLog, session: &SessionId) -> anyhow::Result<()> {
    let lease = log.acquire(session).await?;
    let mut head = Seq::START;
    while head.0 < EVENTS as u64 {
        let end = (head.0 + 10_000).min(EVENTS as u64);
        let new: Vec<_> = (head.0..end).map(answer).collect();
        head = log.append(&lease, head, &new).await?;
    }
    Ok(log.release(lease).await?)
}
