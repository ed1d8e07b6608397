//! The sessions that are open in this process.
//!
//! Opening, leaving and deleting a session locks that session alone: while a long one is loaded, all others are used as
//! usual.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_vocab::{SessionId, SessionRefusal};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::handle::OpenSession;

/// How many sessions may be open at a time.
pub const MAX_OPEN_SESSIONS: usize = 1024;

/// How many sessions are asked to make room before a new one is refused.
const LEAVERS_ASKED: usize = 16;

/// All sessions that are open or being opened.
#[derive(Default)]
pub(super) struct OpenSessions {
    slots: Mutex<HashMap<SessionId, Arc<Slot>>>,
    /// Counts uses of sessions, to know which one was not used for longest.
    uses: AtomicU64,
}

#[derive(Default)]
struct Slot {
    session: Arc<AsyncMutex<Option<OpenSession>>>,
    last_use: AtomicU64,
}

impl OpenSessions {
    /// Locks a session, which need not be open: nobody else opens, leaves or deletes it until this is dropped.
    pub(super) async fn lock(&self, id: &SessionId) -> LockedSession<'_> {
        loop {
            let slot = Arc::clone(self.slots().entry(id.clone()).or_default());
            let session = Arc::clone(&slot.session).lock_owned().await;
            // Whoever had it before may have removed it.
            if self.has(id, &slot) {
                return LockedSession { all: self, id: id.clone(), slot, session };
            }
        }
    }

    /// The handle of a session that is open. Waits for one that is being opened.
    pub(super) async fn get(&self, id: &SessionId) -> Option<OpenSession> {
        let slot = self.slots().get(id).cloned()?;
        let session = slot.session.lock().await;
        session.clone().filter(OpenSession::is_running)
    }

    /// Removes all sessions. One that is being opened is waited for.
    pub(super) async fn take_all(&self) -> Vec<OpenSession> {
        let slots = std::mem::take(&mut *self.slots());
        let mut sessions = Vec::with_capacity(slots.len());
        for slot in slots.into_values() {
            sessions.extend(slot.session.lock().await.take());
        }
        sessions
    }

    /// Makes room for the session that the caller has locked: the ones that were not used for longest are left, if they
    /// have nothing to do.
    async fn make_room(&self) -> Result<(), SessionRefusal> {
        let has_room = || self.slots().len() <= MAX_OPEN_SESSIONS;
        if has_room() {
            return Ok(());
        }
        let mut by_use: Vec<(u64, SessionId, Arc<Slot>)> = self
            .slots()
            .iter()
            .map(|(id, slot)| (slot.last_use.load(Ordering::Relaxed), id.clone(), Arc::clone(slot)))
            .collect();
        by_use.sort_unstable_by_key(|(last_use, ..)| *last_use);
        for (_, id, slot) in by_use.into_iter().take(LEAVERS_ASKED) {
            // One that is locked is being opened or left.
            let Ok(mut session) = Arc::clone(&slot.session).try_lock_owned() else { continue };
            let is_left = match session.clone().filter(OpenSession::is_running) {
                Some(running) => running.leave().await.is_ok(),
                None => true,
            };
            if is_left {
                *session = None;
                self.remove(&id, &slot);
            }
            if has_room() {
                return Ok(());
            }
        }
        Err(SessionRefusal::TooManySessions { limit: MAX_OPEN_SESSIONS })
    }

    fn has(&self, id: &SessionId, slot: &Arc<Slot>) -> bool {
        self.slots().get(id).is_some_and(|known| Arc::ptr_eq(known, slot))
    }

    fn remove(&self, id: &SessionId, slot: &Arc<Slot>) {
        let mut slots = self.slots();
        if slots.get(id).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            slots.remove(id);
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Slot>>> {
        // Each change is a single step, so a panic leaves nothing half done.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session that nobody else opens, leaves or deletes.
pub(super) struct LockedSession<'a> {
    all: &'a OpenSessions,
    id: SessionId,
    slot: Arc<Slot>,
    session: OwnedMutexGuard<Option<OpenSession>>,
}

impl LockedSession<'_> {
    /// Its handle, if it is open.
    pub(super) fn running(&self) -> Option<OpenSession> {
        self.session.clone().filter(OpenSession::is_running)
    }

    /// Makes room for it, before it is opened.
    pub(super) async fn make_room(&self) -> Result<(), SessionRefusal> {
        self.all.make_room().await
    }

    /// Notes that it is used.
    pub(super) fn touch(&self) {
        self.slot.last_use.store(self.all.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Keeps it open.
    pub(super) fn set_open(&mut self, session: OpenSession) {
        *self.session = Some(session);
        self.touch();
    }

    /// Leaves it, if it is open and has nothing to do.
    pub(super) async fn leave(&mut self) -> Result<(), SessionRefusal> {
        if let Some(session) = self.running() {
            session.leave().await?;
        }
        *self.session = None;
        Ok(())
    }
}

impl Drop for LockedSession<'_> {
    fn drop(&mut self) {
        // Before the lock is released, so that whoever waits for it looks again.
        if self.session.is_none() {
            self.all.remove(&self.id, &self.slot);
        }
    }
}
