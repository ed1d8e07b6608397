//! The supr door in comparison with a bare WebSocket server that only echoes and broadcasts.
//!
//! Four figures: the memory of an idle connection, the memory after large messages, how fast the events of one session reach
//! a thousand connections, and how soon a message is answered by its first event while other connections get events.

mod bare_server;
mod broadcast;
mod idle;
mod large;
mod latency;
mod server;

use std::path::Path;

use self::large::Resident;
use self::latency::Latency;

use crate::stats::verdict;

pub(crate) use bare_server::serve as serve_bare;
pub(crate) use server::{Client, Server, raise_file_limit};

/// With this argument, the program is the bare server.
pub(crate) const BARE: &str = "bare-websocket";

// What the table holds its figures to.
const MAX_IDLE_KIB: f64 = 12.0;
const MAX_AFTER_LARGE_MIB: f64 = 64.0;
const MIN_BROADCAST_RATIO: f64 = 0.8;
const MAX_LATENCY_RATIO: f64 = 3.0;

/// All figures of one run.
pub(crate) struct Supr {
    /// The server's memory for each of many idle connections, in KiB.
    idle: f64,
    large: Resident,
    /// Frames per second that reach all watchers together.
    broadcast: [Pair; 2],
    latency: Latency,
}

/// A figure of parlor and of the bare server.
struct Pair {
    parlor: f64,
    bare: f64,
}

/// Measures `parlor serve` in new folders.
pub(crate) fn measure(parlor: &Path) -> anyhow::Result<Supr> {
    server::raise_file_limit()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        Ok(Supr {
            idle: idle::measure(parlor).await?,
            large: large::measure(parlor).await?,
            broadcast: broadcasts(parlor).await?,
            latency: latency::measure(parlor).await?,
        })
    })
}

/// Measures only the broadcasts, and returns their rows.
pub(crate) fn measure_broadcasts(parlor: &Path) -> anyhow::Result<String> {
    server::raise_file_limit()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(broadcast_rows(&runtime.block_on(broadcasts(parlor))?))
}

async fn broadcasts(parlor: &Path) -> anyhow::Result<[Pair; 2]> {
    let [few, many] = broadcast::WATCHERS;
    Ok([broadcast::measure(parlor, few).await?, broadcast::measure(parlor, many).await?])
}

fn broadcast_rows(broadcasts: &[Pair; 2]) -> String {
    let row = |(connections, Pair { parlor, bare }): (usize, &Pair)| {
        let ratio = parlor / bare;
        format!(
            "| one session's events to {connections} connections, beside a bare broadcast | {bare:.0}/s | {parlor:.0}/s | {ratio:.2} (at least {MIN_BROADCAST_RATIO:.2}: {}) |\n",
            verdict(ratio >= MIN_BROADCAST_RATIO),
        )
    };
    broadcast::WATCHERS.into_iter().zip(broadcasts).map(row).collect()
}

/// The figures as a Markdown table.
pub(crate) fn table(figures: &Supr) -> String {
    let Supr { idle, large, broadcast, latency } = figures;
    let broadcasts = broadcast_rows(broadcast);
    let latency_ratio = latency.in_memory / latency.bare;
    format!(
        "| supr door | limit | parlor | parlor : limit |\n\
         |---|---|---|---|\n\
         | memory of each of {} idle connections | {MAX_IDLE_KIB:.0} KiB | {idle:.1} KiB | {:.2} (at most 1.00: {}) |\n\
         | resident after {} clients have sent {} MiB each and stay; {:.1} MiB before | {MAX_AFTER_LARGE_MIB:.0} MiB | {:.1} MiB | {:.2} (at most 1.00: {}) |\n\
         {broadcasts}\
         | message to first event while {} others receive the events of a run, p99, beside a bare echo; log in memory | {:.2} ms | {:.2} ms | {latency_ratio:.2} (at most {MAX_LATENCY_RATIO:.2}: {}) |\n\
         | the same with the log on this disk, flushed before the event is sent | {:.2} ms | {:.2} ms | {:.2} |\n",
        idle::CONNECTIONS,
        idle / MAX_IDLE_KIB,
        verdict(*idle <= MAX_IDLE_KIB),
        large::MESSAGES,
        large::MESSAGE_MIB,
        large.before,
        large.after,
        large.after / MAX_AFTER_LARGE_MIB,
        verdict(large.after <= MAX_AFTER_LARGE_MIB),
        latency::WATCHERS,
        latency.bare * 1e3,
        latency.in_memory * 1e3,
        verdict(latency_ratio <= MAX_LATENCY_RATIO),
        latency.bare * 1e3,
        latency.on_disk * 1e3,
        latency.on_disk / latency.bare,
    )
}
