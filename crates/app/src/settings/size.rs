//! Sizes in bytes as people write them, such as `10GiB`.

/// The units with their number of bytes: binary units first, each group from the largest to the smallest, for printing.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("B", 1),
];

/// Reads `10GiB`, `500 MB` or a plain number of bytes.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let bytes = match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((_, bytes)) => *bytes,
        None if unit.is_empty() => 1,
        None => return Err(wrong(text)),
    };
    let number: u64 = number.parse().map_err(|_| wrong(text))?;
    number.checked_mul(bytes).ok_or_else(|| format!("{text:?} is too large"))
}

/// `10.0 GiB`: with one decimal, in the unit that fits.
pub(crate) fn show(bytes: u64) -> String {
    match UNITS.iter().take(4).find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// `10GiB`: [`parse`] reads it back to the same number.
pub(crate) fn exact(bytes: u64) -> String {
    match UNITS.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

fn wrong(text: &str) -> String {
    format!("{text:?} is not a size; write a whole number and a unit, such as 500MB or 10GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_number_and_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("10GiB", 10 << 30),
            (" 500 mb ", 500_000_000),
            ("1kB", 1000),
            ("7B", 7),
            ("2tib", 2 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "-1", "1.5GiB", "10 parsecs", "ten", "99999999999TiB", "1 GiB x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_exact_size_is_read_back() {
        for (bytes, text) in [(0, "0B"), (10 << 30, "10GiB"), (500_000_000, "500MB"), (1025, "1025B")] {
            assert_eq!((exact(bytes).as_str(), parse(text)), (text, Ok(bytes)));
        }
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        assert_eq!(
            [show(0), show(1023), show(1024), show(10 << 30)],
            ["0 B", "1023 B", "1.0 KiB", "10.0 GiB"]
        );
    }
}
