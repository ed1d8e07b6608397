//! Secrets and texts that a hostile provider chose to keep the redactor busy. These tests count bytes, not time.

use super::*;
use crate::redact::work::FREE_WORK;

/// A key that the hostile provider must not see.
const KEY: &str = "sk-key-of-another-provider";

/// How many bytes may be compared for one byte of a text while two secrets are known.
const MAX_PER_BYTE: usize = WORK_PER_BYTE + FREE_WORK * 2 * MAX_FORMS;

/// Tokens that agree with themselves at many places, or can be read in many ways.
fn tokens() -> Vec<String> {
    vec![
        format!("{}B", "A".repeat(6_000)),
        format!("{}B", "AB".repeat(3_000)),
        format!("{}x", "%25".repeat(2_000)),
        format!("{}z", "\\u0041".repeat(1_000)),
        format!("{}x", "\\".repeat(6_000)),
        format!("{}x", "+ ".repeat(3_000)),
        format!("{}s", "s".repeat(6_000)),
    ]
}

/// Texts of `length` bytes that agree with one of the tokens at many places.
fn texts(length: usize) -> Vec<String> {
    let hex_lines = format!("{}\n", "41".repeat(30));
    let pieces = [
        "A",
        "AB",
        "%25",
        "%2525",
        "%41",
        "\\u0041",
        "\\\\u0041",
        "\\",
        "+",
        "s\u{200b}",
        "s\u{1b}[m",
        "QUFB",
        "4141",
        &hex_lines,
    ];
    let runs = format!("{}s", "\\".repeat(50));
    let pieces = pieces.into_iter().chain([runs.as_str()]);
    pieces.map(|piece| piece.repeat(length.div_ceil(piece.len()))).collect()
}

#[test]
fn the_work_is_linear_whatever_the_secret_is() {
    for token in tokens() {
        let redactor = redactor_with(&token);
        redactor.learn(&Secret::new(KEY));
        for text in texts(4 << 10) {
            let spent = redactor.index().scan(text.as_bytes()).spent;
            let limit = WORK_PER_TEXT + MAX_PER_BYTE * text.len();
            let (token, piece) = (token.split_at(12).0, text.split_at(text.floor_char_boundary(12)).0);
            assert!(spent <= limit, "{spent} bytes for the token {token}… and the text {piece}…");
        }
    }
}

#[test]
fn a_run_of_backslashes_is_read_once() {
    let redactor = redactor_with(KEY);
    let text = format!("{}s", "\\".repeat(50)).repeat(1000);
    let spent = redactor.index().scan(text.as_bytes()).spent;
    assert!(spent < 20 * text.len(), "{spent} bytes for a text of {}", text.len());
    let long_run = format!("{}sk\\-key-of-another-provider", "\\".repeat(500));
    assert_eq!(redactor.redact(&long_run), format!("{}{REDACTED}", "\\".repeat(500 - 64)));
}

#[test]
fn a_text_that_is_too_much_work_hides_no_other_secret() {
    for token in tokens() {
        let redactor = redactor_with(&token);
        redactor.learn(&Secret::new(KEY));
        for junk in texts(4 << 10) {
            let text = format!("before {junk} {KEY} {junk}");
            let shown = redactor.redact(&text);
            assert!(shown.starts_with("before ") && shown.contains(REDACTED) && !shown.contains(KEY));
            // What is shown of a text never depends on what follows it.
            let (shown, held) = redactor.redact_prefix(text.split_at(7 + junk.len() + 10).0);
            assert!(shown.starts_with("before") && held > 8 && !shown.contains("sk-key-o"), "{held}");
        }
    }
    let redactor = redactor_with(&tokens()[0]);
    assert!(redactor.contains_secret(&[b'A'; 64 << 10]), "rather refused than sent");
}

#[test]
fn an_ordinary_text_is_little_work_with_many_secrets() {
    let redactor = Redactor::new();
    for number in 0_u64..MAX_REDACTED as u64 {
        let random = |salt: u64| number.wrapping_add(salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        redactor.learn(&Secret::new(format!("sk-{:x}{:x}", random(1), random(1000))));
    }
    let line = "s = \"\\\\\\\\\\\\\\\"skip\\\\\\\\\\\\\\\"\", k = 100%25, sk-ant-api03-;\n\ts\n";
    let text = line.repeat(1000);
    assert!(matches!(redactor.redact(&text), Cow::Borrowed(_)), "no part of it is replaced");
}
