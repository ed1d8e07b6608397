//! Traits for the clock and for unique numbers. Code receives both as arguments, so that tests can supply their own.

use std::fmt;

/// A point in time: milliseconds since the start of 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Formats the time as RFC 3339 in UTC, such as `2026-03-04T12:00:00.123Z`.
    pub fn rfc3339(self) -> String {
        let (year, month, day) = self.date();
        let seconds = self.0.rem_euclid(86_400_000) / 1000;
        let (hour, minute, second, ms) =
            (seconds / 3600, seconds / 60 % 60, seconds % 60, self.0.rem_euclid(1000));
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }

    /// Year, month and day in UTC. The calendar repeats every 400 years (an era). The calculation uses years that begin
    /// in March: their leap day comes last, so the lengths of months follow one formula.
    fn date(self) -> (i64, i64, i64) {
        let days = self.0.div_euclid(86_400_000) + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        (year_of_era + era * 400 + i64::from(month <= 2), month, day)
    }
}

/// Returns the time of day. For waiting, code uses the async runtime's timers.
pub trait Clock: Send + Sync {
    /// The present time.
    fn now(&self) -> Timestamp;
}

/// Generates globally unique numbers that grow with time.
pub trait IdSource: Send + Sync {
    /// Generates a number.
    fn next(&self) -> UniqueNumber;
}

/// A number from an [`IdSource`]. `Display` writes 32 hexadecimal digits, so that text sorts like the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UniqueNumber(pub u128);

impl fmt::Display for UniqueNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_formats_calendar_times() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_826_209_007, "2000-02-29T12:10:09.007Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp(ms).rfc3339(), text);
        }
    }
}
