//! Recognises other protocols on a TCP door that expects JSON lines.
//!
//! A web page can make a browser connect to any port of this machine, and the page chooses most of the bytes that follow
//! the browser's own first bytes. So a door closes a connection that begins with HTTP, TLS, SSH or STUN before it reads
//! further. No JSON begins like these protocols, and broken JSON of a real client is not mistaken for one of them.

use std::fmt;

/// A protocol that no JSON-lines door speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignProtocol {
    /// A request line, a status line or a header line of HTTP, or the preface of HTTP/2.
    Http,
    /// A TLS handshake record.
    Tls,
    /// The banner of an SSH client.
    Ssh,
    /// A STUN or TURN message. Browsers send these over TCP with a user name that the page chooses.
    Stun,
    /// An unknown protocol: its first line does not begin with a JSON object.
    Unknown,
}

/// HTTP methods that are recognised before their line is complete. Any other method needs `HTTP/` after it.
const METHODS: [&[u8]; 10] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"DELETE ",
    b"OPTIONS ",
    b"TRACE ",
    b"CONNECT ",
    b"PATCH ",
    b"PRI ",
];

/// The bytes 4 to 8 of every STUN message (RFC 8489, section 5).
const STUN_COOKIE: &[u8] = &[0x21, 0x12, 0xa4, 0x42];

impl ForeignProtocol {
    /// The protocol of the line that `start` begins with. `start` may hold a part of the line, or more than it.
    pub fn recognize(start: &[u8]) -> Option<Self> {
        match start {
            [0x16, 0x03, ..] => Some(Self::Tls),
            [0x00 | 0x01, _, _, _, rest @ ..] if rest.starts_with(STUN_COOKIE) => Some(Self::Stun),
            [first, ..] if first.is_ascii_alphabetic() => {
                let end = memchr::memchr(b'\n', start).unwrap_or(start.len());
                recognize_text(start.get(..end).unwrap_or_default())
            }
            _ => None,
        }
    }

    /// The protocol of a line where only a JSON object or a blank line is allowed; `None` for these two.
    pub fn recognize_non_object(start: &[u8]) -> Option<Self> {
        let is_blank = |byte: &&u8| matches!(**byte, b' ' | b'\t' | b'\r');
        match start.iter().find(|byte| !is_blank(byte)) {
            None | Some(b'{' | b'\n') => None,
            Some(_) => Some(Self::recognize(start).unwrap_or(Self::Unknown)),
        }
    }
}

impl fmt::Display for ForeignProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Tls => "TLS",
            Self::Ssh => "SSH",
            Self::Stun => "STUN",
            Self::Unknown => "no JSON",
        })
    }
}

fn recognize_text(line: &[u8]) -> Option<ForeignProtocol> {
    if line.starts_with(b"SSH-") {
        return Some(ForeignProtocol::Ssh);
    }
    let is_known_method = METHODS.iter().any(|method| line.starts_with(method));
    (is_known_method || is_header(line) || names_http(line)).then_some(ForeignProtocol::Http)
}

/// `Name: value`.
fn is_header(line: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    line.iter().find(|byte| !is_name(byte)) == Some(&b':')
}

/// `ANYTHING target HTTP/1.1` and `HTTP/1.1 200 OK`.
fn names_http(line: &[u8]) -> bool {
    const NAME: &[u8] = b"HTTP/";
    let is_name = |word: &[u8]| word.get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME));
    line.split(|byte| *byte == b' ').any(is_name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_protocols_are_recognised_by_their_first_bytes() {
        for (start, protocol) in [
            (&b"GET / HTTP/1.1\r\nHost: x"[..], ForeignProtocol::Http),
            (b"POST ", ForeignProtocol::Http),
            (b"get / http/1.0\r\n", ForeignProtocol::Http),
            (b"PROPFIND /x HTTP/1.1\r\n", ForeignProtocol::Http),
            (b"HTTP/1.1 200 OK\r\n", ForeignProtocol::Http),
            (b"PRI * HTTP/2.0\r\n", ForeignProtocol::Http),
            (b"Sec-Fetch-Site: cross-site", ForeignProtocol::Http),
            (b"x_y:", ForeignProtocol::Http),
            (b"SSH-2.0-", ForeignProtocol::Ssh),
            (b"\x16\x03\x01", ForeignProtocol::Tls),
            (b"\x00\x03\x00\x08\x21\x12\xa4\x42", ForeignProtocol::Stun),
        ] {
            assert_eq!(ForeignProtocol::recognize(start), Some(protocol), "{start:?}");
        }
    }

    #[test]
    fn broken_json_is_not_a_foreign_protocol() {
        for start in [
            "",
            "{",
            "{bad",
            "not json",
            "true",
            "null",
            "5",
            "5:",
            "\"Host: x\"",
            "[\"GET / HTTP/1.1\"]",
            " GET",
            "\r",
            "\u{feff}{}",
            "GETTING",
            "word\nHost: x",
            "\0",
            "\u{16}",
            "hello there: x",
            "SSH",
        ] {
            assert_eq!(ForeignProtocol::recognize(start.as_bytes()), None, "{start:?}");
        }
    }

    #[test]
    fn a_non_object_is_recognised_by_its_first_byte() {
        for start in ["", " ", "\r", "\r\n{", "\n", "{", " \t{bad", "{}"] {
            assert_eq!(ForeignProtocol::recognize_non_object(start.as_bytes()), None, "{start:?}");
        }
        for start in ["x", "5", "[", "\"", "\u{feff}{}", " EHLO x", "\0\x14\0\x01", "\x05\x01\0", "@\0\0\x10"]
        {
            let unknown = Some(ForeignProtocol::Unknown);
            assert_eq!(ForeignProtocol::recognize_non_object(start.as_bytes()), unknown, "{start:?}");
        }
        assert_eq!(ForeignProtocol::recognize_non_object(b"GET /"), Some(ForeignProtocol::Http));
    }

    proptest! {
        #[test]
        fn valid_json_is_never_a_foreign_protocol(value in any::<Option<Vec<String>>>(), space in "[ \t\r]{0,3}") {
            let json = serde_json::json!({"method": "GET / HTTP/1.1", "params": value}).to_string();
            prop_assert_eq!(ForeignProtocol::recognize(format!("{space}{json}").as_bytes()), None);
        }
    }
}
