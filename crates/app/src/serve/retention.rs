//! Deletes old sessions while a server runs, if `[retention] automatic` asks for it.

use std::time::Duration;

use parlor_engine::Sessions;
use parlor_engine::retention::DeletedSession;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::gc;
use crate::settings::RetentionConfig;

/// How long a server waits before it looks for old sessions again: one day.
pub(crate) const RETENTION_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Deletes what exceeds the limits now, whenever they change, and once a day, until `stop` is cancelled.
pub(super) async fn delete_old_sessions(
    sessions: &Sessions,
    mut settings: watch::Receiver<RetentionConfig>,
    stop: &CancellationToken,
) {
    let deleting = async {
        loop {
            let current = *settings.borrow_and_update();
            if current.is_automatic {
                collect(sessions, current).await;
            }
            tokio::select! {
                () = sleep(RETENTION_INTERVAL) => {}
                changed = settings.changed() => if changed.is_err() { return },
            }
        }
    };
    // A collection that is cut off has deleted whole sessions, and the next one goes on.
    stop.run_until_cancelled(deleting).await;
}

async fn collect(sessions: &Sessions, settings: RetentionConfig) {
    let on_deleted = |deleted: &DeletedSession| {
        tracing::info!(session = %deleted.id, bytes = deleted.bytes, "deleted an old session");
    };
    match sessions.collect(gc::limits(settings), false, on_deleted).await {
        Ok(done) if done.deleted > 0 || done.media_files > 0 => tracing::info!(
            sessions = done.deleted,
            bytes = done.deleted_bytes,
            files = done.media_files,
            reclaimed = done.reclaimed_bytes,
            "retention deleted what exceeds its limits"
        ),
        Ok(_) => {}
        Err(refusal) => tracing::warn!("retention could not delete old sessions: {refusal}"),
    }
}
