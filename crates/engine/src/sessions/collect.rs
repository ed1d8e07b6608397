//! Taking away what nobody needs any more.

use parlor_log::{Erased, PageRequest};
use parlor_vocab::{SessionId, SessionRefusal};

use super::{Sessions, refusal_of};
use crate::media::SWEEP_GRACE;
use crate::retention::{Collected, Deleted, Judge, Retention};

/// How many sessions are looked at together.
const PAGE: usize = 200;

impl Sessions {
    /// Deletes the sessions that `retention` does not keep, then stored files that nothing refers
    /// to, and gives the space back. With `dry_run` it only says what it would do. `tell` hears of
    /// each session that goes.
    ///
    /// A session that is in use, here or in another process, stays.
    pub async fn collect(
        &self,
        retention: Retention,
        dry_run: bool,
        mut tell: impl FnMut(&Deleted),
    ) -> Result<Collected, SessionRefusal> {
        let deps = &self.shared.deps;
        let now = deps.clock.now();
        let mut judge = Judge::new(retention, now);
        let mut collected = Collected::default();
        let mut request = PageRequest::first(PAGE);
        loop {
            let page = self.list(request.clone()).await?;
            for record in page.records {
                collected.looked_at += 1;
                let Some(reason) = judge.judge(&record) else { continue };
                let gone =
                    if dry_run { self.is_free(&record.id).await } else { self.remove(&record.id).await };
                match gone {
                    Ok(()) => {
                        collected.deleted += 1;
                        collected.deleted_bytes += record.bytes;
                        let (id, title, updated, bytes) =
                            (record.id, record.title, record.updated, record.bytes);
                        tell(&Deleted { id, title, updated, bytes, reason });
                    }
                    // Somebody else was faster.
                    Err(SessionRefusal::UnknownSession(_)) => {}
                    Err(error @ SessionRefusal::LogUnavailable { .. }) => return Err(error),
                    Err(_) => collected.in_use += 1,
                }
            }
            match page.next {
                Some(next) => request.after = Some(next),
                None => break,
            }
        }
        let referenced = deps.log.referenced_media().await.map_err(refusal_of)?;
        let swept = deps.media.sweep(referenced, SWEEP_GRACE, now, dry_run).await;
        let swept = swept.map_err(|error| SessionRefusal::MediaUnavailable { reason: error.to_string() })?;
        (collected.media_files, collected.media_bytes) = (swept.files, swept.bytes);
        if !dry_run {
            let reclaimed = deps.log.reclaim().await.map_err(refusal_of)?;
            collected.reclaimed_bytes = reclaimed.bytes;
            collected.is_erased = reclaimed.erased == Erased::Yes;
        }
        Ok(collected)
    }

    /// Whether a session could be deleted now.
    async fn is_free(&self, id: &SessionId) -> Result<(), SessionRefusal> {
        if let Some(session) = self.open.get(id).await {
            return match session.view().await?.active() {
                Some(active) => Err(SessionRefusal::Busy { active: active.clone() }),
                None => Ok(()),
            };
        }
        let log = &self.shared.deps.log;
        let lease = log.acquire(id).await.map_err(refusal_of)?;
        log.release(lease).await.map_err(refusal_of)
    }
}
