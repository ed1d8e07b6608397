//! Durable appends per second, and the processor time that they take.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use parlor_log::postgres::test_server::TestServer;
use parlor_log::{EventLog, PostgresLog, PostgresOptions, SqliteLog, SystemClock};
use parlor_vocab::NewEntry;
use rustix::time::{ClockId, clock_gettime};

use super::bare;
use crate::log::{APPENDERS, Row, answer, append_events, open_sessions, stored};
use crate::stats::{Spread, median};

/// How many rounds there are.
const ROUNDS: usize = 15;

/// How many events each session appends in a round, for each number of sessions in [`APPENDERS`].
const EVENTS: [u64; 3] = [120, 60, 40];

/// The figures for each number of sessions in [`APPENDERS`].
pub(super) struct PostgresAppends {
    pub(super) rows: Vec<AppendFigures>,
}

/// Events per second are the medians of all rounds; ratios are those of figures of the same round.
pub(super) struct AppendFigures {
    pub(super) connections: f64,
    pub(super) grouped: f64,
    pub(super) parlor: f64,
    pub(super) to_connections: Spread,
    pub(super) to_grouped: Spread,
    pub(super) sqlite_micros: f64,
    pub(super) postgres_micros: f64,
    pub(super) processor: Spread,
}

/// The figures of one kind of all rounds.
#[derive(Default)]
struct Rounds {
    connections: Vec<f64>,
    grouped: Vec<f64>,
    parlor: Vec<f64>,
    sqlite_micros: Vec<f64>,
    postgres_micros: Vec<f64>,
}

pub(super) async fn measure(server: &TestServer, folder: &Path) -> anyhow::Result<PostgresAppends> {
    let database = server.new_database().await;
    let options = PostgresOptions::new(server.url(&database), "bench");
    let log: Arc<dyn EventLog> = Arc::new(PostgresLog::open(options, Arc::new(SystemClock)).await?);
    let sqlite: Arc<dyn EventLog> = Arc::new(SqliteLog::open(folder, Arc::new(SystemClock))?);
    let most = APPENDERS.into_iter().max().unwrap_or(1);
    let mut sessions = open_sessions(&*log, most).await?;
    let mut sqlite_sessions = open_sessions(&*sqlite, most).await?;
    let mut clients = Vec::new();
    for _ in 0..most {
        clients.push(server.client(&database).await);
    }
    let mut bare_sessions = bare::sessions(clients).await?;
    let mut bare_group = bare::group(server.client(&database).await).await?;
    let mut rounds = APPENDERS.map(|_| Rounds::default());
    for _ in 0..ROUNDS {
        for ((count, events), figures) in APPENDERS.into_iter().zip(EVENTS).zip(&mut rounds) {
            let new: Arc<[NewEntry]> = (0..events).map(answer).collect();
            let rows: Arc<[Row]> = stored(&folder.join("parlor.db"), new.len())?.into();
            let total = (count * rows.len()) as f64;
            let begun = Instant::now();
            bare::write_each(&mut bare_sessions, count, &rows).await?;
            figures.connections.push(total / begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            bare_group.write(count, &rows).await?;
            figures.grouped.push(total / begun.elapsed().as_secs_f64());
            let (begun, before) = (Instant::now(), processor_micros());
            append_events(&log, &mut sessions, count, Arc::clone(&new)).await?;
            figures.parlor.push(total / begun.elapsed().as_secs_f64());
            figures.postgres_micros.push((processor_micros() - before) / total);
            let before = processor_micros();
            append_events(&sqlite, &mut sqlite_sessions, count, new).await?;
            figures.sqlite_micros.push((processor_micros() - before) / total);
        }
    }
    drop((sessions, sqlite_sessions));
    log.close().await;
    Ok(PostgresAppends { rows: rounds.into_iter().map(AppendFigures::of).collect() })
}

impl AppendFigures {
    fn of(rounds: Rounds) -> Self {
        let Rounds { connections, grouped, parlor, sqlite_micros, postgres_micros } = rounds;
        let ratios = |left: &[f64], right: &[f64]| {
            Spread::of(left.iter().zip(right).map(|(left, right)| left / right).collect())
        };
        Self {
            to_connections: ratios(&parlor, &connections),
            to_grouped: ratios(&parlor, &grouped),
            processor: ratios(&postgres_micros, &sqlite_micros),
            connections: median(connections),
            grouped: median(grouped),
            parlor: median(parlor),
            sqlite_micros: median(sqlite_micros),
            postgres_micros: median(postgres_micros),
        }
    }
}

/// The processor time of all threads of this process. The server is another process.
fn processor_micros() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
