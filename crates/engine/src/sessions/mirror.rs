//! Mirrors a session that another process has open, for the watchers in this process: their text comes from the owner, as
//! it is written, and their events from the log, at the moment when the owner has appended them.
//!
//! A mirror feeds the [`LiveSession`] of its session, as the actor does if the session is open here, so watchers need not
//! know where a session runs. There is at most one mirror for each session, and none while the session is open here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use parlor_log::LogError;
use parlor_vocab::{
    Entry, MessageEvent, PeerUpdate, RunEvent, Seq, SessionEvent, SessionId, StepEvent, StreamKind,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Sessions;
use super::live::LiveSession;
use super::routing::OWNER_WAIT;
use super::text_bytes::text_bytes;

/// How long to wait before the owner is watched again after it has ended or refused a watch, or was not reached. Doubled
/// with each attempt that brings no update, up to [`MAX_MIRROR_RETRY`].
const MIRROR_RETRY: Duration = Duration::from_millis(50);

/// The longest time between two attempts to watch an owner.
const MAX_MIRROR_RETRY: Duration = Duration::from_secs(5);

/// How many events are read at a time.
const READ_EVENTS: usize = 256;

/// The mirrors of this process.
#[derive(Default)]
pub(super) struct Mirrors(Mutex<HashMap<SessionId, Mirror>>);

struct Mirror {
    task: JoinHandle<()>,
    /// Set when a watcher asks for the mirror while it is there. A mirror that is about to end then goes on.
    is_wanted: Arc<AtomicBool>,
}

impl Mirrors {
    /// Starts a mirror of the session, unless there is one. It ends by itself if no other process has the session open.
    pub(super) fn ensure(&self, sessions: &Arc<Sessions>, session: &SessionId) {
        let mut mirrors = self.lock();
        if let Some(mirror) = mirrors.get(session)
            && !mirror.task.is_finished()
        {
            mirror.is_wanted.store(true, Ordering::Relaxed);
            return;
        }
        mirrors.retain(|_, mirror| !mirror.task.is_finished());
        let is_wanted = Arc::new(AtomicBool::new(true));
        let task = tokio::spawn(run(Arc::clone(sessions), session.clone(), Arc::clone(&is_wanted)));
        mirrors.insert(session.clone(), Mirror { task, is_wanted });
    }

    /// Ends the mirror of a session that this process is about to open, and waits for its end: the actor is the only one
    /// to feed the live session then.
    pub(super) async fn stop(&self, session: &SessionId) {
        let mirror = self.lock().remove(session);
        if let Some(Mirror { task, .. }) = mirror {
            task.abort();
            // An error means that the task was aborted.
            let _ = task.await;
        }
    }

    /// Ends all mirrors.
    pub(super) fn stop_all(&self) {
        self.lock().drain().for_each(|(_, mirror)| mirror.task.abort());
    }

    /// Forgets the mirror with this flag, which is about to end. False if a watcher has asked for it meanwhile.
    fn forget_unless_wanted(&self, session: &SessionId, is_wanted: &Arc<AtomicBool>) -> bool {
        let mut mirrors = self.lock();
        if is_wanted.load(Ordering::Relaxed) {
            return false;
        }
        // It may have been stopped, and another one started.
        if mirrors.get(session).is_some_and(|mirror| Arc::ptr_eq(&mirror.is_wanted, is_wanted)) {
            mirrors.remove(session);
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Mirror>> {
        // Each change is a single step, so a panic leaves the map consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Mirrors the session while another process has it open and somebody watches it here.
async fn run(sessions: Arc<Sessions>, session: SessionId, is_wanted: Arc<AtomicBool>) {
    let live = sessions.shared.live_sessions.of(&session);
    let mut pause = MIRROR_RETRY;
    loop {
        is_wanted.store(false, Ordering::Relaxed);
        let end = mirror_once(&sessions, &session, &live).await;
        match end {
            MirrorEnd::OwnerLost { was_updated } => {
                if was_updated {
                    pause = MIRROR_RETRY;
                }
                take_over(&sessions, &session).await;
            }
            MirrorEnd::Unreachable => {}
            MirrorEnd::NotNeeded if sessions.mirrors.forget_unless_wanted(&session, &is_wanted) => return,
            MirrorEnd::NotNeeded => continue,
        }
        // An owner that is closing the session may still hold it.
        tokio::select! {
            () = sleep(pause) => {}
            () = live.unwatched() => {}
        }
        pause = (pause * 2).min(MAX_MIRROR_RETRY);
    }
}

/// Why a mirror does not feed its session any more.
enum MirrorEnd {
    /// The owner closed the session, is gone, or refused the watch.
    OwnerLost {
        /// Whether it had sent anything.
        was_updated: bool,
    },
    /// Another process has the session open, and cannot be reached now.
    Unreachable,
    /// Nobody watches the session here, or the log alone tells what happens in it.
    NotNeeded,
}

/// Finds the owner of the session, and feeds the live session until that ends.
async fn mirror_once(sessions: &Arc<Sessions>, session: &SessionId, live: &LiveSession) -> MirrorEnd {
    let Some(peers) = &sessions.peers else { return MirrorEnd::NotNeeded };
    let is_unwatched = live.unwatched().now_or_never().is_some();
    if is_unwatched || sessions.check_not_shutting_down().is_err() {
        return MirrorEnd::NotNeeded;
    }
    if sessions.open_sessions.get(session).await.is_some() {
        return MirrorEnd::NotNeeded;
    }
    let address = match sessions.shared.deps.log.holder(session).await {
        Ok(Some(holder)) => holder.announcement.address,
        // The owner may have died before it was reached.
        Ok(None) if sessions.is_unfinished(session).await => {
            return MirrorEnd::OwnerLost { was_updated: false };
        }
        Ok(None) | Err(_) => None,
    };
    let Some(address) = address else { return MirrorEnd::NotNeeded };
    let Ok(connection) = peers.connect(&address).await else { return MirrorEnd::Unreachable };
    let updates = connection.watch(session);
    Feed { sessions, session, live, position: None }.run(updates).await
}

/// After the owner is gone: opens the session if it has work to do and no other process was faster.
async fn take_over(sessions: &Arc<Sessions>, session: &SessionId) {
    sessions.forget_peer(session).await;
    if sessions.is_unfinished(session).await {
        let (sessions, session) = (Arc::clone(sessions), session.clone());
        // Another task, because opening the session ends the mirror. If it fails, the mirror tries again.
        let _ = tokio::spawn(async move { sessions.route(&session).await.map(drop) }).await;
    }
}

/// Feeds a live session from the updates of its owner.
struct Feed<'a> {
    sessions: &'a Sessions,
    session: &'a SessionId,
    live: &'a LiveSession,
    /// The last event that was fed. `None` before the first.
    position: Option<Seq>,
}

impl Drop for Feed<'_> {
    /// Also if the task is aborted: from now on, watchers must read the log.
    fn drop(&mut self) {
        self.live.reset();
    }
}

impl Feed<'_> {
    async fn run(mut self, mut updates: mpsc::Receiver<PeerUpdate>) -> MirrorEnd {
        let mut was_updated = false;
        let mut log_head = self.sessions.shared.deps.log.head(self.session);
        loop {
            let update = tokio::select! {
                update = updates.recv() => update,
                () = self.live.unwatched() => return MirrorEnd::NotNeeded,
                () = self.missed_event(&mut log_head), if self.position.is_some() => {
                    return MirrorEnd::OwnerLost { was_updated };
                }
            };
            match update {
                None | Some(PeerUpdate::Closed) => return MirrorEnd::OwnerLost { was_updated },
                // The log failed or was deleted; watchers report that themselves.
                Some(PeerUpdate::Head(head)) => {
                    if self.feed_events(head).await.is_err() {
                        return MirrorEnd::OwnerLost { was_updated };
                    }
                }
                Some(PeerUpdate::Delta { run, stream, text }) => {
                    self.live.open_if_new(&run, &stream);
                    self.live.push(&stream, &text);
                }
            }
            was_updated = true;
        }
    }

    /// Waits until the log has had an event for [`OWNER_WAIT`] that the owner has not reported. The owner is stopped or cut
    /// off then, and perhaps another process has the session.
    async fn missed_event(&self, log_head: &mut watch::Receiver<Seq>) {
        let position = self.position.unwrap_or(Seq::START);
        if log_head.wait_for(|head| *head > position).await.is_err() {
            return std::future::pending().await;
        }
        sleep(OWNER_WAIT).await;
    }

    /// Feeds the events up to `head` from the log.
    async fn feed_events(&mut self, head: Seq) -> Result<(), LogError> {
        // The first head is that of the event with which the watch begins.
        let mut position = self.position.unwrap_or(Seq(head.0.saturating_sub(1)));
        while position < head {
            // Not beyond the head: text before a later event may still come.
            let count = usize::try_from(head.0 - position.0).unwrap_or(READ_EVENTS).min(READ_EVENTS);
            let entries = self.sessions.shared.deps.log.read(self.session, position, count).await?;
            let Some(last) = entries.last() else { break };
            position = last.seq;
            entries.into_iter().for_each(|entry| self.feed_event(Arc::new(entry)));
        }
        self.position = Some(position);
        Ok(())
    }

    fn feed_event(&self, entry: Arc<Entry>) {
        let bytes = text_bytes(&entry.event);
        let SessionEvent::Run { event, .. } = &entry.event else {
            return self.live.on_append(&entry, bytes);
        };
        match event {
            RunEvent::Message(MessageEvent::Completed { message, .. }) => {
                self.live.on_append(&entry, bytes);
                self.live.close(&StreamKind::Message(message.clone()));
            }
            // Closed first, as the run driver does: the step's next reasoning has the same name.
            RunEvent::Step(StepEvent::Reasoned { step, .. }) => {
                self.live.close(&StreamKind::Reasoning(step.clone()));
                self.live.on_append(&entry, bytes);
            }
            RunEvent::Started { .. }
            | RunEvent::Steered { .. }
            | RunEvent::Message(MessageEvent::Started { .. })
            | RunEvent::Step(_)
            | RunEvent::Tool(_)
            | RunEvent::Question(_)
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::UsageAdded { .. }
            | RunEvent::Ended { .. } => self.live.on_append(&entry, bytes),
        }
    }
}
