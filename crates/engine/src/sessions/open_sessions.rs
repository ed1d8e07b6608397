//! The sessions that are open in this process.
//!
//! Opening, closing and deleting a session locks only that session: while a long session loads, all others stay
//! usable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_vocab::{SessionId, SessionRefusal};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::handle::OpenSession;

/// How many sessions may be open at a time. Beyond it, the least recently used idle session is closed.
pub const MAX_OPEN_SESSIONS: usize = 1024;

/// How many of the least recently used sessions are tried to be closed before a new one is refused.
const MAX_EVICTION_TRIES: usize = 16;

/// All sessions that are open or being opened.
#[derive(Default)]
pub(super) struct OpenSessions {
    slots: Mutex<HashMap<SessionId, Arc<Slot>>>,
    /// Counts uses of sessions, to find the least recently used one.
    uses: AtomicU64,
}

#[derive(Default)]
struct Slot {
    /// `None` while the session is not open. Locked while it is opened, closed or deleted.
    session: Arc<AsyncMutex<Option<OpenSession>>>,
    /// The value of [`OpenSessions::uses`] at the last use.
    last_use: AtomicU64,
}

impl OpenSessions {
    /// Locks a session, which need not be open: no other task opens, closes or deletes it until the returned lock is
    /// dropped.
    pub(super) async fn lock(&self, id: &SessionId) -> LockedSession<'_> {
        loop {
            let slot = Arc::clone(self.slots().entry(id.clone()).or_default());
            let session = Arc::clone(&slot.session).lock_owned().await;
            // The previous holder of the lock may have removed the slot.
            if self.is_current(id, &slot) {
                return LockedSession { all: self, id: id.clone(), slot, session };
            }
        }
    }

    /// The handle of a session, if it is open. Waits if the session is being opened.
    pub(super) async fn get(&self, id: &SessionId) -> Option<OpenSession> {
        let slot = self.slots().get(id).cloned()?;
        let session = slot.session.lock().await;
        session.clone().filter(OpenSession::is_running)
    }

    /// Removes and returns all sessions. Waits for those that are being opened.
    pub(super) async fn take_all(&self) -> Vec<OpenSession> {
        let slots = std::mem::take(&mut *self.slots());
        let mut sessions = Vec::with_capacity(slots.len());
        for slot in slots.into_values() {
            sessions.extend(slot.session.lock().await.take());
        }
        sessions
    }

    /// Makes room for the session that the caller has locked, by closing the least recently used idle sessions.
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
        for (_, id, slot) in by_use.into_iter().take(MAX_EVICTION_TRIES) {
            // A locked session is being opened or closed.
            let Ok(mut session) = Arc::clone(&slot.session).try_lock_owned() else { continue };
            let is_closed = match session.clone().filter(OpenSession::is_running) {
                Some(running) => running.close_if_idle().await.is_ok(),
                None => true,
            };
            if is_closed {
                *session = None;
                self.remove(&id, &slot);
            }
            if has_room() {
                return Ok(());
            }
        }
        Err(SessionRefusal::TooManySessions { limit: MAX_OPEN_SESSIONS })
    }

    /// Whether `slot` is still the slot of the session.
    fn is_current(&self, id: &SessionId, slot: &Arc<Slot>) -> bool {
        self.slots().get(id).is_some_and(|current| Arc::ptr_eq(current, slot))
    }

    fn remove(&self, id: &SessionId, slot: &Arc<Slot>) {
        let mut slots = self.slots();
        if slots.get(id).is_some_and(|current| Arc::ptr_eq(current, slot)) {
            slots.remove(id);
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Slot>>> {
        // Each change is a single step, so a panic leaves the map consistent.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lock of a session: no other task opens, closes or deletes it.
pub(super) struct LockedSession<'a> {
    all: &'a OpenSessions,
    id: SessionId,
    slot: Arc<Slot>,
    session: OwnedMutexGuard<Option<OpenSession>>,
}

impl LockedSession<'_> {
    /// The handle of the session, if it is open.
    pub(super) fn running(&self) -> Option<OpenSession> {
        self.session.clone().filter(OpenSession::is_running)
    }

    /// Makes room for the session. Call before opening it.
    pub(super) async fn make_room(&self) -> Result<(), SessionRefusal> {
        self.all.make_room().await
    }

    /// Marks the session as the most recently used.
    pub(super) fn touch(&self) {
        self.slot.last_use.store(self.all.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Stores the handle of the session, which the caller has opened.
    pub(super) fn set_open(&mut self, session: OpenSession) {
        *self.session = Some(session);
        self.touch();
    }

    /// Closes the session. Fails if it is busy, succeeds if it is not open.
    pub(super) async fn close_if_idle(&mut self) -> Result<(), SessionRefusal> {
        if let Some(session) = self.running() {
            session.close_if_idle().await?;
        }
        *self.session = None;
        Ok(())
    }
}

impl Drop for LockedSession<'_> {
    fn drop(&mut self) {
        // Removed before the lock is released, so that a waiting task notices and takes a new slot.
        if self.session.is_none() {
            self.all.remove(&self.id, &self.slot);
        }
    }
}
