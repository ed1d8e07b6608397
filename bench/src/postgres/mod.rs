//! The log in PostgreSQL in comparison with bare `tokio-postgres` and with the log in SQLite.
//!
//! Bare `tokio-postgres` inserts the same rows into a table with the same columns, and nothing else: no lease, no record, no
//! notification. It does so in two ways: with a connection for each session, and with one connection and one statement for
//! one row of each session, which is the most that a group commit can reach. Each round measures all of them one after
//! another.

mod append;
mod bare;
mod nodes;
mod replay;

use std::path::Path;

use parlor_log::postgres::test_server::TestServer;

use crate::log::APPENDERS;
use crate::stats::{Spread, verdict};

/// The bound for appends and replay, as a part of what bare `tokio-postgres` reaches.
const MIN_RATIO: f64 = 0.6;

/// The bound for the processor time of a node for each event, as a multiple of that with SQLite.
const MAX_PROCESSOR_RATIO: f64 = 2.0;

/// All figures of one run.
pub(crate) struct PostgresFigures {
    appends: append::PostgresAppends,
    replay: replay::PostgresReplay,
    nodes: nodes::NodeFigures,
}

/// The bound for the processor time of three nodes, as a multiple of that of one node with the same sessions.
const MAX_NODES_RATIO: f64 = 1.3;

/// Measures with a server of its own. The log in SQLite is in a new folder below `parent`.
pub(crate) fn measure(parlor: &Path, parent: &Path) -> anyhow::Result<PostgresFigures> {
    std::fs::create_dir_all(parent)?;
    let folder = tempfile::tempdir_in(parent)?;
    let server = TestServer::start("shared_buffers = '256MB'");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        Ok(PostgresFigures {
            appends: append::measure(&server, folder.path()).await?,
            replay: replay::measure(&server).await?,
            nodes: nodes::measure(&server, parlor).await?,
        })
    })
}

/// The figures as a Markdown table, each with its bound.
pub(crate) fn table(figures: &PostgresFigures) -> String {
    let PostgresFigures { appends, replay, nodes } = figures;
    let mut table =
        "| log in PostgreSQL | bare, a connection for each session | bare, one statement for all | parlor | \
                     parlor : connections | parlor : one statement |\n|---|---|---|---|---|---|\n"
            .to_owned();
    let ratio = |spread: &Spread| {
        let Spread { least, median, most } = spread;
        let verdict = verdict(*median >= MIN_RATIO);
        format!("{median:.2} (rounds {least:.2} to {most:.2}; at least {MIN_RATIO}: {verdict})")
    };
    for (sessions, row) in APPENDERS.into_iter().zip(&appends.rows) {
        table += &format!(
            "| durable appends with {sessions} sessions | {:.0}/s | {:.0}/s | {:.0}/s | {} | {} |\n",
            row.connections,
            row.grouped,
            row.parlor,
            ratio(&row.to_connections),
            ratio(&row.to_grouped)
        );
    }
    let replayed = replay.parlor / replay.bare;
    table += &format!(
        "| replay of {} events | {:.0}/s | - | {:.0}/s | {replayed:.2} (at least {MIN_RATIO}: {}) | - |\n",
        replay::EVENTS,
        replay.bare,
        replay.parlor,
        verdict(replayed >= MIN_RATIO)
    );
    table += "\n| processor time of a node for an event | SQLite | PostgreSQL | PostgreSQL : SQLite |\n|---|---|---|---|\n";
    for (sessions, row) in APPENDERS.into_iter().zip(&appends.rows) {
        let Spread { least, median, most } = &row.processor;
        table += &format!(
            "| {sessions} sessions | {:.1} µs | {:.1} µs | {median:.2} (rounds {least:.2} to {most:.2}; at most \
             {MAX_PROCESSOR_RATIO}: {}) |\n",
            row.sqlite_micros,
            row.postgres_micros,
            verdict(*median <= MAX_PROCESSOR_RATIO)
        );
    }
    let Spread { least, median, most } = &nodes.ratio;
    table += &format!(
        "\n| processor time of all nodes for a message | one node | three nodes | three : one |\n|---|---|---|---|\n\
         | {} busy sessions, their clients spread over the nodes | {:.0} µs | {:.0} µs | {median:.2} (rounds {least:.2} to \
         {most:.2}; at most {MAX_NODES_RATIO}: {}) |\n",
        nodes::SESSIONS,
        nodes.one,
        nodes.three,
        verdict(*median <= MAX_NODES_RATIO)
    );
    table
}
