//! Which connections have sent nothing yet, so that the one that has been silent for longest can make room for a new one.
//!
//! A web page can make a browser open connections to any port and send nothing on them. They count as the user's own, and
//! would use up all connections of a door.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::connection_limiter::ConnectionPermit;
use crate::peer::PeerGroup;

/// The connections of a door that have sent nothing yet, of all groups of peers.
#[derive(Debug, Default)]
pub(crate) struct SilentConnections(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The number of the newest connection.
    last: u64,
    /// By group; the oldest connection first.
    silent: HashMap<PeerGroup, BTreeMap<u64, Entry>>,
}

#[derive(Debug)]
struct Entry {
    permit: ConnectionPermit,
    close: CancellationToken,
}

/// A connection that may not have sent anything yet. Dropping it returns its permit.
#[derive(Debug)]
pub(crate) struct SilentConnection {
    connections: Arc<SilentConnections>,
    group: PeerGroup,
    number: u64,
    /// Cancelled if the connection has to close.
    pub(crate) close: CancellationToken,
}

impl SilentConnections {
    /// Adds a connection that has sent nothing.
    pub(crate) fn add(self: &Arc<Self>, group: PeerGroup, permit: ConnectionPermit) -> SilentConnection {
        let close = CancellationToken::new();
        let mut inner = self.lock();
        inner.last += 1;
        let number = inner.last;
        inner.silent.entry(group).or_default().insert(number, Entry { permit, close: close.clone() });
        SilentConnection { connections: Arc::clone(self), group, number, close }
    }

    /// Closes the connection of `group` that has been silent for longest, and returns its permit.
    pub(crate) fn close_oldest(&self, group: PeerGroup) -> Option<ConnectionPermit> {
        let (_, Entry { permit, close }) = self.lock().silent.get_mut(&group)?.pop_first()?;
        close.cancel();
        Some(permit)
    }

    fn remove(&self, group: PeerGroup, number: u64) -> Option<Entry> {
        let mut inner = self.lock();
        let of_group = inner.silent.get_mut(&group)?;
        let entry = of_group.remove(&number);
        if of_group.is_empty() {
            inner.silent.remove(&group);
        }
        entry
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic cannot leave the maps half changed: each change is a single call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SilentConnection {
    /// The connection has sent something. Returns its permit, unless it has to close.
    pub(crate) fn on_input(&self) -> Option<ConnectionPermit> {
        self.connections.remove(self.group, self.number).map(|entry| entry.permit)
    }
}

impl Drop for SilentConnection {
    fn drop(&mut self) {
        self.connections.remove(self.group, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_limiter::{ConnectionLimiter, ConnectionLimits};

    #[test]
    fn the_connection_that_has_been_silent_for_longest_makes_room() {
        let limits = ConnectionLimits { all: 4, other_users: 4, address: 4, owner_only: 0 };
        let (limiter, silent) = (ConnectionLimiter::new(limits), Arc::new(SilentConnections::default()));
        let add = |group| silent.add(group, limiter.try_acquire(group).unwrap());
        let [first, second, third] = [(); 3].map(|()| add(PeerGroup::Owner));
        let other = add(PeerGroup::OtherUser(5));
        assert!(limiter.try_acquire(PeerGroup::Owner).is_none());
        let busy = first.on_input().unwrap();
        let permit = silent.close_oldest(PeerGroup::Owner).unwrap();
        let must_close = [&first, &second, &third, &other].map(|silent| silent.close.is_cancelled());
        assert_eq!(must_close, [false, true, false, false]);
        assert!(second.on_input().is_none(), "its permit is another connection's now");
        drop((first, second, third, other, busy, permit));
        assert!(silent.lock().silent.is_empty() && silent.close_oldest(PeerGroup::Owner).is_none());
        let permits: Vec<_> = std::iter::from_fn(|| limiter.try_acquire(PeerGroup::Owner)).collect();
        assert_eq!(permits.len(), limits.all);
    }
}
