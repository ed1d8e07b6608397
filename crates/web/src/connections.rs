//! Who is connected: one live socket for each session, and a limit over all of them.
//!
//! A place is taken before the upgrade and given back when its [`ConnectionSlot`] is dropped, whatever became of the
//! upgrade. Knows nothing of sockets: whoever is replaced is told so and leaves by itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use parlor_transport::CloseReason;

/// How many more sockets than the limit there may be while newcomers replace sockets of their own sessions.
pub const REPLACEMENT_ROOM: usize = 16;

/// All places are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSlot;

/// The sockets that are open or about to be.
#[derive(Debug)]
pub struct Connections {
    limit: usize,
    going_away: CancellationToken,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// How many places are taken: by sockets to come, that live, and that are leaving.
    taken: usize,
    /// Counts arrivals, to know who is the newest.
    arrivals: u64,
    live: HashMap<Arc<str>, Live>,
}

#[derive(Debug)]
struct Live {
    arrival: u64,
    replaced: oneshot::Sender<()>,
}

impl Connections {
    /// Room for `limit` sockets. All of them are told to go away once `going_away` is cancelled.
    pub fn new(limit: usize, going_away: CancellationToken) -> Arc<Self> {
        Arc::new(Self { limit, going_away, inner: Mutex::default() })
    }

    /// Takes a place for a socket of `session`. At the limit only those that replace a live socket get one.
    pub fn reserve(self: &Arc<Self>, session: &str) -> Result<ConnectionSlot, NoSlot> {
        let mut inner = self.inner();
        let replaces = inner.live.contains_key(session);
        let limit = if replaces { self.limit.saturating_add(REPLACEMENT_ROOM) } else { self.limit };
        if inner.taken >= limit {
            return Err(NoSlot);
        }
        inner.taken += 1;
        inner.arrivals += 1;
        Ok(ConnectionSlot { session: session.into(), arrival: inner.arrivals, connections: Arc::clone(self) })
    }

    /// How many places are taken.
    pub fn taken(&self) -> usize {
        self.inner().taken
    }

    /// The lock is never held across anything that can panic halfway through a change.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    session: Arc<str>,
    arrival: u64,
    connections: Arc<Connections>,
}

impl ConnectionSlot {
    /// The socket is there. The one that its session had until now is told that it is replaced; if that one
    /// came later, this one is. Gives what tells the socket to leave, and whether anybody was replaced.
    pub fn occupy(&self) -> (StopSignal, bool) {
        let (replaced, told) = oneshot::channel();
        let mut inner = self.connections.inner();
        let mut live = Live { arrival: self.arrival, replaced };
        let mut replaces = false;
        if let Some(other) = inner.live.get_mut(&self.session) {
            replaces = true;
            if other.arrival < self.arrival {
                std::mem::swap(other, &mut live);
            }
            // It may be gone by itself.
            let _ = live.replaced.send(());
        } else {
            inner.live.insert(Arc::clone(&self.session), live);
        }
        (StopSignal { replaced: told, going_away: self.connections.going_away.clone() }, replaces)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut inner = self.connections.inner();
        inner.taken -= 1;
        if inner.live.get(&self.session).is_some_and(|live| live.arrival == self.arrival) {
            inner.live.remove(&self.session);
        }
    }
}

/// Tells a socket when it has to leave.
#[derive(Debug)]
pub struct StopSignal {
    replaced: oneshot::Receiver<()>,
    going_away: CancellationToken,
}

impl StopSignal {
    /// Waits until the socket has to leave, and says why.
    pub async fn asked(self) -> CloseReason {
        let Self { replaced, going_away } = self;
        tokio::select! {
            biased;
            Ok(()) = replaced => CloseReason::Replaced,
            () = going_away.cancelled() => CloseReason::GoingAway,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn connections(limit: usize) -> Arc<Connections> {
        Connections::new(limit, CancellationToken::new())
    }

    #[test]
    fn a_newcomer_replaces_and_an_earlier_one_that_is_late_does_not() {
        let connections = connections(9);
        let (early, late) = (connections.reserve("a").unwrap(), connections.reserve("a").unwrap());
        let (stop_late, replaces) = late.occupy();
        assert!(!replaces);
        let (stop_early, replaces) = early.occupy();
        assert!(replaces);
        assert_eq!(stop_early.asked().now_or_never(), Some(CloseReason::Replaced));
        let newest = connections.reserve("a").unwrap();
        let _stop = newest.occupy();
        assert_eq!(stop_late.asked().now_or_never(), Some(CloseReason::Replaced));
        drop((early, late));
        assert_eq!(connections.inner().live.len(), 1);
    }

    #[test]
    fn the_limit_is_over_all_sessions_and_lets_replacements_through() {
        let connections = connections(2);
        let places = [connections.reserve("a").unwrap(), connections.reserve("b").unwrap()];
        let _stop = places[0].occupy();
        assert_eq!(connections.reserve("c").unwrap_err(), NoSlot);
        // One whose upgrade is not done is nobody that could be replaced.
        assert_eq!(connections.reserve("b").unwrap_err(), NoSlot);
        let newcomer = connections.reserve("a").unwrap();
        assert_eq!(connections.taken(), 3);
        drop(newcomer);
        let [a, b] = places;
        drop(b);
        connections.reserve("c").unwrap();
        drop(a);
        assert_eq!(connections.taken(), 0);
    }

    #[test]
    fn replacements_that_pile_up_have_a_limit_too() {
        let connections = connections(1);
        let first = connections.reserve("a").unwrap();
        let _stop = first.occupy();
        let pile: Vec<ConnectionSlot> =
            (0..REPLACEMENT_ROOM).map(|_| connections.reserve("a").unwrap()).collect();
        assert_eq!(connections.reserve("a").unwrap_err(), NoSlot);
        drop(pile);
        assert!(connections.reserve("a").is_ok());
    }

    #[test]
    fn many_threads_never_take_more_places_than_there_are() {
        let connections = connections(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let connections = &connections;
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let session = format!("{thread}-{}", round % 7);
                        let Ok(place) = connections.reserve(&session) else { continue };
                        assert!(connections.taken() <= 4 + REPLACEMENT_ROOM);
                        let other = connections.reserve(&session);
                        let _stop = place.occupy();
                        if round % 2 == 0 {
                            drop(place);
                        }
                        drop(other);
                    }
                });
            }
        });
        assert_eq!(connections.taken(), 0);
        assert!(connections.inner().live.is_empty());
    }

    #[test]
    fn all_are_told_when_the_server_ends() {
        let going_away = CancellationToken::new();
        let connections = Connections::new(1, going_away.clone());
        let place = connections.reserve("a").unwrap();
        let (stop, _) = place.occupy();
        going_away.cancel();
        assert_eq!(stop.asked().now_or_never(), Some(CloseReason::GoingAway));
    }
}
