//! The W3C `traceparent` header: the trace and the span that a caller's request belongs to. parlor ignores `tracestate`.

use std::fmt;

/// A valid `traceparent`, without what versions after 00 may append to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traceparent(String);

impl Traceparent {
    /// Parses the header's value. `None` if it violates the W3C recommendation.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, '-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let rest = parts.next();
        let is_valid = is_hex(version, 2)
            && version != "ff"
            && is_hex(trace, 32)
            && trace.bytes().any(|digit| digit != b'0')
            && is_hex(parent, 16)
            && parent.bytes().any(|digit| digit != b'0')
            && is_hex(flags, 2)
            // Only versions after 00 may append more fields.
            && (version != "00" || rest.is_none());
        is_valid.then(|| Self(format!("{version}-{trace}-{parent}-{flags}")))
    }

    /// The id of the trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        self.0.get(3..35).unwrap_or_default()
    }

    /// The id of the caller's span: 16 hexadecimal digits.
    pub fn parent_id(&self) -> &str {
        self.0.get(36..52).unwrap_or_default()
    }

    /// Version, trace id, parent id and flags, joined by hyphens.
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
    fn a_valid_traceparent_has_a_trace_and_a_parent() {
        let parent = Traceparent::parse(GOOD).unwrap();
        assert_eq!(parent.as_str(), GOOD);
        assert_eq!(parent.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.parent_id(), "00f067aa0ba902b7");
        let later =
            Traceparent::parse(&GOOD.replacen("00", "cc", 1).replace("-01", "-01-what-else")).unwrap();
        assert_eq!(later.trace_id(), parent.trace_id());
    }

    #[test]
    fn an_invalid_traceparent_is_not_parsed() {
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
            &GOOD.replace("-01", ""),
        ] {
            assert_eq!(Traceparent::parse(wrong), None, "{wrong}");
        }
    }
}
