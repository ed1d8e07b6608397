//! The work of a node beside its clients: it takes over the sessions of nodes that are gone, and follows the token that all
//! nodes share.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parlor_engine::{ORPHAN_INTERVAL, Sessions};
use parlor_log::PostgresLog;
use parlor_web::TokenStore;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::database_token::{self, TOKEN_INTERVAL};
use crate::event_log::OpenLog;

/// Starts that work, if the log is one that nodes share. It ends with `sessions`.
pub(super) async fn start(
    log: &OpenLog,
    sessions: &Arc<Sessions>,
    tokens: &Arc<TokenStore>,
) -> anyhow::Result<()> {
    let OpenLog::Postgres(log) = log else { return Ok(()) };
    tokio::spawn(adopt_orphans(Arc::downgrade(sessions)));
    if let Some(seen) = database_token::share(log, tokens).await? {
        tokio::spawn(follow_token(Arc::downgrade(log), Arc::clone(tokens), seen));
    }
    Ok(())
}

async fn adopt_orphans(sessions: Weak<Sessions>) {
    let mut ticks = ticks(ORPHAN_INTERVAL);
    loop {
        ticks.tick().await;
        let Some(sessions) = sessions.upgrade() else { return };
        match sessions.adopt_orphans().await {
            Ok(adopted) => {
                for session in adopted {
                    tracing::info!(%session, "took over a session whose node is gone");
                }
            }
            // The database is away, or this node ends. The next round tries again.
            Err(error) => tracing::debug!(%error, "cannot look for sessions without a node"),
        }
    }
}

async fn follow_token(log: Weak<PostgresLog>, tokens: Arc<TokenStore>, mut seen: Vec<u8>) {
    let mut ticks = ticks(TOKEN_INTERVAL);
    loop {
        ticks.tick().await;
        let Some(log) = log.upgrade() else { return };
        if let Err(error) = database_token::refresh(&log, &tokens, &mut seen).await {
            tracing::debug!(%error, "cannot look for a new token");
        }
    }
}

/// Ticks that are late do not follow each other at once.
fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
