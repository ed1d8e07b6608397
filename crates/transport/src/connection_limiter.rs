//! Limits how many connections one door serves at a time, in total and per group of peers.
//!
//! Any user of the machine can connect to a door at a loopback address and hold connections open without sending anything.
//! So every peer that is not the owner's has a limited share, and some connections are reserved for the owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::peer::PeerGroup;

/// How many connections a door serves at a time, in total and for each group of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The total, owner included.
    pub all: usize,
    /// The most for all other users of this machine together. One of them gets half of it at most, so that it cannot keep
    /// out the others, such as the user of a proxy.
    pub other_users: usize,
    /// The most for one address on another machine.
    pub address: usize,
    /// How many of `all` are reserved for the owner.
    pub owner_only: usize,
}

/// Hands out one [`ConnectionPermit`] per connection of a door, within [`ConnectionLimits`].
#[derive(Debug)]
pub struct ConnectionLimiter {
    all: Arc<Semaphore>,
    in_use: Arc<Mutex<InUse>>,
    limits: ConnectionLimits,
}

/// How many permits are held by groups other than the owner.
#[derive(Debug, Default)]
struct InUse {
    other_users: usize,
    remote: usize,
    by_group: HashMap<PeerGroup, usize>,
}

/// The right to one connection. Dropping it frees the connection for another peer.
#[derive(Debug)]
pub struct ConnectionPermit {
    _one_of_all: OwnedSemaphorePermit,
    _group_permit: Option<GroupPermit>,
}

/// One connection of a group other than the owner.
#[derive(Debug)]
struct GroupPermit {
    group: PeerGroup,
    in_use: Arc<Mutex<InUse>>,
}

impl ConnectionLimiter {
    /// A limiter of which no permit is held.
    pub fn new(limits: ConnectionLimits) -> Self {
        let all = Arc::new(Semaphore::new(limits.all));
        Self { all, in_use: Arc::default(), limits }
    }

    /// Takes a permit for a peer of `group`. None if the group has reached its limit or all permits are held.
    pub fn try_acquire(&self, group: PeerGroup) -> Option<ConnectionPermit> {
        let group_permit = self.group_permit(group).ok()?;
        let one_of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(ConnectionPermit { _one_of_all: one_of_all, _group_permit: group_permit })
    }

    /// Like [`try_acquire`](Self::try_acquire), except that the owner waits until a permit is free.
    pub async fn acquire(&self, group: PeerGroup) -> Option<ConnectionPermit> {
        if group != PeerGroup::Owner {
            return self.try_acquire(group);
        }
        let one_of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(ConnectionPermit { _one_of_all: one_of_all, _group_permit: None })
    }

    /// Counts one more connection of `group`; the owner is not counted. Fails if the group has reached its limit.
    fn group_permit(&self, group: PeerGroup) -> Result<Option<GroupPermit>, LimitReached> {
        let ConnectionLimits { all, other_users, address, owner_only } = self.limits;
        let mut in_use = lock(&self.in_use);
        let has_room = in_use.other_users + in_use.remote + owner_only < all;
        let of_group = in_use.by_group.get(&group).copied().unwrap_or_default();
        match group {
            PeerGroup::Owner => return Ok(None),
            PeerGroup::OtherUser(_) | PeerGroup::UnknownUsers
                if has_room && in_use.other_users < other_users && of_group < other_users.div_ceil(2) =>
            {
                in_use.other_users += 1;
            }
            PeerGroup::Remote(_) if has_room && of_group < address => in_use.remote += 1,
            PeerGroup::OtherUser(_) | PeerGroup::UnknownUsers | PeerGroup::Remote(_) => {
                return Err(LimitReached);
            }
        }
        in_use.by_group.insert(group, of_group + 1);
        Ok(Some(GroupPermit { group, in_use: Arc::clone(&self.in_use) }))
    }
}

/// A group holds as many permits as it may.
struct LimitReached;

impl Drop for GroupPermit {
    fn drop(&mut self) {
        let mut in_use = lock(&self.in_use);
        match self.group {
            PeerGroup::Owner => {}
            PeerGroup::OtherUser(_) | PeerGroup::UnknownUsers => in_use.other_users -= 1,
            PeerGroup::Remote(_) => in_use.remote -= 1,
        }
        let of_group = in_use.by_group.get(&self.group).copied().unwrap_or_default();
        if of_group > 1 {
            in_use.by_group.insert(self.group, of_group - 1);
        } else {
            in_use.by_group.remove(&self.group);
        }
    }
}

fn lock(in_use: &Mutex<InUse>) -> MutexGuard<'_, InUse> {
    in_use.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits { all: 10, other_users: 3, address: 4, owner_only: 2 };

    fn remote(last: u8) -> PeerGroup {
        PeerGroup::Remote([192, 0, 2, last].into())
    }

    fn acquire_all(limiter: &ConnectionLimiter, group: PeerGroup) -> Vec<ConnectionPermit> {
        std::iter::from_fn(|| limiter.try_acquire(group)).take(LIMITS.all + 1).collect()
    }

    #[test]
    fn each_group_has_a_limit_and_the_owner_always_gets_a_permit() {
        let limiter = ConnectionLimiter::new(LIMITS);
        let user = acquire_all(&limiter, PeerGroup::OtherUser(5));
        let unknown = acquire_all(&limiter, PeerGroup::UnknownUsers);
        assert_eq!(
            [user.len(), unknown.len(), acquire_all(&limiter, PeerGroup::OtherUser(6)).len()],
            [2, 1, 0]
        );
        let first_remote = acquire_all(&limiter, remote(1));
        let second_remote = acquire_all(&limiter, remote(2));
        assert_eq!([first_remote.len(), second_remote.len()], [4, 1]);
        assert_eq!(acquire_all(&limiter, remote(3)).len(), 0);
        let owners = acquire_all(&limiter, PeerGroup::Owner);
        assert_eq!(owners.len(), LIMITS.owner_only);
        drop((user, unknown, first_remote, second_remote, owners));
        assert_eq!(acquire_all(&limiter, PeerGroup::Owner).len(), LIMITS.all);
        assert!(lock(&limiter.in_use).by_group.is_empty());
        assert_eq!(acquire_all(&limiter, PeerGroup::OtherUser(5)).len(), 2);
    }

    #[tokio::test]
    async fn only_the_owner_waits_for_a_permit() {
        let limiter = ConnectionLimiter::new(LIMITS);
        let mut all = acquire_all(&limiter, PeerGroup::Owner);
        assert!(limiter.acquire(remote(1)).await.is_none());
        let mut waiting = std::pin::pin!(limiter.acquire(PeerGroup::Owner));
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("all permits are held"),
            () = std::future::ready(()) => {}
        }
        all.pop();
        assert!(waiting.await.is_some());
    }
}
