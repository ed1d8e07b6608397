//! Which sockets are open: one for each session, and a limit over all of them.
//!
//! A handshake reserves a [`ConnectionSlot`] before the upgrade. Dropping the slot frees it, whether or not the upgrade
//! worked. This file holds no sockets: a socket that is replaced gets a [`StopSignal`] and closes itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_transport::CloseReason;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// How many sockets beyond the limit may be open while they replace sockets of their own sessions.
pub const REPLACEMENT_ROOM: usize = 16;

/// All slots are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSlot;

/// The sockets that are open or about to open.
#[derive(Debug)]
pub(crate) struct Connections {
    limit: usize,
    going_away: CancellationToken,
    /// How many times open sockets were evicted.
    evictions: watch::Receiver<u64>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// How many slots are taken: by sockets that are opening, open, and closing.
    taken: usize,
    /// How many slots were ever reserved. The number of a slot shows which of two is newer.
    reserved: u64,
    /// The open socket of each session.
    open: HashMap<Arc<str>, OpenSocket>,
}

#[derive(Debug)]
struct OpenSocket {
    number: u64,
    replace: oneshot::Sender<()>,
}

impl Connections {
    /// At most `limit` sockets. All of them have to close once `going_away` is cancelled, and those that are open when
    /// `evictions` grows.
    pub(crate) fn new(
        limit: usize,
        going_away: CancellationToken,
        evictions: watch::Receiver<u64>,
    ) -> Arc<Self> {
        Arc::new(Self { limit, going_away, evictions, inner: Mutex::default() })
    }

    /// Reserves a slot for a socket of `session` whose token was valid after `evictions` evictions. At the limit, only a
    /// socket that replaces an open one gets a slot.
    pub(crate) fn reserve(self: &Arc<Self>, session: &str, evictions: u64) -> Result<ConnectionSlot, NoSlot> {
        let mut inner = self.inner();
        let replaces = inner.open.contains_key(session);
        let limit = if replaces { self.limit.saturating_add(REPLACEMENT_ROOM) } else { self.limit };
        if inner.taken >= limit {
            return Err(NoSlot);
        }
        inner.taken += 1;
        inner.reserved += 1;
        let (session, number) = (session.into(), inner.reserved);
        Ok(ConnectionSlot { session, number, evictions, connections: Arc::clone(self) })
    }

    /// How many slots are taken.
    pub(crate) fn taken(&self) -> usize {
        self.inner().taken
    }

    /// Locks in spite of poisoning: no code under the lock panics in the middle of a change.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot for one socket, taken until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    session: Arc<str>,
    number: u64,
    /// How many evictions there had been when the client showed its token.
    evictions: u64,
    connections: Arc<Connections>,
}

impl ConnectionSlot {
    /// Marks the socket of this slot as open. If the session has another open socket, the older of the two is replaced.
    /// Returns the signal on which the socket has to close, and whether one of the two was replaced.
    pub(crate) fn occupy(&self) -> (StopSignal, bool) {
        let (replace, replaced) = oneshot::channel();
        let mut inner = self.connections.inner();
        let mut older = OpenSocket { number: self.number, replace };
        let mut replaces = false;
        if let Some(open) = inner.open.get_mut(&self.session) {
            replaces = true;
            if open.number < self.number {
                std::mem::swap(open, &mut older);
            }
            // The older one may have closed already.
            let _ = older.replace.send(());
        } else {
            inner.open.insert(Arc::clone(&self.session), older);
        }
        let Connections { going_away, evictions, .. } = &*self.connections;
        let (going_away, evictions) = (going_away.clone(), evictions.clone());
        (StopSignal { replaced, going_away, evictions, seen_evictions: self.evictions }, replaces)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut inner = self.connections.inner();
        inner.taken -= 1;
        if inner.open.get(&self.session).is_some_and(|open| open.number == self.number) {
            inner.open.remove(&self.session);
        }
    }
}

