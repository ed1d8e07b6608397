//! The W3C `traceparent`: which trace a caller's request belongs to. `tracestate` is not looked at.

use std::fmt;

/// A `traceparent` that is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traceparent(String);

impl Traceparent {
    /// Reads the header's value; none if it is not as the recommendation has it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, '-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let rest = parts.next();
        let is_right = is_hex(version, 2)
            && version != "ff"
            && is_hex(trace, 32)
            && trace.bytes().any(|digit| digit != b'0')
            && is_hex(parent, 16)
            && parent.bytes().any(|digit| digit != b'0')
            && is_hex(flags, 2)
            // Later versions may say more at the end; this one may not.
            && (version != "00" || rest.is_none());
        is_right.then(|| Self(format!("{version}-{trace}-{parent}-{flags}")))
    }

    /// The trace, as 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        self.0.get(3..35).unwrap_or_default()
    }

    /// The caller's span, as 16 hexadecimal digits.
    pub fn parent_id(&self) -> &str {
        self.0.get(36..52).unwrap_or_default()
    }

    /// The whole of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_right_one_is_taken_apart() {
        let parent = Traceparent::parse(GOOD).unwrap();
        assert_eq!(parent.as_str(), GOOD);
        assert_eq!(parent.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.parent_id(), "00f067aa0ba902b7");
        let later =
            Traceparent::parse(&GOOD.replacen("00", "cc", 1).replace("-01", "-01-what-else")).unwrap();
        assert_eq!(later.trace_id(), parent.trace_id());
    }

    #[test]
    fn what_is_not_right_is_nothing() {
        for wrong in [
            "",
            "00",
            &GOOD.to_uppercase(),
            &GOOD.replacen("00", "ff", 1),
            &format!("{GOOD}-more"),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GOOD.replace("00f067aa0ba902b7", "00f067aa0ba902bé"),
            &GOOD.replace("-01", "-1"),
        ] {
            assert_eq!(Traceparent::parse(wrong), None, "{wrong}");
        }
    }
}
