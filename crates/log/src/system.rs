//! The system clock and random ids. No other module of parlor reads the system clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use parlor_vocab::{Clock, IdSource, Timestamp, UniqueNumber};

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "all other code gets the time from this clock")]
    fn now(&self) -> Timestamp {
        let millis = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()),
            Err(before) => i64::try_from(before.duration().as_millis()).map(|millis| -millis),
        };
        Timestamp(millis.unwrap_or(i64::MAX))
    }
}

/// Generates numbers in the layout of UUID version 7: milliseconds, then random bits.
///
/// The numbers strictly increase within a process, even when the clock is set back. Across processes they sort by time.
pub struct TimeOrderedIds {
    clock: Arc<dyn Clock>,
    last: Mutex<u128>,
}

impl TimeOrderedIds {
    /// Takes the milliseconds from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, last: Mutex::new(0) }
    }
}

impl IdSource for TimeOrderedIds {
    fn next(&self) -> UniqueNumber {
        let millis = u64::try_from(self.clock.now().0).unwrap_or(0);
        // A panic cannot leave a plain number half changed.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // New random bits once a millisecond. Within a millisecond, and after the clock was set back, the next number
        // is the last one plus one, so that the order holds.
        *last = if u128::from(millis) > *last >> 80 { uuid_v7(millis, random_u128()) } else { *last + 1 };
        UniqueNumber(*last)
    }
}

/// Puts the time, the version and the variant where UUID version 7 has them. The highest random bit stays zero, so that
/// `last + 1` cannot overflow into the variant.
fn uuid_v7(millis: u64, random: u128) -> u128 {
    const VERSION: u128 = 0x7 << 76;
    const VARIANT: u128 = 0b10 << 62;
    const LOW: u128 = (1 << 61) - 1;
    let middle = (random >> 64 & 0xfff) << 64;
    (u128::from(millis) & 0xffff_ffff_ffff) << 80 | VERSION | middle | VARIANT | random & LOW
}

/// 128 bits from the operating system's cryptographic random generator.
pub fn random_u128() -> u128 {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("getrandom failed: {error}"),
        }
    }
    u128::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    struct ManualClock(AtomicI64);

    impl Clock for ManualClock {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn numbers_grow_within_a_millisecond_and_when_the_clock_is_set_back() {
        let clock = Arc::new(ManualClock(AtomicI64::new(1000)));
        let ids = TimeOrderedIds::new(Arc::<ManualClock>::clone(&clock));
        let mut last = UniqueNumber(0);
        for now in [1000, 1000, 1001, 500, 500, -3, 1001, 1002, 9000] {
            clock.0.store(now, Ordering::Relaxed);
            let next = ids.next();
            assert!(next > last, "at {now}");
            last = next;
        }
        assert_eq!(last.0 >> 80, 9000);
    }

    #[test]
    fn numbers_have_the_layout_of_uuid_version_7() {
        for random in [0, u128::MAX, 0x1234_5678_9abc_def0 << 40] {
            let number = uuid_v7(0x0123_4567_89ab, random);
            assert_eq!(number >> 80, 0x0123_4567_89ab);
            assert_eq!((number >> 76 & 0xf, number >> 62 & 0b11), (7, 0b10));
        }
    }

    #[test]
    fn threads_and_sources_never_generate_the_same_number() {
        let sources = [(); 2].map(|()| TimeOrderedIds::new(Arc::new(SystemClock)));
        let numbers = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let source = &sources[thread % 2];
                    scope.spawn(|| (0..5_000).map(|_| source.next().0).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 20_000);
    }
}