/// Tells a socket when it has to close.
#[derive(Debug)]
pub(crate) struct StopSignal {
    replaced: oneshot::Receiver<()>,
    going_away: CancellationToken,
    evictions: watch::Receiver<u64>,
    seen_evictions: u64,
}

impl StopSignal {
    /// Waits until the socket has to close, and says why.
    pub(crate) async fn stopped(self) -> CloseReason {
        let Self { replaced, going_away, mut evictions, seen_evictions } = self;
        tokio::select! {
            biased;
            Ok(()) = replaced => CloseReason::Replaced,
            Ok(_) = evictions.wait_for(|now| *now > seen_evictions) => CloseReason::Evicted,
            () = going_away.cancelled() => CloseReason::GoingAway,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn connections(limit: usize) -> Arc<Connections> {
        Connections::new(limit, CancellationToken::new(), watch::Sender::new(0).subscribe())
    }

    #[test]
    fn a_newer_socket_replaces_and_an_older_one_that_opens_late_does_not() {
        let connections = connections(9);
        let (early, late) = (connections.reserve("a", 0).unwrap(), connections.reserve("a", 0).unwrap());
        let (stop_late, replaces) = late.occupy();
        assert!(!replaces);
        let (stop_early, replaces) = early.occupy();
        assert!(replaces);
        assert_eq!(stop_early.stopped().now_or_never(), Some(CloseReason::Replaced));
        let newest = connections.reserve("a", 0).unwrap();
        let _stop = newest.occupy();
        assert_eq!(stop_late.stopped().now_or_never(), Some(CloseReason::Replaced));
        drop((early, late));
        assert_eq!(connections.inner().open.len(), 1);
    }

    #[test]
    fn the_limit_counts_all_sessions_and_lets_replacements_through() {
        let connections = connections(2);
        let slots = [connections.reserve("a", 0).unwrap(), connections.reserve("b", 0).unwrap()];
        let _stop = slots[0].occupy();
        assert_eq!(connections.reserve("c", 0).unwrap_err(), NoSlot);
        // A socket that is not open yet cannot be replaced.
        assert_eq!(connections.reserve("b", 0).unwrap_err(), NoSlot);
        let newer = connections.reserve("a", 0).unwrap();
        assert_eq!(connections.taken(), 3);
        drop(newer);
        let [a, b] = slots;
        drop(b);
        connections.reserve("c", 0).unwrap();
        drop(a);
        assert_eq!(connections.taken(), 0);
    }

    #[test]
    fn replacements_that_pile_up_have_a_limit_too() {
        let connections = connections(1);
        let first = connections.reserve("a", 0).unwrap();
        let _stop = first.occupy();
        let replacements: Vec<ConnectionSlot> =
            (0..REPLACEMENT_ROOM).map(|_| connections.reserve("a", 0).unwrap()).collect();
        assert_eq!(connections.reserve("a", 0).unwrap_err(), NoSlot);
        drop(replacements);
        assert!(connections.reserve("a", 0).is_ok());
    }

    #[test]
    fn many_threads_never_take_more_slots_than_there_are() {
        let connections = connections(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let connections = &connections;
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let session = format!("{thread}-{}", round % 7);
                        let Ok(slot) = connections.reserve(&session, 0) else { continue };
                        assert!(connections.taken() <= 4 + REPLACEMENT_ROOM);
                        let other = connections.reserve(&session, 0);
                        let _stop = slot.occupy();
                        if round % 2 == 0 {
                            drop(slot);
                        }
                        drop(other);
                    }
                });
            }
        });
        assert_eq!(connections.taken(), 0);
        assert!(connections.inner().open.is_empty());
    }

    #[test]
    fn all_sockets_have_to_close_when_the_server_stops() {
        let going_away = CancellationToken::new();
        let connections = Connections::new(1, going_away.clone(), watch::Sender::new(0).subscribe());
        let slot = connections.reserve("a", 0).unwrap();
        let (stop, _) = slot.occupy();
        going_away.cancel();
        assert_eq!(stop.stopped().now_or_never(), Some(CloseReason::GoingAway));
    }
}
