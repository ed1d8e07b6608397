//! The places of one door: how many connections it serves, and who may have how many of them.
//!
//! Anybody on the machine can connect to a door at a loopback address, and connections can be held open without saying
//! anything. So whoever is not the owner has a share, and some places are the owner's alone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::peer::Account;

/// How many connections a door serves, and of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// All of them.
    pub all: usize,
    /// Those of all other users of this machine together.
    pub other_users: usize,
    /// Those of one address on another machine.
    pub address: usize,
    /// Those that only the owner gets.
    pub owner_only: usize,
}

/// Gives out the places of a door.
#[derive(Debug)]
pub struct Places {
    all: Arc<Semaphore>,
    taken: Arc<Mutex<Taken>>,
    shares: Shares,
}

/// What others than the owner have.
#[derive(Debug, Default)]
struct Taken {
    other_users: usize,
    remote: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A place. It is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    _one_of_all: OwnedSemaphorePermit,
    _share: Option<Share>,
}

/// One place of what others than the owner may have.
#[derive(Debug)]
struct Share {
    account: Account,
    taken: Arc<Mutex<Taken>>,
}

impl Places {
    /// All places are free.
    pub fn new(shares: Shares) -> Self {
        let all = Arc::new(Semaphore::new(shares.all));
        Self { all, taken: Arc::default(), shares }
    }

    /// A place for `account`, if it may have one more and there is one.
    pub fn take(&self, account: Account) -> Option<Place> {
        let share = self.share(account)?;
        let one_of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Place { _one_of_all: one_of_all, _share: share })
    }

    /// The same; but the owner waits until there is one.
    pub async fn take_patiently(&self, account: Account) -> Option<Place> {
        if account != Account::Owner {
            return self.take(account);
        }
        let one_of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Place { _one_of_all: one_of_all, _share: None })
    }

    /// What `account` needs beside a place. None if it may have no more.
    fn share(&self, account: Account) -> Option<Option<Share>> {
        let Shares { all, other_users, address, owner_only } = self.shares;
        let mut taken = lock(&self.taken);
        let is_room = taken.other_users + taken.remote + owner_only < all;
        match account {
            Account::Owner => return Some(None),
            Account::OtherUsers if is_room && taken.other_users < other_users => taken.other_users += 1,
            Account::Remote(ip) if is_room && taken.by_address.get(&ip).is_none_or(|had| *had < address) => {
                taken.remote += 1;
                *taken.by_address.entry(ip).or_default() += 1;
            }
            Account::OtherUsers | Account::Remote(_) => return None,
        }
        Some(Some(Share { account, taken: Arc::clone(&self.taken) }))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        match self.account {
            Account::Owner => {}
            Account::OtherUsers => taken.other_users -= 1,
            Account::Remote(ip) => {
                taken.remote -= 1;
                let left = taken.by_address.get(&ip).copied().unwrap_or_default();
                if left > 1 {
                    taken.by_address.insert(ip, left - 1);
                } else {
                    taken.by_address.remove(&ip);
                }
            }
        }
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: Shares = Shares { all: 10, other_users: 3, address: 4, owner_only: 2 };

    fn remote(last: u8) -> Account {
        Account::Remote([192, 0, 2, last].into())
    }

    fn taken(places: &Places, account: Account) -> Vec<Place> {
        std::iter::from_fn(|| places.take(account)).take(SHARES.all + 1).collect()
    }

    #[test]
    fn each_has_a_share_and_the_owner_always_gets_in() {
        let places = Places::new(SHARES);
        let others = taken(&places, Account::OtherUsers);
        let near = taken(&places, remote(1));
        let far = taken(&places, remote(2));
        assert_eq!([others.len(), near.len(), far.len()], [3, 4, 1]);
        assert_eq!(taken(&places, remote(3)).len(), 0);
        let owners = taken(&places, Account::Owner);
        assert_eq!(owners.len(), SHARES.owner_only);
        drop((others, near, far, owners));
        assert_eq!(taken(&places, Account::Owner).len(), SHARES.all);
        assert!(lock(&places.taken).by_address.is_empty());
        assert_eq!(taken(&places, Account::OtherUsers).len(), 3);
    }

    #[tokio::test]
    async fn only_the_owner_waits_for_a_place() {
        let places = Places::new(SHARES);
        let mut all = taken(&places, Account::Owner);
        assert!(places.take_patiently(remote(1)).await.is_none());
        let mut waiting = std::pin::pin!(places.take_patiently(Account::Owner));
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("there is none"),
            () = std::future::ready(()) => {}
        }
        all.pop();
        assert!(waiting.await.is_some());
    }
}
