//! What a server computes while many sessions stream.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::paced::{Pace, Provider};
use crate::supr::Server;

/// How many sessions stream.
pub(super) const SESSIONS: usize = 50;

/// How many words each of them gets in a second.
pub(super) const WORDS_A_SECOND: u32 = 100;

/// How long all of them stream before it is measured, and for how long it is.
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(10);

/// More than are needed, so that none ends meanwhile.
const WORDS: u32 = 20 * WORDS_A_SECOND;

/// Cores that the server takes, and words a second that reach those who watch.
pub(super) fn measure(parlor: &Path) -> anyhow::Result<(f64, f64)> {
    let between = Duration::from_secs(1) / WORDS_A_SECOND;
    let provider = Provider::start(Pace { before: Duration::from_millis(10), between, words: WORDS })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::with(parlor, crate::PLACE, &provider.settings(), "")?;
        let mut watching = JoinSet::new();
        let begun = Instant::now() + WARM_UP;
        for number in 0..SESSIONS {
            let mut peer = server.connect(&format!("?session_id=crowd-{number}&stream=1")).await?;
            peer.say("go on").await?;
            watching.spawn(async move {
                let mut words = 0;
                while begun.elapsed() < MEASURED {
                    let frame = peer.frame().await?;
                    if Instant::now() >= begun {
                        words += frame.matches("word ").count();
                    }
                }
                anyhow::Ok(words)
            });
        }
        tokio::time::sleep_until(begun.into()).await;
        let (computed, clock) = (server.computed()?, Instant::now());
        tokio::time::sleep(MEASURED).await;
        let cores = (server.computed()? - computed) / clock.elapsed().as_secs_f64();
        let mut words = 0;
        while let Some(watched) = watching.join_next().await {
            words += watched??;
        }
        Ok((cores, words as f64 / MEASURED.as_secs_f64()))
    })
}
