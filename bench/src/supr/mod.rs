//! The supr door beside the least that could be there: a WebSocket server that echoes and broadcasts.
//!
//! Four questions: what an idle connection costs, what is left of large messages, how fast the events of one session reach a thousand
//! connections, and how soon a message is answered by its first event while that goes on.

mod bare;
mod broadcast;
mod idle;
mod large;
mod latency;
mod peer;

use std::path::Path;

use self::large::Resident;
use self::latency::Latency;

pub(crate) use bare::serve as bare;
pub(crate) use peer::Server;

/// The argument under which this program is the bare server.
pub(crate) const BARE: &str = "bare-websocket";

/// What the door is held to.
const MOST_IDLE_KIB: f64 = 12.0;
const MOST_AFTER_LARGE_MIB: f64 = 64.0;
const LEAST_BROADCAST: f64 = 0.5;
const MOST_LATENCY: f64 = 3.0;

/// What was measured.
pub(crate) struct Supr {
    /// KiB in the server for each of many idle connections.
    idle: f64,
    large: Resident,
    /// Frames a second that reach all who watch.
    broadcast: Pair,
    latency: Latency,
}

struct Pair {
    parlor: f64,
    bare: f64,
}

/// Measures `parlor serve` in new folders.
pub(crate) fn measure(parlor: &Path) -> anyhow::Result<Supr> {
    peer::raise_limit()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        Ok(Supr {
            idle: idle::measure(parlor).await?,
            large: large::measure(parlor).await?,
            broadcast: broadcast::measure(parlor).await?,
            latency: latency::measure(parlor).await?,
        })
    })
}

/// The figures as a Markdown table.
pub(crate) fn table(figures: &Supr) -> String {
    let Supr { idle, large, broadcast, latency } = figures;
    let verdict = |is_held: bool| if is_held { "held" } else { "**missed**" };
    let (sent, waited) = (broadcast.parlor / broadcast.bare, latency.in_memory / latency.bare);
    format!(
        "| supr door | limit | parlor | parlor : limit |\n\
         |---|---|---|---|\n\
         | memory of each of {} idle connections | {MOST_IDLE_KIB:.0} KiB | {idle:.1} KiB | {:.2} (at most 1.00: {}) |\n\
         | resident after {} clients have said {} MiB each and stay; {:.1} MiB before | {MOST_AFTER_LARGE_MIB:.0} MiB | {:.1} MiB | {:.2} (at most 1.00: {}) |\n\
         | one session's events to {} connections, beside a bare broadcast | {:.0}/s | {:.0}/s | {sent:.2} (at least {LEAST_BROADCAST:.2}: {}) |\n\
         | message to first event while {} others are told of a run, p99, beside a bare echo; log in memory | {:.2} ms | {:.2} ms | {waited:.2} (at most {MOST_LATENCY:.2}: {}) |\n\
         | the same with the log on this disk, flushed before the event is told | {:.2} ms | {:.2} ms | {:.2} |\n",
        idle::CONNECTIONS,
        idle / MOST_IDLE_KIB,
        verdict(*idle <= MOST_IDLE_KIB),
        large::MESSAGES,
        large::MESSAGE_MIB,
        large.before,
        large.after,
        large.after / MOST_AFTER_LARGE_MIB,
        verdict(large.after <= MOST_AFTER_LARGE_MIB),
        broadcast::WATCHERS,
        broadcast.bare,
        broadcast.parlor,
        verdict(sent >= LEAST_BROADCAST),
        latency::WATCHERS,
        latency.bare * 1e3,
        latency.in_memory * 1e3,
        verdict(waited <= MOST_LATENCY),
        latency.bare * 1e3,
        latency.on_disk * 1e3,
        latency.on_disk / latency.bare,
    )
}
