//! The extensions of a WebSocket that a handshake offers. Parlor knows one: permessage-deflate (RFC 7692).

use axum::http::header::{HeaderMap, SEC_WEBSOCKET_EXTENSIONS};
use parlor_transport::{Deflate, MAX_WINDOW_BITS};

const DEFLATE: &str = "permessage-deflate";

/// Picks the first offer of compression that the server can keep to. Returns the compression, and the value of the header
/// that tells the client.
pub(super) fn negotiate(headers: &HeaderMap) -> Option<(Deflate, String)> {
    let lines = headers.get_all(SEC_WEBSOCKET_EXTENSIONS).into_iter().filter_map(|line| line.to_str().ok());
    // A comma within quotes cuts an offer in two, which are both invalid: no parameter has a value with a comma.
    lines.flat_map(|line| line.split(',')).find_map(accept)
}

/// Accepts an offer if the server knows all its parameters and can keep to them.
fn accept(offer: &str) -> Option<(Deflate, String)> {
    let mut parts = offer.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(DEFLATE) {
        return None;
    }
    let mut given: Vec<(String, Option<&str>)> = Vec::new();
    for part in parts {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name.trim(), Some(unquoted(value.trim()))),
            None => (part, None),
        };
        let name = name.to_ascii_lowercase();
        if given.iter().any(|(other, _)| *other == name) {
            return None;
        }
        given.push((name, value));
    }
    let mut server_bits = None;
    for (name, value) in &given {
        match (name.as_str(), value) {
            (
                "server_no_context_takeover" | "client_no_context_takeover" | "client_max_window_bits",
                None,
            ) => {}
            // The server can inflate what any window has compressed, so it does not ask for another one.
            ("client_max_window_bits", Some(value)) => _ = window_bits(value)?,
            ("server_max_window_bits", Some(value)) => server_bits = Some(window_bits(value)?),
            (_, _) => return None,
        }
    }
    let deflate = Deflate::with_window_bits(server_bits.unwrap_or(MAX_WINDOW_BITS))?;
    // Without context, no connection keeps a dictionary: neither end may use that of the message before.
    let mut answer = format!("{DEFLATE}; server_no_context_takeover; client_no_context_takeover");
    if let Some(bits) = server_bits {
        answer.push_str(&format!("; server_max_window_bits={bits}"));
    }
    Some((deflate, answer))
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// A number from 8 to 15 without leading zeros, as the protocol demands.
fn window_bits(value: &str) -> Option<u8> {
    let is_number = !value.starts_with('0') && value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|bits| is_number && (8..=MAX_WINDOW_BITS).contains(bits))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const BOTH: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

    fn answer(lines: &[&'static str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(line));
        }
        negotiate(&headers).map(|(_, answer)| answer)
    }

    #[test]
    fn an_offer_of_compression_is_accepted_without_context() {
        for offer in [
            "permessage-deflate",
            "Permessage-Deflate",
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate;client_max_window_bits=8",
            "permessage-deflate; client_max_window_bits=\"15\" ; Server_No_Context_Takeover",
            "permessage-deflate; client_no_context_takeover; server_no_context_takeover",
            "x-other; a=1, permessage-deflate",
        ] {
            assert_eq!(answer(&[offer]).as_deref(), Some(BOTH), "{offer}");
        }
        assert_eq!(answer(&["x-other", "permessage-deflate"]).as_deref(), Some(BOTH));
    }

    #[test]
    fn the_server_keeps_to_the_window_that_a_client_asks_for() {
        for bits in [9, 12, 15] {
            let offer: &'static str =
                format!("permessage-deflate; server_max_window_bits={bits}; client_max_window_bits").leak();
            assert_eq!(answer(&[offer]), Some(format!("{BOTH}; server_max_window_bits={bits}")));
        }
        // zlib has no window of 2^8: the next offer counts.
        let two =
            "permessage-deflate; server_max_window_bits=8, permessage-deflate; server_max_window_bits=10";
        assert_eq!(answer(&[two]), Some(format!("{BOTH}; server_max_window_bits=10")));
    }

    #[test]
    fn an_offer_that_the_server_does_not_understand_is_declined() {
        for offer in [
            "",
            "permessage-bzip2",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=8",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=09",
            "permessage-deflate; server_max_window_bits=+9",
            "permessage-deflate; server_max_window_bits=x",
            "permessage-deflate; server_max_window_bits=9; server_max_window_bits=9",
            "permessage-deflate; client_max_window_bits; client_max_window_bits=9",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; client_max_window_bits=",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; unknown",
            "permessage-deflate; \"a,b\"",
            "permessage-deflate;",
        ] {
            assert_eq!(answer(&[offer]), None, "{offer}");
        }
        assert_eq!(answer(&[]), None);
    }
}
