//! The CPU time of a server while many sessions stream.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::paced_provider::{Pace, Provider};
use crate::supr::Server;

/// How many sessions stream.
pub(super) const SESSIONS: usize = 50;

/// How many words per second each of them gets.
pub(super) const WORDS_PER_SECOND: u32 = 100;

/// How long all of them stream before the measurement, and how long the measurement takes.
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(10);

/// How many words each stream has: more than are needed, so that none ends during the measurement.
const WORDS: u32 = 20 * WORDS_PER_SECOND;

/// How many cores the server uses, and how many words per second reach the clients.
pub(super) fn measure(parlor: &Path) -> anyhow::Result<(f64, f64)> {
    let between = Duration::from_secs(1) / WORDS_PER_SECOND;
    let provider = Provider::start(Pace { before: Duration::from_millis(10), between, words: WORDS })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::with(parlor, crate::DATABASE_FOLDER, &provider.settings(), "")?;
        let mut clients = JoinSet::new();
        let begun = Instant::now() + WARM_UP;
        for number in 0..SESSIONS {
            let mut client = server.connect(&format!("?session_id=stream-{number}&stream=1")).await?;
            client.send_message("go on").await?;
            clients.spawn(async move {
                let mut words = 0;
                while begun.elapsed() < MEASURED {
                    let frame = client.frame().await?;
                    if Instant::now() >= begun {
                        words += frame.matches("word ").count();
                    }
                }
                anyhow::Ok(words)
            });
        }
        tokio::time::sleep_until(begun.into()).await;
        let (cpu_before, measured_from) = (server.cpu_seconds()?, Instant::now());
        tokio::time::sleep(MEASURED).await;
        let cores = (server.cpu_seconds()? - cpu_before) / measured_from.elapsed().as_secs_f64();
        let mut words = 0;
        while let Some(received) = clients.join_next().await {
            words += received??;
        }
        Ok((cores, words as f64 / MEASURED.as_secs_f64()))
    })
}
