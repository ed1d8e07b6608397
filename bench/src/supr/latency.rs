//! How soon a message is answered by its first event while the server sends the events of a run to other connections.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::server::{Client, Server};

/// How many connections get the events of a run meanwhile.
pub(super) const WATCHERS: usize = 200;

/// How many connections send messages, and how many each.
const SENDERS: u32 = 10;
const MESSAGES: u32 = 200;

/// The time between two messages of a sender, so that both servers have the same load. A sender waits longer if its last
/// message is not answered by then.
const PACE: Duration = Duration::from_millis(40);

/// How many steps the watched run has, so that it takes longer than the messages.
const STEPS: usize = 1000;

/// A file system in memory, where flushing costs nothing, so that only the door and the engine are measured.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Seconds from a message to its first event, at the 99th percentile.
pub(super) struct Latency {
    /// With the log in memory.
    pub(super) in_memory: f64,
    /// With the log on a disk, which is flushed before the event is sent.
    pub(super) on_disk: f64,
    /// An echo of the bare server.
    pub(super) bare: f64,
}

pub(super) async fn measure(parlor: &Path) -> anyhow::Result<Latency> {
    let steps =
        "{ think = \"a thought of some length\" }, { say = \"and what is said\" }, { wait_ms = 20 }, ";
    let script = format!(
        "[[on]]\nmatch = \"^go$\"\nsteps = [ {} ]\n[otherwise]\nsteps = [ {{ say = \"yes\" }} ]\n",
        steps.repeat(STEPS)
    );
    let (in_memory, load) = parlor_latency(&Server::parlor(parlor, MEMORY_FOLDER, &script)?).await?;
    let bare = bare_latency(&Server::bare()?, &load).await?;
    let (on_disk, _) = parlor_latency(&Server::parlor(parlor, crate::DATABASE_FOLDER, &script)?).await?;
    Ok(Latency { in_memory, on_disk, bare })
}

/// The frames that each watcher received, and when.
type Load = Vec<(Duration, Utf8Bytes)>;

async fn parlor_latency(server: &Server) -> anyhow::Result<(f64, Load)> {
    let mut watchers = JoinSet::new();
    for number in 0..WATCHERS {
        let mut watcher = server.connect(&format!("?session_id=watcher-{number}&watch=source")).await?;
        watcher.frame().await?;
        watchers.spawn(discard_frames(watcher));
    }
    let mut source = server.connect("?session_id=source").await?;
    source.frame().await?;
    source.send_message("go").await?;
    let load = Arc::default();
    let recording = tokio::spawn(record(source, Arc::clone(&load)));
    let mut senders = JoinSet::new();
    for number in 0..SENDERS {
        let mut sender = server.connect(&format!("?session_id=sender-{number}")).await?;
        sender.frame().await?;
        senders.spawn(async move {
            let mut times = Vec::new();
            let mut pace = pace(number);
            for _ in 0..MESSAGES {
                pace.tick().await;
                let begun = Instant::now();
                sender.send_message("hello").await?;
                sender.frame().await?;
                times.push(begun.elapsed());
                while !sender.frame().await?.contains("\"run.completed\"") {}
            }
            anyhow::Ok(times)
        });
    }
    let p99 = p99(senders).await?;
    recording.abort();
    let load = std::mem::take(&mut *load.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((p99, load))
}

/// Records the source's frames until the task is aborted.
async fn record(mut source: Client, load: Arc<Mutex<Load>>) {
    let begun = Instant::now();
    while let Ok(frame) = source.frame().await {
        load.lock().unwrap_or_else(PoisonError::into_inner).push((begun.elapsed(), frame));
    }
}

async fn discard_frames(mut watcher: Client) {
    while watcher.frame().await.is_ok() {}
}

/// Measures echoes while the bare server broadcasts the same load, which is repeated until all echoes have arrived.
async fn bare_latency(server: &Server, load: &Load) -> anyhow::Result<f64> {
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        watchers.spawn(discard_frames(server.connect("/receive").await?));
    }
    let mut source = server.connect("/send").await?;
    let load = load.clone();
    let broadcast: JoinHandle<anyhow::Result<()>> = tokio::spawn(async move {
        loop {
            let round = tokio::time::Instant::now();
            for (at, frame) in &load {
                tokio::time::sleep_until(round + *at).await;
                source.send(frame.clone()).await?;
            }
        }
    });
    let mut senders = JoinSet::new();
    for number in 0..SENDERS {
        let mut sender = server.connect("/echo").await?;
        senders.spawn(async move {
            let mut times = Vec::new();
            let mut pace = pace(number);
            for _ in 0..MESSAGES {
                pace.tick().await;
                let begun = Instant::now();
                sender.send_message("hello").await?;
                sender.frame().await?;
                times.push(begun.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    let p99 = p99(senders).await;
    broadcast.abort();
    p99
}

/// When a sender sends its messages. The first messages of the senders are spread over one interval.
fn pace(number: u32) -> Interval {
    let mut pace = interval_at(tokio::time::Instant::now() + PACE * number / SENDERS, PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

async fn p99(mut senders: JoinSet<anyhow::Result<Vec<Duration>>>) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    while let Some(done) = senders.join_next().await {
        times.extend(done??);
    }
    times.sort_unstable();
    Ok(times[times.len() * 99 / 100].as_secs_f64())
}
