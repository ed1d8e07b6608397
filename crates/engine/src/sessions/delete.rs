//! Deletes sessions, also those that another process has open.

use parlor_log::{Erased, LeaseHolder, LogError};
use parlor_vocab::{Seq, SessionId, SessionRefusal};
use tokio::time::timeout;

use super::peers::PeerError;
use super::routing::{OWNER_WAIT, held, silent};
use super::{Reach, SessionDeps, Sessions, refusal_of};

impl Sessions {
    /// Deletes a session with all its events, and the files that only its messages refer to. Refused while the
    /// session is busy, or open in a process that cannot be reached.
    ///
    /// Returns whether the deleted text is overwritten in the log's files by now.
    pub async fn delete(&self, id: &SessionId) -> Result<Erased, SessionRefusal> {
        self.delete_within(id, Reach::AllProcesses).await
    }

    /// Like [`delete`](Self::delete). Refused if the session is open beyond `reach`.
    pub(super) async fn delete_within(&self, id: &SessionId, reach: Reach) -> Result<Erased, SessionRefusal> {
        let SessionDeps { log, media, .. } = &*self.shared.deps;
        let before = log.referenced_media().await.map_err(refusal_of)?;
        let last_used = log.session(id).await.map_err(refusal_of)?.updated;
        self.delete_events(id, reach).await?;
        if !before.is_empty() {
            let after = log.referenced_media().await.map_err(refusal_of)?;
            let unreferenced = before.difference(&after).cloned().collect();
            // If this fails, the next collection removes the files.
            let _ = media.remove(unreferenced, last_used).await;
        }
        // The session is deleted in any case; if overwriting fails now, it happens later.
        Ok(log.erase().await.unwrap_or(Erased::Later))
    }

    /// Deletes a session's events from the log. Its media files stay, and its text may still be in the log's files.
    pub(super) async fn delete_events(&self, id: &SessionId, reach: Reach) -> Result<(), SessionRefusal> {
        let mut slot = self.open_sessions.lock(id).await;
        slot.close_if_idle().await?;
        let log = &self.shared.deps.log;
        log.session(id).await.map_err(refusal_of)?;
        let lease = match log.acquire(id).await {
            Ok(lease) => lease,
            Err(LogError::Held { by, .. }) if reach == Reach::AllProcesses => {
                // The owner may take its time; other commands to the session wait for it themselves.
                drop(slot);
                return self.delete_at_peer(id, &by).await;
            }
            Err(error) => return Err(refusal_of(error)),
        };
        log.delete(&lease).await.map_err(refusal_of)?;
        self.delete_kept(id).await;
        self.shared.live_sessions.of(id).on_delete();
        Ok(())
    }

    /// Has the process that has a session open delete it.
    async fn delete_at_peer(&self, id: &SessionId, holder: &LeaseHolder) -> Result<(), SessionRefusal> {
        let is_held = || held(id, holder);
        let owner = self.owner_connection(holder).await.map_err(|_| is_held())?;
        match timeout(OWNER_WAIT, owner.delete(id)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(PeerError::Refused(refusal))) => Err(refusal),
            Ok(Err(PeerError::Lost)) => Err(SessionRefusal::OutcomeUnknown(id.clone())),
            Ok(Err(PeerError::NotSent | PeerError::NoReply { was_sent: false })) => Err(is_held()),
            // The owner deletes the session when it continues.
            Ok(Err(PeerError::NoReply { was_sent: true })) | Err(_) => Err(silent(id, holder)),
        }
    }

    /// Deletes a session if nothing happened in it since it was created. Refused like [`delete`](Self::delete).
    pub(crate) async fn delete_if_unused(&self, id: &SessionId) -> Result<(), SessionRefusal> {
        match self.record(id).await?.head {
            // The first event is that of the creation.
            Seq(1) => self.delete_events(id, Reach::ThisProcess).await,
            _ => Ok(()),
        }
    }
}
