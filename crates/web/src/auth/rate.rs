//! How often one client may send requests: a token bucket for each group of clients.
//!
//! All users of this machine have the same address, so the owner has one bucket, and all other users share another.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use parlor_transport::{PeerGroup, Rate, TokenBucket};
use tokio::time::Instant;

/// How many clients have a bucket of their own. All further clients share one.
pub const RATE_CLIENTS: usize = 4096;

/// How often one client on another machine may try a handshake.
pub const HANDSHAKE_RATE: Rate = Rate { per_second: 10.0, burst: 100.0 };
/// How often the owner may try a handshake from this machine, and all its other users together: enough for the many
/// clients of a proxy, and for benchmarks.
pub const LOCAL_HANDSHAKE_RATE: Rate = Rate { per_second: 2_000.0, burst: 20_000.0 };
/// How often one client on another machine may send other requests.
pub const REQUEST_RATE: Rate = Rate { per_second: 50.0, burst: 200.0 };
/// How often the owner may send other requests from this machine, and all its other users together.
pub const LOCAL_REQUEST_RATE: Rate = Rate { per_second: 2_000.0, burst: 4_000.0 };

/// Limits how often clients may do something.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// The rate of a client on another machine.
    remote: Rate,
    /// The rate of the owner, and of all other users of this machine together.
    local: Rate,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    by_client: HashMap<PeerGroup, TokenBucket>,
    /// Shared by the clients beyond [`RATE_CLIENTS`].
    others: Option<TokenBucket>,
}

impl RateLimiter {
    pub(crate) fn new(remote: Rate, local: Rate) -> Self {
        Self { remote, local, buckets: Mutex::default() }
    }

    /// Whether `client` may do it now. Counts it if so.
    pub(crate) fn admits(&self, client: PeerGroup) -> bool {
        let now = Instant::now();
        let rate = self.rate_of(client);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.by_client.len() >= RATE_CLIENTS && !buckets.by_client.contains_key(&client) {
            // A full bucket is like a new one, so clients that were idle need none.
            buckets.by_client.retain(|client, bucket| {
                let rate = self.rate_of(*client);
                !bucket.is_full(rate, now)
            });
        }
        let full = TokenBucket::full(rate, now);
        // Clients on this machine always have a bucket of their own, however many others there are.
        let is_local = !matches!(client, PeerGroup::Remote(_));
        let has_bucket =
            is_local || buckets.by_client.len() < RATE_CLIENTS || buckets.by_client.contains_key(&client);
        let bucket = if has_bucket {
            buckets.by_client.entry(client).or_insert(full)
        } else {
            buckets.others.get_or_insert(full)
        };
        bucket.take(rate, now)
    }

    fn rate_of(&self, client: PeerGroup) -> Rate {
        match client {
            PeerGroup::Owner | PeerGroup::OtherUser(_) | PeerGroup::UnknownUsers => self.local,
            PeerGroup::Remote(_) => self.remote,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limiter() -> RateLimiter {
        let local = Rate { per_second: 1.0, burst: 3.0 };
        RateLimiter::new(Rate { per_second: 1.0, burst: 2.0 }, local)
    }

    fn remote(last: u32) -> PeerGroup {
        PeerGroup::Remote(std::net::Ipv4Addr::from_bits(0xc000_0200 + last).into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_admitted_and_then_the_rate_applies() {
        let limiter = limiter();
        let times = |client, count: usize| (0..count).filter(|_| limiter.admits(client)).count();
        assert_eq!(times(remote(1), 9), 2);
        assert_eq!(times(remote(2), 9), 2);
        assert_eq!(times(PeerGroup::OtherUser(5), 9), 3);
        assert_eq!(
            times(PeerGroup::Owner, 9),
            3,
            "other users of the machine do not use up the owner's bucket"
        );
        tokio::time::advance(Duration::from_millis(1100)).await;
        assert_eq!(times(remote(1), 9), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(times(remote(1), 9), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_beyond_the_limit_share_a_bucket_and_idle_ones_are_forgotten() {
        let limiter = limiter();
        let many = u32::try_from(RATE_CLIENTS).unwrap();
        assert!((0..many).all(|client| limiter.admits(remote(client))));
        let admitted = (many..many + 10).filter(|client| limiter.admits(remote(*client))).count();
        assert_eq!(admitted, 2);
        assert_eq!((0..9).filter(|_| limiter.admits(PeerGroup::Owner)).count(), 3);
        assert_eq!(limiter.buckets.lock().unwrap().by_client.len(), RATE_CLIENTS + 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!((many..many + 10).all(|client| limiter.admits(remote(client))));
        assert!(limiter.buckets.lock().unwrap().by_client.len() <= 10);
    }
}
