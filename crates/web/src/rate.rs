//! How often one client may come. A bucket of permits for each account, which fills up by itself.
//!
//! All who come from this machine have the same address, so its owner and its other users have a bucket each.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use parlor_transport::Account;
use parlor_transport::Bucket;
use parlor_transport::Rate;

/// How many clients are remembered apart. More of them share what is left.
pub const RATE_CLIENTS: usize = 4096;

/// Handshakes of one client on another machine.
pub const HANDSHAKE_RATE: Rate = Rate { per_second: 10.0, burst: 100.0 };
/// Handshakes from this machine, of the owner and of all others each: what comes through a proxy, and whoever measures.
pub const LOCAL_HANDSHAKE_RATE: Rate = Rate { per_second: 2_000.0, burst: 20_000.0 };
/// Other requests of one client on another machine.
pub const REQUEST_RATE: Rate = Rate { per_second: 50.0, burst: 200.0 };
/// Other requests from this machine, likewise.
pub const LOCAL_REQUEST_RATE: Rate = Rate { per_second: 2_000.0, burst: 4_000.0 };

/// Counts what clients do.
#[derive(Debug)]
pub(crate) struct Limiter {
    far: Rate,
    near: Rate,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    by_client: HashMap<Account, Bucket>,
    /// For clients that found no place.
    others: Option<Bucket>,
}

impl Limiter {
    pub(crate) fn new(far: Rate, near: Rate) -> Self {
        Self { far, near, buckets: Mutex::default() }
    }

    /// Whether `client` may do it once more, now.
    pub(super) fn admits(&self, client: Account) -> bool {
        let now = Instant::now();
        let rate = self.rate_of(client);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.by_client.len() >= RATE_CLIENTS && !buckets.by_client.contains_key(&client) {
            // Whoever has not come for a while is forgotten: their bucket is full again.
            buckets.by_client.retain(|client, bucket| {
                let rate = self.rate_of(*client);
                !bucket.is_full(rate, now)
            });
        }
        let full = Bucket::full(rate, now);
        // Who is on this machine is never crowded out by those who are not.
        let is_near = !matches!(client, Account::Remote(_));
        let is_kept =
            is_near || buckets.by_client.len() < RATE_CLIENTS || buckets.by_client.contains_key(&client);
        let bucket = if is_kept {
            buckets.by_client.entry(client).or_insert(full)
        } else {
            buckets.others.get_or_insert(full)
        };
        bucket.take(rate, now)
    }

    fn rate_of(&self, client: Account) -> Rate {
        match client {
            Account::Owner | Account::OtherUsers => self.near,
            Account::Remote(_) => self.far,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limiter() -> Limiter {
        let near = Rate { per_second: 1.0, burst: 3.0 };
        Limiter::new(Rate { per_second: 1.0, burst: 2.0 }, near)
    }

    fn far(last: u32) -> Account {
        Account::Remote(std::net::Ipv4Addr::from_bits(0xc000_0200 + last).into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_let_through_and_then_the_rate_holds() {
        let limiter = limiter();
        let times = |client, count: usize| (0..count).filter(|_| limiter.admits(client)).count();
        assert_eq!(times(far(1), 9), 2);
        assert_eq!(times(far(2), 9), 2);
        assert_eq!(times(Account::OtherUsers, 9), 3);
        assert_eq!(times(Account::Owner, 9), 3, "whatever other users of the machine do");
        tokio::time::advance(Duration::from_millis(1100)).await;
        assert_eq!(times(far(1), 9), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(times(far(1), 9), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_beyond_the_limit_share_and_the_idle_are_forgotten() {
        let limiter = limiter();
        let many = u32::try_from(RATE_CLIENTS).unwrap();
        assert!((0..many).all(|client| limiter.admits(far(client))));
        let admitted = (many..many + 10).filter(|client| limiter.admits(far(*client))).count();
        assert_eq!(admitted, 2);
        assert_eq!((0..9).filter(|_| limiter.admits(Account::Owner)).count(), 3);
        assert_eq!(limiter.buckets.lock().unwrap().by_client.len(), RATE_CLIENTS + 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!((many..many + 10).all(|client| limiter.admits(far(client))));
        assert!(limiter.buckets.lock().unwrap().by_client.len() <= 10);
    }
}
