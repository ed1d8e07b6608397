//! Mirrors a session that another process has open, for the watchers in this process: their text comes from the owner, as
//! it is written, and their events from the log, at the moment when the owner has appended them.
//!
//! A mirror feeds the [`LiveSession`] of its session, as the actor does if the session is open here, so watchers need not
//! know where a session runs. There is at most one mirror for each session, and none while the session is open here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parlor_log::LogError;
use parlor_vocab::{
    Entry, MessageEvent, PeerUpdate, RunEvent, Seq, SessionEvent, SessionId, StepEvent, StreamKind, WatchFrom,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::live::LiveSession;
use super::peers::PeerConnection;
use super::text_bytes::text_bytes;
use super::{Route, Sessions};

/// How long to wait before the owner is watched again after it has ended or refused a watch.
const MIRROR_RETRY: Duration = Duration::from_millis(50);

/// How many events are read at a time.
const READ_EVENTS: usize = 256;

/// The mirrors of this process.
#[derive(Default)]
pub(super) struct Mirrors(Mutex<HashMap<SessionId, JoinHandle<()>>>);

impl Mirrors {
    /// Starts a mirror of the session, unless there is one. It ends by itself if no other process has the session open.
    pub(super) fn ensure(&self, sessions: &Arc<Sessions>, session: &SessionId) {
        let mut mirrors = self.lock();
        if mirrors.get(session).is_some_and(|mirror| !mirror.is_finished()) {
            return;
        }
        mirrors.retain(|_, mirror| !mirror.is_finished());
        let mirror = tokio::spawn(run(Arc::clone(sessions), session.clone()));
        mirrors.insert(session.clone(), mirror);
    }

    /// Ends the mirror of a session that this process is about to open, and waits for its end: the actor is the only one
    /// to feed the live session then.
    pub(super) async fn stop(&self, session: &SessionId) {
        let mirror = self.lock().remove(session);
        if let Some(mirror) = mirror {
            mirror.abort();
            // An error means that the task was aborted.
            let _ = mirror.await;
        }
    }

    /// Ends all mirrors.
    pub(super) fn stop_all(&self) {
        self.lock().drain().for_each(|(_, mirror)| mirror.abort());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, JoinHandle<()>>> {
        // Each change is a single step, so a panic leaves the map consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Mirrors the session while another process has it open and somebody watches it here.
async fn run(sessions: Arc<Sessions>, session: SessionId) {
    let (connection, updates) = match connect(&sessions, &session).await {
        Connected::ToOwner(connection, updates) => (connection, updates),
        // The owner may have died before it was reached.
        Connected::NoOwner if is_unfinished(&sessions, &session).await => {
            tokio::spawn(take_over(sessions, session));
            return;
        }
        Connected::NoOwner | Connected::LogOnly => return,
    };
    let live = sessions.shared.live_sessions.of(&session);
    let feed = Feed { sessions: &sessions, session: &session, live: &live, position: None };
    let end = feed.run(updates).await;
    drop(connection);
    if end == MirrorEnd::OwnerLost {
        // Another task, because opening the session waits for the end of this one.
        tokio::spawn(take_over(sessions, session));
    }
}

enum Connected {
    /// To the process that has the session open.
    ToOwner(Arc<dyn PeerConnection>, mpsc::Receiver<PeerUpdate>),
    /// No process has the session open.
    NoOwner,
    /// The session is open here, or its owner cannot be reached: watchers follow the log alone.
    LogOnly,
}

/// Begins to watch the session at the process that has it open.
async fn connect(sessions: &Arc<Sessions>, session: &SessionId) -> Connected {
    let Some(peers) = &sessions.peers else { return Connected::LogOnly };
    if sessions.open_sessions.get(session).await.is_some() {
        return Connected::LogOnly;
    }
    let holder = match sessions.shared.deps.log.holder(session).await {
        Ok(Some(holder)) => holder,
        Ok(None) => return Connected::NoOwner,
        Err(_) => return Connected::LogOnly,
    };
    let Some(address) = holder.announcement.address else { return Connected::LogOnly };
    match peers.connect(&address).await {
        Ok(connection) => {
            let updates = connection.watch(session);
            Connected::ToOwner(connection, updates)
        }
        Err(_) => Connected::LogOnly,
    }
}

/// Whether the log has a run of the session that has not ended, or inputs that wait.
async fn is_unfinished(sessions: &Sessions, session: &SessionId) -> bool {
    let start = sessions.find_watch_start(session, &WatchFrom::Now).await;
    start.is_ok_and(|start| start.is_unfinished)
}

/// After the owner is gone: opens the session if it has work to do, or follows the process that was faster.
async fn take_over(sessions: Arc<Sessions>, session: SessionId) {
    sessions.forget_peer(&session).await;
    let is_unfinished = is_unfinished(&sessions, &session).await;
    if is_unfinished && !matches!(sessions.route(&session).await, Ok(Route::Peer(_))) {
        return;
    }
    // An owner that is closing the session may still hold it.
    sleep(MIRROR_RETRY).await;
    sessions.mirrors.ensure(&sessions, &session);
}

#[derive(PartialEq, Eq)]
enum MirrorEnd {
    /// The owner closed the session or is gone.
    OwnerLost,
    /// Nobody watches the session here any more.
    Unwatched,
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
        loop {
            let update = tokio::select! {
                update = updates.recv() => update,
                () = self.live.unwatched() => return MirrorEnd::Unwatched,
            };
            match update {
                None | Some(PeerUpdate::Closed) => return MirrorEnd::OwnerLost,
                // The log failed or was deleted; watchers report that themselves.
                Some(PeerUpdate::Head(head)) => {
                    if self.feed_events(head).await.is_err() {
                        return MirrorEnd::OwnerLost;
                    }
                }
                Some(PeerUpdate::Delta { run, stream, text }) => {
                    self.live.open_if_new(&run, &stream);
                    self.live.push(&stream, &text);
                }
            }
        }
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
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::UsageAdded { .. }
            | RunEvent::Ended { .. } => self.live.on_append(&entry, bytes),
        }
    }
}
