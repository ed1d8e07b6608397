//! Takes over the sessions of nodes that died, and of those that ended with work left.

use std::time::Duration;

use futures_util::StreamExt;
use parlor_vocab::{SessionId, SessionRefusal, WatchFrom};

use super::{Sessions, refusal_of};

/// How often a node should look for sessions that other nodes left behind.
pub const ORPHAN_INTERVAL: Duration = Duration::from_secs(2);

/// How many sessions are taken over at the same time.
const MAX_TAKEOVERS: usize = 8;

impl Sessions {
    /// Opens the sessions that their owners left with a run or with inputs that wait: the run is recorded as interrupted,
    /// and what waits starts. Returns the sessions that were opened, and fails only if none was. Call it every
    /// [`ORPHAN_INTERVAL`].
    pub async fn adopt_orphans(&self) -> Result<Vec<SessionId>, SessionRefusal> {
        self.check_not_shutting_down()?;
        let orphans = self.shared.deps.log.orphans().await.map_err(refusal_of)?;
        let adopted = futures_util::stream::iter(orphans)
            .map(async |session| (self.adopt(&session).await, session))
            .buffer_unordered(MAX_TAKEOVERS);
        let outcomes: Vec<(Result<bool, SessionRefusal>, SessionId)> = adopted.collect().await;
        // A session that cannot be read must not keep the others from being taken over.
        let (mut opened, mut failure) = (Vec::new(), None);
        for (outcome, session) in outcomes {
            match outcome {
                Ok(true) => opened.push(session),
                Ok(false) => {}
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if opened.is_empty() => Err(error),
            Some(_) | None => Ok(opened),
        }
    }

    /// Opens a session if it has work left. An error is temporary: the session is still an orphan then.
    async fn adopt(&self, session: &SessionId) -> Result<bool, SessionRefusal> {
        if !self.find_watch_start(session, &WatchFrom::Now).await?.is_unfinished {
            // Removes what is left of the last owner, unless somebody else was faster.
            if let Ok(lease) = self.shared.deps.log.acquire(session).await {
                self.shared.deps.log.release(lease).await.map_err(refusal_of)?;
            }
            return Ok(false);
        }
        // The connection to an owner that is paused still lasts.
        self.forget_peer(session).await;
        Ok(self.route(session).await.is_ok_and(|route| route.is_here()))
    }
}
