//! Moments as people and programs read them. All of them are UTC.

use parlor_vocab::Timestamp;

/// `2026-03-04 12:00:00`.
pub(crate) fn time(at: Timestamp) -> String {
    let (date, clock) = parts(at);
    format!("{date} {clock}")
}

/// `2026-03-04 12:00`.
pub(crate) fn minute(at: Timestamp) -> String {
    time(at).chars().take(16).collect()
}

/// `2026-03-04T12:00:00.123Z`, as RFC 3339 has it.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let (date, clock) = parts(at);
    format!("{date}T{clock}.{:03}Z", at.0.rem_euclid(1000))
}

/// How long something took: `7 ms`, `1.5 s`.
pub(crate) fn duration(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}

fn parts(at: Timestamp) -> (String, String) {
    let (days, seconds) = (at.0.div_euclid(86_400_000), at.0.rem_euclid(86_400_000) / 1000);
    let (year, month, day) = date(days);
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    (format!("{year:04}-{month:02}-{day:02}"), clock)
}

/// The calendar date of a day counted from 1970. Eras of 400 years repeat; a year that begins in
/// March has its leap day last, which makes months regular.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
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
    fn programs_get_milliseconds_and_the_zone() {
        assert_eq!(rfc3339(Timestamp(951_826_209_007)), "2000-02-29T12:10:09.007Z");
        assert_eq!(rfc3339(Timestamp(-1)), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(
            [duration(0), duration(999), duration(1000), duration(61_999)],
            ["0 ms", "999 ms", "1.0 s", "61.9 s"]
        );
    }
}
