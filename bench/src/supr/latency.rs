//! How soon a message is answered by its first event while the server has others to tell of a run.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::peer::{Peer, Server};

/// How many connections are told of a run that goes on.
pub(super) const WATCHERS: usize = 200;

/// How many connections say something, and how many messages each.
const SPEAKERS: u32 = 10;
const MESSAGES: u32 = 200;

/// How long after its last message each says the next: both servers have the same to do, at the same pace, for the
/// same time. One that is not done by then is waited for.
const PACE: Duration = Duration::from_millis(40);

/// How long the run goes on: longer than the messages take.
const STEPS: usize = 1000;

/// A file system in memory, where flushing costs nothing: what is left is the door and the engine.
const MEMORY: &str = "/dev/shm";

/// Seconds from a message to its first event, at the 99th percentile.
pub(super) struct Latency {
    /// With the log in memory, and on a disk that is flushed before the event is told.
    pub(super) in_memory: f64,
    pub(super) on_disk: f64,
    /// An echo.
    pub(super) bare: f64,
}

pub(super) async fn measure(parlor: &Path) -> anyhow::Result<Latency> {
    let steps =
        "{ think = \"a thought of some length\" }, { say = \"and what is said\" }, { wait_ms = 20 }, ";
    let script = format!(
        "[[on]]\nmatch = \"^go$\"\nsteps = [ {} ]\n[otherwise]\nsteps = [ {{ say = \"yes\" }} ]\n",
        steps.repeat(STEPS)
    );
    let (in_memory, load) = of_parlor(&Server::parlor(parlor, MEMORY, &script)?).await?;
    let bare = of_bare(&Server::bare()?, &load).await?;
    let (on_disk, _) = of_parlor(&Server::parlor(parlor, crate::PLACE, &script)?).await?;
    Ok(Latency { in_memory, on_disk, bare })
}

/// What the others were told, and when.
type Load = Vec<(Duration, Utf8Bytes)>;

async fn of_parlor(server: &Server) -> anyhow::Result<(f64, Load)> {
    let mut listeners = JoinSet::new();
    for number in 0..WATCHERS {
        let mut watcher = server.connect(&format!("?session_id=watcher-{number}&watch=source")).await?;
        watcher.frame().await?;
        listeners.spawn(listen(watcher));
    }
    let mut source = server.connect("?session_id=source").await?;
    source.frame().await?;
    source.say("go").await?;
    let load = Arc::default();
    let recording = tokio::spawn(record(source, Arc::clone(&load)));
    let mut speakers = JoinSet::new();
    for number in 0..SPEAKERS {
        let mut speaker = server.connect(&format!("?session_id=speaker-{number}")).await?;
        speaker.frame().await?;
        speakers.spawn(async move {
            let mut times = Vec::new();
            let mut pace = pace(number);
            for _ in 0..MESSAGES {
                pace.tick().await;
                let begun = Instant::now();
                speaker.say("hello").await?;
                speaker.frame().await?;
                times.push(begun.elapsed());
                while !speaker.frame().await?.contains("\"run.completed\"") {}
            }
            anyhow::Ok(times)
        });
    }
    let p99 = p99(speakers).await?;
    recording.abort();
    let load = std::mem::take(&mut *load.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((p99, load))
}

/// Until it is ended from outside.
async fn record(mut source: Peer, load: Arc<Mutex<Load>>) {
    let begun = Instant::now();
    while let Ok(frame) = source.frame().await {
        load.lock().unwrap_or_else(PoisonError::into_inner).push((begun.elapsed(), frame));
    }
}

async fn listen(mut watcher: Peer) {
    while watcher.frame().await.is_ok() {}
}

/// The same load, again and again until all echoes are there.
async fn of_bare(server: &Server, load: &Load) -> anyhow::Result<f64> {
    let mut listeners = JoinSet::new();
    for _ in 0..WATCHERS {
        listeners.spawn(listen(server.connect("/hear").await?));
    }
    let mut source = server.connect("/say").await?;
    let load = load.clone();
    let says: JoinHandle<anyhow::Result<()>> = tokio::spawn(async move {
        loop {
            let round = tokio::time::Instant::now();
            for (at, frame) in &load {
                tokio::time::sleep_until(round + *at).await;
                source.send(frame.clone()).await?;
            }
        }
    });
    let mut speakers = JoinSet::new();
    for number in 0..SPEAKERS {
        let mut speaker = server.connect("/echo").await?;
        speakers.spawn(async move {
            let mut times = Vec::new();
            let mut pace = pace(number);
            for _ in 0..MESSAGES {
                pace.tick().await;
                let begun = Instant::now();
                speaker.say("hello").await?;
                speaker.frame().await?;
                times.push(begun.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    let p99 = p99(speakers).await;
    says.abort();
    p99
}

/// When a speaker says something. They begin one after another.
fn pace(number: u32) -> Interval {
    let mut pace = interval_at(tokio::time::Instant::now() + PACE * number / SPEAKERS, PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

async fn p99(mut speakers: JoinSet<anyhow::Result<Vec<Duration>>>) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    while let Some(done) = speakers.join_next().await {
        times.extend(done??);
    }
    times.sort_unstable();
    Ok(times[times.len() * 99 / 100].as_secs_f64())
}
