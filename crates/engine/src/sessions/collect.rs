//! Deletes old sessions and unreferenced media files.

use parlor_log::{Erased, PageRequest};
use parlor_vocab::{ClosingPart, SessionId, SessionRefusal};

use super::{Reach, Sessions, refusal_of};
use crate::media::SWEEP_GRACE;
use crate::retention::{CollectionReport, DeletedSession, Retention, RetentionCheck};

/// How many session records are read at a time.
const PAGE_RECORDS: usize = 200;

impl Sessions {
    /// Deletes the sessions that exceed the limits of `retention`, then media files that no event refers to, and
    /// reclaims the space. With `dry_run`, only reports what it would do. Calls `on_deleted` for each deleted
    /// session.
    ///
    /// A session that is in use, in this or in another process, stays.
    pub async fn collect(
        &self,
        retention: Retention,
        dry_run: bool,
        mut on_deleted: impl FnMut(&DeletedSession),
    ) -> Result<CollectionReport, SessionRefusal> {
        let deps = &self.shared.deps;
        let now = deps.clock.now();
        let mut check = RetentionCheck::new(retention, now);
        let mut report = CollectionReport::default();
        let kept = self.kept_bytes().await;
        let mut request = PageRequest::first(PAGE_RECORDS);
        loop {
            let page = self.list(request.clone()).await?;
            for mut record in page.records {
                report.checked += 1;
                // What is kept of the files that its runs changed goes with the session, so it counts too.
                record.bytes += kept.get(&record.id).copied().unwrap_or(0);
                let Some(reason) = check.reason_to_delete(&record) else { continue };
                let deleted = if dry_run {
                    self.check_deletable(&record.id).await
                } else {
                    self.delete_events(&record.id, Reach::ThisProcess).await
                };
                match deleted {
                    Ok(()) => {
                        report.deleted += 1;
                        report.deleted_bytes += record.bytes;
                        let (id, title, updated, bytes) =
                            (record.id, record.title, record.updated, record.bytes);
                        on_deleted(&DeletedSession { id, title, updated, bytes, reason });
                    }
                    // Somebody else has just deleted it.
                    Err(SessionRefusal::UnknownSession(_)) => {}
                    Err(
                        error @ (SessionRefusal::LogUnavailable { .. }
                        | SessionRefusal::Closing { part: ClosingPart::Program }),
                    ) => return Err(error),
                    Err(_) => report.in_use += 1,
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
        (report.media_files, report.media_bytes) = (swept.files, swept.bytes);
        if !dry_run {
            // If this fails, the next collection or the next long run sweeps.
            let _ = self.sweep_kept().await;
            let reclaimed = deps.log.reclaim().await.map_err(refusal_of)?;
            report.reclaimed_bytes = reclaimed.bytes;
            report.is_erased = reclaimed.erased == Erased::Yes;
        }
        Ok(report)
    }

    /// Fails if the session could not be deleted now.
    async fn check_deletable(&self, id: &SessionId) -> Result<(), SessionRefusal> {
        if let Some(session) = self.open_sessions.get(id).await {
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
