//! Closes sessions: one that is idle, all of them, or those that no other process uses.

use std::sync::atomic::Ordering;
use std::time::Duration;

use parlor_vocab::{ClosingPart, SessionId, SessionRefusal};

use tokio::time::sleep;

use super::Sessions;
use super::handle::OpenSession;

/// How often a process that hands its sessions over checks whether a compaction has ended.
const COMPACTION_CHECK: Duration = Duration::from_millis(100);

impl Sessions {
    /// Closes a session, so that another process may open it. Refused while the session is busy. Does nothing if the
    /// session is not open in this process.
    pub async fn release(&self, id: &SessionId) -> Result<(), SessionRefusal> {
        self.open_sessions.lock(id).await.close_if_idle().await
    }

    /// Waits until no run is active in a session that is open in this process, or the run waits for an answer. Returns at
    /// once if the session is not open here.
    pub async fn finish_run(&self, id: &SessionId) -> Result<(), SessionRefusal> {
        let mut head = self.head(id);
        loop {
            head.borrow_and_update();
            let Some(session) = self.open_sessions.get(id).await else { return Ok(()) };
            let session = session.view().await?;
            if session.active().is_none_or(|run| session.only_waits(run)) || head.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    /// Closes all sessions like [`close`](Sessions::close), and refuses to open any from now on.
    pub async fn shut_down(&self) {
        self.shutting_down.cancel();
        self.mirrors.stop_all();
        self.close().await;
    }

    pub(super) fn check_not_shutting_down(&self) -> Result<(), SessionRefusal> {
        match self.shutting_down.is_cancelled() {
            true => Err(SessionRefusal::Closing { part: ClosingPart::Program }),
            false => Ok(()),
        }
    }

    /// Stops all runs, waits until their ends are recorded, and closes all sessions.
    pub async fn close(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        close_all(self.open_sessions.take_all().await).await;
    }

    /// Gives back what this process holds in a log that several processes share. Call it when all sessions are closed and
    /// the process is about to end.
    pub async fn close_log(&self) {
        self.shared.deps.log.close().await;
    }

    /// Like [`close`](Self::close), but leaves the sessions open that other processes use.
    pub(crate) async fn close_unless_peers_use(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.close_idle().await;
        let is_unused = |id: &SessionId| !self.peer_watches.contains(id);
        close_all(self.open_sessions.take_where(is_unused).await).await;
    }

    /// Waits until no session that another process uses has work left here, and closes all sessions: the other processes
    /// take over those that they use.
    pub async fn hand_over(&self) {
        // From now on, a message to a session that is closed here goes to its next owner.
        self.is_leaving.store(true, Ordering::Relaxed);
        loop {
            let is_used = |id: &SessionId| self.peer_watches.contains(id);
            for (id, session) in self.open_sessions.list_where(is_used).await {
                self.close_when_idle(&id, &session).await;
            }
            // Another process may have sent a message to a session that it did not use before.
            let busy = self.close_idle().await;
            if !busy.iter().any(|id| self.peer_watches.contains(id)) {
                break;
            }
        }
        self.close().await;
    }

    /// Closes the sessions in which nothing happens, one by one: a message of another process either makes its session
    /// busy, or goes to the next owner. Returns the sessions that have a run or a compaction.
    async fn close_idle(&self) -> Vec<SessionId> {
        let mut busy = Vec::new();
        for (id, session) in self.open_sessions.list_where(|_| true).await {
            if let Err(SessionRefusal::Busy { .. } | SessionRefusal::Compacting) =
                session.close_if_idle().await
            {
                busy.push(id);
            }
        }
        busy
    }

    /// Closes a session as soon as nothing happens in it. Stops to wait if no other process uses it any more, or if it is
    /// busy with what does not end by itself.
    async fn close_when_idle(&self, id: &SessionId, session: &OpenSession) {
        let mut head = self.head(id);
        loop {
            head.borrow_and_update();
            let retry = match session.clone().close_if_idle().await {
                Err(SessionRefusal::Busy { .. }) => None,
                // Its end may leave no event.
                Err(SessionRefusal::Compacting) => Some(COMPACTION_CHECK),
                Ok(()) | Err(_) => return,
            };
            tokio::select! {
                changed = head.changed() => if changed.is_err() { return },
                () = sleep(retry.unwrap_or(Duration::MAX)), if retry.is_some() => {}
                () = self.peer_watches.ended(id) => return,
            }
        }
    }
}

async fn close_all(sessions: Vec<OpenSession>) {
    for session in &sessions {
        session.begin_close();
    }
    for session in sessions {
        session.closed().await;
    }
}
