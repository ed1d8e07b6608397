//! How fast the events of one session reach many connections.

use std::path::Path;
use std::time::Instant;

use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::Pair;
use super::peer::{Peer, Server};

/// How many connections watch.
pub(super) const WATCHERS: usize = 1000;

/// How often the agent thinks and speaks: each time makes some events.
const TURNS: usize = 60;

/// How often both are measured.
const ROUNDS: usize = 3;

/// Frames a second, in all connections together.
pub(super) async fn measure(parlor: &Path) -> anyhow::Result<Pair> {
    let steps =
        "{ think = \"a thought of some length, as thoughts are\" }, { say = \"and what is said of it\" }, ";
    let script = format!("[otherwise]\nsteps = [ {} ]\n", steps.repeat(TURNS));
    let (parlor, bare) = (Server::parlor(parlor, crate::PLACE, &script)?, Server::bare()?);
    let (mut best, mut best_bare) = (0.0_f64, 0.0_f64);
    for round in 0..ROUNDS {
        let (rate, frames) = of_parlor(&parlor, round).await?;
        best = best.max(rate);
        best_bare = best_bare.max(of_bare(&bare, &frames).await?);
    }
    Ok(Pair { parlor: best, bare: best_bare })
}

async fn of_parlor(server: &Server, round: usize) -> anyhow::Result<(f64, Vec<Utf8Bytes>)> {
    let source = format!("source-{round}");
    let mut watchers = Vec::new();
    for number in 0..WATCHERS {
        let to = format!("?session_id=watcher-{round}-{number}&watch={source}");
        let mut watcher = server.connect(&to).await?;
        watcher.frame().await?;
        watchers.push(watcher);
    }
    let mut speaker = server.connect(&format!("?session_id={source}")).await?;
    speaker.frame().await?;
    let begun = Instant::now();
    speaker.say("go").await?;
    let frames = all_hear(watchers, |frame| frame.contains("\"run.completed\"")).await?;
    Ok(((frames.len() * WATCHERS) as f64 / begun.elapsed().as_secs_f64(), frames))
}

async fn of_bare(server: &Server, frames: &[Utf8Bytes]) -> anyhow::Result<f64> {
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        watchers.push(server.connect("/hear").await?);
    }
    let mut speaker = server.connect("/say").await?;
    let begun = Instant::now();
    let said = async {
        for frame in frames {
            speaker.send(frame.clone()).await?;
        }
        anyhow::Ok(())
    };
    let last = frames.last().cloned().unwrap_or_default();
    let (said, heard) = tokio::join!(said, all_hear(watchers, move |frame| *frame == last));
    said?;
    Ok((heard?.len() * WATCHERS) as f64 / begun.elapsed().as_secs_f64())
}

/// Waits until all have heard the last frame; what one of them heard.
async fn all_hear(
    watchers: Vec<Peer>,
    is_last: impl Fn(&Utf8Bytes) -> bool + Clone + Send + 'static,
) -> anyhow::Result<Vec<Utf8Bytes>> {
    let mut tasks = JoinSet::new();
    for mut watcher in watchers {
        let is_last = is_last.clone();
        tasks.spawn(async move {
            let mut frames = Vec::new();
            loop {
                let frame = watcher.frame().await?;
                frames.push(frame);
                if frames.last().is_some_and(&is_last) {
                    return anyhow::Ok((watcher, frames));
                }
            }
        });
    }
    let (mut heard, mut still_open) = (Vec::new(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (watcher, frames) = done??;
        still_open.push(watcher);
        anyhow::ensure!(heard.is_empty() || heard == frames, "two did not hear the same");
        heard = frames;
    }
    Ok(heard)
}
