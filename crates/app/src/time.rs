//! Formats timestamps, in UTC, and durations for output.

use parlor_vocab::Timestamp;

/// `2026-03-04 12:00:00`.
pub(crate) fn time(at: Timestamp) -> String {
    at.rfc3339().replace('T', " ").chars().take(19).collect()
}

/// `2026-03-04 12:00`.
pub(crate) fn minute(at: Timestamp) -> String {
    time(at).chars().take(16).collect()
}

/// How long something took: `7 ms`, `1.5 s`.
pub(crate) fn duration(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_calendar_times() {
        assert_eq!(time(Timestamp(0)), "1970-01-01 00:00:00");
        assert_eq!(time(Timestamp(951_826_209_000)), "2000-02-29 12:10:09");
        assert_eq!(time(Timestamp(-1)), "1969-12-31 23:59:59");
        assert_eq!(time(Timestamp(4_102_444_800_000)), "2100-01-01 00:00:00");
        assert_eq!(minute(Timestamp(951_826_209_000)), "2000-02-29 12:10");
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(
            [duration(0), duration(999), duration(1000), duration(61_999)],
            ["0 ms", "999 ms", "1.0 s", "61.9 s"]
        );
    }
}
