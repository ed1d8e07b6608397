//! How often one client may come. A bucket of permits for each address, which fills up by itself.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::rate::Bucket;
pub use crate::rate::Rate;

/// How many clients are remembered apart. More of them share what is left.
pub const RATE_CLIENTS: usize = 4096;

/// Handshakes of one client on another machine.
pub const HANDSHAKE_RATE: Rate = Rate { per_second: 10.0, burst: 100.0 };
/// Handshakes from this machine: all that come through a proxy, and whoever measures.
pub const LOCAL_HANDSHAKE_RATE: Rate = Rate { per_second: 2_000.0, burst: 20_000.0 };
/// Other requests of one client on another machine.
pub const REQUEST_RATE: Rate = Rate { per_second: 50.0, burst: 200.0 };
/// Other requests from this machine.
pub const LOCAL_REQUEST_RATE: Rate = Rate { per_second: 2_000.0, burst: 4_000.0 };

/// Counts what clients do.
#[derive(Debug)]
pub(super) struct Limiter {
    far: Rate,
    near: Rate,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    by_client: HashMap<IpAddr, Bucket>,
    /// For clients that found no place.
    others: Option<Bucket>,
}

impl Limiter {
    pub(super) fn new(far: Rate, near: Rate) -> Self {
        Self { far, near, buckets: Mutex::default() }
    }

    /// Whether `client` may do it once more, now.
    pub(super) fn admits(&self, client: IpAddr) -> bool {
        let (client, now) = (subject(client), Instant::now());
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
        let bucket = if buckets.by_client.len() < RATE_CLIENTS || buckets.by_client.contains_key(&client) {
            buckets.by_client.entry(client).or_insert(full)
        } else {
            buckets.others.get_or_insert(full)
        };
        bucket.take(rate, now)
    }

    fn rate_of(&self, client: IpAddr) -> Rate {
        if client.is_loopback() { self.near } else { self.far }
    }
}

/// Who is counted: an address, or the network of 64 bits that one client of IPv6 commands.
fn subject(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(client) => client.into(),
        IpAddr::V6(client) if client.is_loopback() => client.into(),
        IpAddr::V6(client) => {
            let [a, b, c, d, ..] = client.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
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

    fn far(last: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0xc000_0200 + last).into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_let_through_and_then_the_rate_holds() {
        let limiter = limiter();
        let times = |client, count: usize| (0..count).filter(|_| limiter.admits(client)).count();
        assert_eq!(times(far(1), 9), 2);
        assert_eq!(times(far(2), 9), 2);
        assert_eq!(times("127.0.0.1".parse().unwrap(), 9), 3);
        tokio::time::advance(Duration::from_millis(1100)).await;
        assert_eq!(times(far(1), 9), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(times(far(1), 9), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn one_network_of_ipv6_is_one_client() {
        let limiter = limiter();
        let admits = |client: &str| limiter.admits(client.parse().unwrap());
        assert!(admits("2001:db8::1") && admits("2001:db8::2") && !admits("2001:db8::3"));
        assert!(admits("2001:db8:0:1::1"));
        assert!(admits("::ffff:192.0.2.1") && admits("192.0.2.1") && !admits("192.0.2.1"));
    }

    #[tokio::test(start_paused = true)]
    async fn clients_beyond_the_limit_share_and_the_idle_are_forgotten() {
        let limiter = limiter();
        let many = u32::try_from(RATE_CLIENTS).unwrap();
        assert!((0..many).all(|client| limiter.admits(far(client))));
        let admitted = (many..many + 10).filter(|client| limiter.admits(far(*client))).count();
        assert_eq!(admitted, 2);
        assert_eq!(limiter.buckets.lock().unwrap().by_client.len(), RATE_CLIENTS);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!((many..many + 10).all(|client| limiter.admits(far(client))));
        assert!(limiter.buckets.lock().unwrap().by_client.len() <= 10);
    }
}
