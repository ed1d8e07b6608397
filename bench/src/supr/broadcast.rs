//! How fast the events of one session reach many connections.

use std::path::Path;
use std::time::Instant;

use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::Pair;
use super::server::{Client, Server};

/// How many connections watch the session, in the two figures.
pub(crate) const WATCHERS: [usize; 2] = [1000, 5000];

/// How often the agent's script thinks and speaks. Each time makes several events.
const STEPS: usize = 60;

/// How many rounds there are.
const ROUNDS: usize = 3;

/// Frames per second in all of `count` connections together, the best round.
pub(super) async fn measure(parlor: &Path, count: usize) -> anyhow::Result<Pair> {
    let steps =
        "{ think = \"a thought of some length, as thoughts are\" }, { say = \"and what is said of it\" }, ";
    let script = format!("[otherwise]\nsteps = [ {} ]\n", steps.repeat(STEPS));
    let (parlor, bare) = (Server::parlor(parlor, crate::DATABASE_FOLDER, &script)?, Server::bare()?);
    let (mut best, mut best_bare) = (0.0_f64, 0.0_f64);
    for round in 0..ROUNDS {
        let (rate, frames) = parlor_rate(&parlor, round, count).await?;
        best = best.max(rate);
        best_bare = best_bare.max(bare_rate(&bare, &frames, count).await?);
    }
    Ok(Pair { parlor: best, bare: best_bare })
}

/// The rate of parlor, and the frames that each watcher received.
async fn parlor_rate(server: &Server, round: usize, count: usize) -> anyhow::Result<(f64, Vec<Utf8Bytes>)> {
    let source = format!("source-{round}");
    let mut watchers = Vec::new();
    for number in 0..count {
        let query = format!("?session_id=watcher-{round}-{number}&watch={source}");
        let mut watcher = server.connect(&query).await?;
        watcher.frame().await?;
        watchers.push(watcher);
    }
    let mut sender = server.connect(&format!("?session_id={source}")).await?;
    sender.frame().await?;
    let begun = Instant::now();
    sender.send_message("go").await?;
    let frames = receive_all(watchers, |frame| frame.contains("\"run.completed\"")).await?;
    Ok(((frames.len() * count) as f64 / begun.elapsed().as_secs_f64(), frames))
}

/// The rate of the bare server with the same frames.
async fn bare_rate(server: &Server, frames: &[Utf8Bytes], count: usize) -> anyhow::Result<f64> {
    let mut watchers = Vec::new();
    for _ in 0..count {
        watchers.push(server.connect("/receive").await?);
    }
    let mut sender = server.connect("/send").await?;
    let begun = Instant::now();
    let sending = async {
        for frame in frames {
            sender.send(frame.clone()).await?;
        }
        anyhow::Ok(())
    };
    let last = frames.last().cloned().unwrap_or_default();
    let (sent, received) = tokio::join!(sending, receive_all(watchers, move |frame| *frame == last));
    sent?;
    Ok((received?.len() * count) as f64 / begun.elapsed().as_secs_f64())
}

/// Waits until all watchers have received the last frame, and returns the frames of one of them.
async fn receive_all(
    watchers: Vec<Client>,
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
    let (mut received, mut still_open) = (Vec::new(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (watcher, frames) = done??;
        still_open.push(watcher);
        anyhow::ensure!(received.is_empty() || received == frames, "two watchers received different frames");
        received = frames;
    }
    Ok(received)
}
