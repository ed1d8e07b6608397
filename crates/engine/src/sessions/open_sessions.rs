//! The sessions that are open in this process, and those of other processes that it has reached.
//!
//! Opening, closing and deleting a session locks only that session: while a long session loads, all others stay
//! usable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_vocab::{SessionId, SessionRefusal};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::handle::OpenSession;
use super::peers::PeerConnection;

/// How many sessions may be open at a time. Beyond it, the least recently used idle session is closed.
pub const MAX_OPEN_SESSIONS: usize = 1024;

/// How many of the least recently used sessions are tried to be closed before a new one is refused.
const MAX_EVICTION_TRIES: usize = 16;

/// Where the commands of a session go.
#[derive(Clone)]
pub(super) enum Route {
    /// To the actor in this process.
    Here(OpenSession),
    /// To the process that has the session open.
    Peer(Arc<dyn PeerConnection>),
}

impl Route {
    fn is_usable(&self) -> bool {
        match self {
            Self::Here(session) => session.is_running(),
            Self::Peer(connection) => connection.is_connected(),
        }
    }

    pub(super) fn is_here(&self) -> bool {
        matches!(self, Self::Here(_))
    }

    fn into_open(self) -> Option<OpenSession> {
        match self {
            Self::Here(session) => session.is_running().then_some(session),
            Self::Peer(_) => None,
        }
    }
}

/// The routes of all sessions that are open here, being opened, or reached in another process.
#[derive(Default)]
pub(super) struct SessionRoutes {
    slots: Mutex<HashMap<SessionId, Arc<Slot>>>,
    /// Counts uses of sessions, to find the least recently used one.
    uses: AtomicU64,
}

#[derive(Default)]
struct Slot {
    /// `None` if it is not known where the session is open. Locked while it is opened, closed or deleted.
    route: Arc<AsyncMutex<Option<Route>>>,
    /// The value of [`SessionRoutes::uses`] at the last use.
    last_use: AtomicU64,
}

impl SessionRoutes {
    /// Locks a session, which need not be open: no other task opens, closes or deletes it until the returned lock is
    /// dropped.
    pub(super) async fn lock(&self, id: &SessionId) -> LockedSession<'_> {
        loop {
            let slot = Arc::clone(self.slots().entry(id.clone()).or_default());
            let route = Arc::clone(&slot.route).lock_owned().await;
            // The previous holder of the lock may have removed the slot.
            if self.is_current(id, &slot) {
                return LockedSession { all: self, id: id.clone(), slot, route };
            }
        }
    }

    /// The handle of a session, if it is open in this process. Waits if the session is being opened.
    pub(super) async fn get(&self, id: &SessionId) -> Option<OpenSession> {
        let slot = self.slots().get(id).cloned()?;
        let route = slot.route.lock().await;
        route.clone().and_then(Route::into_open)
    }

    /// Removes and returns all sessions. Waits for those that are being opened.
    pub(super) async fn take_all(&self) -> Vec<OpenSession> {
        self.take_where(|_| true).await
    }

    /// Removes and returns the sessions that `is_taken` selects. Waits for those that are being opened.
    pub(super) async fn take_where(&self, is_taken: impl Fn(&SessionId) -> bool) -> Vec<OpenSession> {
        let slots: Vec<Arc<Slot>> =
            self.slots().extract_if(|id, _| is_taken(id)).map(|(_, slot)| slot).collect();
        let mut sessions = Vec::with_capacity(slots.len());
        for slot in slots {
            sessions.extend(slot.route.lock().await.take().and_then(Route::into_open));
        }
        sessions
    }

    /// The sessions that are open in this process and that `is_listed` selects.
    pub(super) async fn list_where(
        &self,
        is_listed: impl Fn(&SessionId) -> bool,
    ) -> Vec<(SessionId, OpenSession)> {
        let ids: Vec<SessionId> = self.slots().keys().filter(|id| is_listed(id)).cloned().collect();
        let mut sessions = Vec::with_capacity(ids.len());
        for id in ids {
            sessions.extend(self.get(&id).await.map(|session| (id, session)));
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
            let Ok(mut route) = Arc::clone(&slot.route).try_lock_owned() else { continue };
            let is_closed = match route.clone().and_then(Route::into_open) {
                Some(running) => running.close_if_idle().await.is_ok(),
                None => true,
            };
            if is_closed {
                *route = None;
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
    all: &'a SessionRoutes,
    id: SessionId,
    slot: Arc<Slot>,
    route: OwnedMutexGuard<Option<Route>>,
}

impl LockedSession<'_> {
    /// The handle of the session, if it is open in this process.
    pub(super) fn running(&self) -> Option<OpenSession> {
        self.route.clone().and_then(Route::into_open)
    }

    /// Where the session's commands go, if that is known.
    pub(super) fn route(&self) -> Option<Route> {
        self.route.clone().filter(Route::is_usable)
    }

    /// Makes room for the session. Call before opening it.
    pub(super) async fn make_room(&self) -> Result<(), SessionRefusal> {
        self.all.make_room().await
    }

    /// Marks the session as the most recently used.
    pub(super) fn touch(&self) {
        self.slot.last_use.store(self.all.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Stores where the session's commands go from now on.
    pub(super) fn set_route(&mut self, route: Route) {
        *self.route = Some(route);
        self.touch();
    }

    /// Forgets where the session's commands go.
    pub(super) fn clear_route(&mut self) {
        *self.route = None;
    }

    /// Closes the session. Fails if it is busy, succeeds if it is not open.
    pub(super) async fn close_if_idle(&mut self) -> Result<(), SessionRefusal> {
        if let Some(session) = self.running() {
            session.close_if_idle().await?;
        }
        *self.route = None;
        Ok(())
    }
}

impl Drop for LockedSession<'_> {
    fn drop(&mut self) {
        // Removed before the lock is released, so that a waiting task notices and takes a new slot.
        if self.route.is_none() {
            self.all.remove(&self.id, &self.slot);
        }
    }
}
