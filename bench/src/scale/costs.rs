//! Measures what the model is fed with.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use parlor_log::postgres::test_server::TestServer;
use parlor_log::{EventLog, PostgresLog, PostgresOptions, SystemClock};
use parlor_vocab::NewEntry;
use rustix::time::{ClockId, clock_gettime};

use crate::log::{answer, append_events, open_sessions};
use crate::stats::median;

/// How many sessions share commits.
const SESSIONS: usize = 64;

/// How many events each of them appends in a round, and one session alone.
const GROUPED_EVENTS: u64 = 60;
const SINGLE_EVENTS: u64 = 1500;

/// How many rounds there are.
const ROUNDS: usize = 7;

/// How many further nodes listen.
const LISTENERS: usize = 200;

/// How many idle nodes there are, and how long they are observed.
const IDLE_NODES: usize = 20;
const IDLE_TIME: Duration = Duration::from_secs(10);

/// Processor time in microseconds is that of the database, unless the name says otherwise.
pub(super) struct Costs {
    pub(super) grouped_micros: f64,
    pub(super) single_micros: f64,
    /// For each node that listens, and each commit.
    pub(super) listener_micros: f64,
    /// For each idle node and second.
    pub(super) idle_micros: f64,
    /// Of the node.
    pub(super) node_micros: f64,
    pub(super) wal_bytes: f64,
    pub(super) connection_mib: f64,
}

pub(super) fn measure(parent: &Path) -> anyhow::Result<Costs> {
    std::fs::create_dir_all(parent)?;
    let server = TestServer::start("shared_buffers = '256MB'\nmax_connections = 600\nautovacuum = off");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure_on(&server))
}

async fn open(server: &TestServer, database: &str, node: &str) -> anyhow::Result<Arc<PostgresLog>> {
    let options = PostgresOptions::new(server.url(database), node);
    Ok(Arc::new(PostgresLog::open(options, Arc::new(SystemClock)).await?))
}

async fn measure_on(server: &TestServer) -> anyhow::Result<Costs> {
    let database = server.new_database().await;
    let log: Arc<dyn EventLog> = open(server, &database, "bench").await?;
    let observer = server.client(&database).await;
    let mut sessions = open_sessions(&*log, SESSIONS).await?;
    let events = |count: u64| (0..count).map(answer).collect::<Arc<[NewEntry]>>();
    let position = async || {
        let row = observer.query_one("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8", &[]).await?;
        anyhow::Ok(row.try_get::<_, f64>(0)?)
    };
    let total = (SESSIONS as u64 * GROUPED_EVENTS) as f64;
    let (mut grouped, mut node, mut wal) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (database_before, own_before, wal_before) =
            (server_micros(server)?, own_micros(), position().await?);
        append_events(&log, &mut sessions, SESSIONS, events(GROUPED_EVENTS)).await?;
        grouped.push((server_micros(server)? - database_before) / total);
        node.push((own_micros() - own_before) / total);
        wal.push((position().await? - wal_before) / total);
    }
    let mut single = Vec::new();
    for _ in 0..ROUNDS {
        let before = server_micros(server)?;
        append_events(&log, &mut sessions, 1, events(SINGLE_EVENTS)).await?;
        single.push((server_micros(server)? - before) / SINGLE_EVENTS as f64);
    }
    let channel: String = observer.query_one(LISTENED_CHANNEL, &[]).await?.try_get(0)?;
    let mut listeners = Vec::new();
    for _ in 0..LISTENERS {
        let listener = server.client(&database).await;
        listener.batch_execute(&channel).await?;
        listeners.push(listener);
    }
    let mut heard = Vec::new();
    for _ in 0..ROUNDS {
        let before = server_micros(server)?;
        append_events(&log, &mut sessions, 1, events(SINGLE_EVENTS / 3)).await?;
        heard.push((server_micros(server)? - before) / (SINGLE_EVENTS / 3) as f64);
    }
    let single = median(single);
    let listener_micros = ((median(heard) - single) / LISTENERS as f64).max(0.0);
    drop((listeners, sessions));
    log.close().await;
    let (idle_micros, connection_mib) = idle_nodes(server).await?;
    Ok(Costs {
        grouped_micros: median(grouped),
        single_micros: single,
        listener_micros,
        idle_micros,
        node_micros: median(node),
        wal_bytes: median(wal),
        connection_mib,
    })
}

/// The statement by which the log listens.
const LISTENED_CHANNEL: &str = "SELECT query FROM pg_stat_activity WHERE query LIKE 'LISTEN %' LIMIT 1";

/// The processor time of the database for each idle node and second, and the memory of each connection.
async fn idle_nodes(server: &TestServer) -> anyhow::Result<(f64, f64)> {
    let database = server.new_database().await;
    let mut logs = Vec::new();
    for number in 0..IDLE_NODES {
        logs.push(open(server, &database, &format!("idle {number}")).await?);
    }
    let (before, begun) = (server_micros(server)?, Instant::now());
    while begun.elapsed() < IDLE_TIME {
        tokio::time::sleep(Duration::from_secs(2)).await;
        for log in &logs {
            log.orphans().await?;
        }
    }
    let micros = (server_micros(server)? - before) / begun.elapsed().as_secs_f64() / IDLE_NODES as f64;
    let backends = processes(server)?;
    let memory: Vec<f64> = backends.iter().skip(1).filter_map(|pid| private_kib(*pid)).collect();
    for log in logs {
        log.close().await;
    }
    Ok((micros, median(memory) / 1024.0))
}

/// The memory of a process that is its own, in KiB.
fn private_kib(pid: u32) -> Option<f64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let number = |name: &str| -> Option<f64> {
        rollup.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some(number("Private_Clean:")? + number("Private_Dirty:")?)
}

/// The first process of the server, and its children.
fn processes(server: &TestServer) -> anyhow::Result<Vec<u32>> {
    let file = std::fs::read_to_string(server.folder().join("data/postmaster.pid"))?;
    let first: u32 = file.lines().next().context("postmaster.pid is empty")?.parse()?;
    let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children"))?;
    let children = children.split_whitespace().map(str::parse);
    Ok(std::iter::once(Ok(first)).chain(children).collect::<Result<_, _>>()?)
}

/// The processor time of all processes of the server so far. Those that have ended are counted with the first one.
fn server_micros(server: &TestServer) -> anyhow::Result<f64> {
    let mut ticks = 0.0;
    for (number, pid) in processes(server)?.into_iter().enumerate() {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let after_name = stat.rsplit_once(')').context("/proc/PID/stat has no name")?.1;
        // `utime` and `stime`, and for the first process those of its children that have ended.
        let count = if number == 0 { 4 } else { 2 };
        for field in after_name.split_whitespace().skip(11).take(count) {
            ticks += field.parse::<f64>()?;
        }
    }
    Ok(ticks * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}

/// The processor time of this process.
fn own_micros() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
