//! Property tests: any secret in any supported encoding, with any text around it, cut anywhere.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::form_urlencoded;

use super::*;

/// The supported encodings of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Plain,
    HexLower,
    HexUpper,
    /// In lines, as `xxd -p` prints it.
    HexWrapped,
    /// Every byte is percent-encoded.
    PercentAll,
    PercentAllLower,
    /// Like `encodeURIComponent` in JavaScript.
    Component,
    ComponentLower,
    /// `application/x-www-form-urlencoded`.
    Form,
    FormLower,
    /// Some characters are percent-encoded, with upper and lower case digits.
    PercentSome,
    PercentTwice,
    Json,
    /// With `\/`, as PHP writes it.
    JsonSlashes,
    JsonInJson,
    JsonInJsonInJson,
    JsonSlashesTwice,
    /// Every character as `\uXXXX`.
    JsonUnicode,
    /// All characters but ASCII as `\uxxxx`, as Python writes JSON, in a JSON string within JSON.
    JsonAsciiTwice,
    Base64,
    Base64Url,
    Base64Wrapped64,
    Base64Wrapped76,
    /// In a JSON string, where line breaks are escaped.
    Base64WrappedInJson,
    /// With line numbers, as a file tool shows it.
    Base64Numbered,
    Base64InForm,
}

use Encoding::*;

const ALL: [Encoding; 26] = [
    Plain,
    HexLower,
    HexUpper,
    HexWrapped,
    PercentAll,
    PercentAllLower,
    Component,
    ComponentLower,
    Form,
    FormLower,
    PercentSome,
    PercentTwice,
    Json,
    JsonSlashes,
    JsonInJson,
    JsonInJsonInJson,
    JsonSlashesTwice,
    JsonUnicode,
    JsonAsciiTwice,
    Base64,
    Base64Url,
    Base64Wrapped64,
    Base64Wrapped76,
    Base64WrappedInJson,
    Base64Numbered,
    Base64InForm,
];

/// The characters that `encodeURIComponent` encodes.
const COMPONENT: &percent_encoding::AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

impl Encoding {
    /// Encodes `text`.
    fn encode(self, text: &str) -> String {
        let percent = |byte: &u8| format!("%{byte:02X}");
        let all = || text.as_bytes().iter().map(percent).collect::<String>();
        let component = || utf8_percent_encode(text, COMPONENT).to_string();
        let form = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let base64 = || base64_simd::STANDARD.encode_to_string(text.as_bytes());
        let hex = || text.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match self {
            Plain => text.to_owned(),
            HexLower => hex(),
            HexUpper => hex().to_uppercase(),
            HexWrapped => wrapped(&hex(), 60, "\n"),
            PercentAll => all(),
            PercentAllLower => all().to_lowercase(),
            Component => component(),
            ComponentLower => lower_digits(&component()),
            Form => form(text),
            FormLower => lower_digits(&form(text)),
            PercentSome => {
                let some = |(index, c): (usize, char)| match (c.is_ascii(), index % 3) {
                    (true, 0) => format!("%{:02x}", u32::from(c)),
                    (true, 1) => format!("%{:02X}", u32::from(c)),
                    // A plain percent sign would look like an escape.
                    (true, _) if c == '%' => "%25".to_owned(),
                    _ => c.to_string(),
                };
                text.chars().enumerate().map(some).collect()
            }
            PercentTwice => component().replace('%', "%25"),
            Json => json(text),
            JsonSlashes => json(text).replace('/', "\\/"),
            JsonInJson => json(&json(text)),
            JsonInJsonInJson => json(&json(&json(text))),
            JsonSlashesTwice => json(&json(text).replace('/', "\\/")).replace('/', "\\/"),
            JsonUnicode => text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect(),
            JsonAsciiTwice => {
                let ascii = |c: char| match c.is_ascii() {
                    true => c.to_string(),
                    false => {
                        c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
                    }
                };
                json(&json(text).chars().map(ascii).collect::<String>())
            }
            Base64 => base64(),
            Base64Url => base64_simd::URL_SAFE_NO_PAD.encode_to_string(text.as_bytes()),
            Base64Wrapped64 => wrapped(&base64(), 64, "\n"),
            Base64Wrapped76 => wrapped(&base64(), 76, "\r\n"),
            Base64WrappedInJson => json(&wrapped(&base64(), 64, "\n")).replace('/', "\\/"),
            Base64Numbered => {
                let wrapped = wrapped(&base64(), 64, "\n");
                wrapped
                    .lines()
                    .enumerate()
                    .map(|(number, line)| format!("{:>6}\t{line}\n", number + 1))
                    .collect()
            }
            Base64InForm => form(&base64()),
        }
    }
}

impl Encoding {
    /// Whether the encoding of the secret's ends depends on the text around it.
    fn depends_on_context(self) -> bool {
        matches!(
            self,
            HexWrapped
                | PercentSome
                | Base64
                | Base64Url
                | Base64Wrapped64
                | Base64Wrapped76
                | Base64WrappedInJson
                | Base64Numbered
                | Base64InForm
        )
    }
}

fn json(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    quoted.strip_prefix('"').unwrap().strip_suffix('"').unwrap().to_owned()
}

fn wrapped(text: &str, columns: usize, end: &str) -> String {
    let lines: Vec<&str> =
        text.as_bytes().chunks(columns).map(|line| std::str::from_utf8(line).unwrap()).collect();
    lines.join(end)
}

/// `%2F` becomes `%2f`.
fn lower_digits(text: &str) -> String {
    let mut left = 0;
    let lower = |c: char| {
        left = if c == '%' { 3 } else { usize::saturating_sub(left, 1) };
        if left > 0 { c.to_ascii_lowercase() } else { c }
    };
    text.chars().map(lower).collect()
}

/// The part of the encoded text that depends only on the secret; empty if it cannot be separated.
fn own_part(encoding: Encoding, secret: &str, before: &str, after: &str) -> String {
    let whole = encoding.encode(&format!("{before}{secret}{after}"));
    let (start, end) = (encoding.encode(before), encoding.encode(after));
    let own_part = whole.strip_prefix(&start).and_then(|rest| rest.strip_suffix(&end));
    own_part.unwrap_or_default().to_owned()
}

/// Redacts a text that arrives in pieces of these sizes.
fn redact_in_pieces(redactor: &Redactor, text: &str, cuts: &[usize]) -> String {
    let (mut rest, mut held, mut shown_so_far) = (text, String::new(), String::new());
    for cut in cuts.iter().copied().chain([text.len()]) {
        let (piece, later) = rest.split_at(rest.floor_char_boundary(cut));
        rest = later;
        held.push_str(piece);
        let (shown, kept) = redactor.redact_prefix(&held);
        shown_so_far.push_str(&shown);
        held = held.split_at(held.len() - kept).1.to_owned();
    }
    shown_so_far.push_str(&redactor.redact(&held));
    shown_so_far
}

/// Typical secrets: keys, tokens, and passwords of any characters.
fn secrets() -> impl Strategy<Value = String> {
    prop_oneof![
        "sk-[a-zA-Z0-9_-]{20,48}",
        "eyJ[a-zA-Z0-9_-]{30,80}\\.eyJ[a-zA-Z0-9_-]{60,200}\\.[a-zA-Z0-9_-]{43}",
        "[0-9a-f]{32}",
        "[!-~]{9,60}",
        "[!-~ ]{9,20}",
        "[%\\\\/\"u0-9n +]{9,20}",
        "[a-z\u{e4}\u{20ac}\u{1f600}/\"]{9,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Base64 shares a character with the text around it. All other encodings are removed completely.
    #[test]
    fn a_secret_is_found_in_every_encoding(
        secret in secrets(), before in "[a-z\u{e4} ]{0,9}", after in "[a-z\u{e4} ]{0,9}",
    ) {
        let redactor = redactor_with(&secret);
        for encoding in ALL {
            let text = encoding.encode(&format!("{before}{secret}{after}"));
            let shown = redactor.redact(&text);
            prop_assert!(shown.contains(REDACTED), "{encoding:?}: {text}");
            let own_part = own_part(encoding, &secret, &before, &after);
            prop_assert!(own_part.is_empty() || !shown.contains(&own_part), "{encoding:?}: {text} is {shown}");
            if !encoding.depends_on_context() {
                let expected = format!("{}{REDACTED}{}", encoding.encode(&before), encoding.encode(&after));
                // If the secret ends with a backslash, some of its escaping backslashes may remain.
                let plain = |text: &str| match secret.ends_with('\\') {
                    true => text.replace('\\', ""),
                    false => text.to_owned(),
                };
                prop_assert_eq!(plain(&shown), plain(&expected), "{:?}", encoding);
            }
        }
    }

    #[test]
    fn redaction_does_not_depend_on_the_cuts(
        secret in secrets(), which in proptest::sample::select(&ALL[..]), before in "[ -~]{0,9}", after in "[ -~]{0,9}",
        cuts in proptest::collection::vec(1_usize..30, 0..40),
    ) {
        let redactor = redactor_with(&secret);
        let text = which.encode(&format!("{before}{secret}{after}"));
        prop_assert_eq!(redact_in_pieces(&redactor, &text, &cuts), redactor.redact(&text));
    }

    /// Text that was cut within a secret shows nothing of it, if the possible beginning of a secret is left out.
    #[test]
    fn a_text_that_ends_within_a_secret_shows_nothing_of_it(
        secret in secrets(), which in proptest::sample::select(&ALL[..]), before in "[a-z ]{0,9}", share in 0.0..1.0,
    ) {
        prop_assume!(!which.depends_on_context());
        let (start, whole) = (which.encode(&before), which.encode(&format!("{before}{secret}")));
        let cut = start.len() + ((whole.len() - start.len()) as f64 * share) as usize;
        let text = whole.split_at(whole.floor_char_boundary(cut)).0;
        let (shown, _) = redactor_with(&secret).redact_prefix(text);
        prop_assert!(start.starts_with(shown.as_ref()), "{:?}: {} of {} shows {}", which, text, whole, shown);
    }

    /// Ordinary text, also in base64, is not mistaken for a secret.
    #[test]
    fn text_without_secrets_is_not_changed(
        secret in secrets(), text in "[ -~\n\u{e4}]{0,200}", which in proptest::sample::select(&ALL[..]),
    ) {
        let redactor = redactor_with(&secret);
        let text = which.encode(&text);
        prop_assume!(!text.contains(&secret));
        let shown = redactor.redact(&text);
        prop_assert_eq!(&shown, &text);
    }

    /// Overlapping secrets are replaced together.
    #[test]
    fn overlapping_secrets_are_both_removed(start in "[a-z0-9]{8,20}", shared in "[a-z0-9]{4,12}", end in "[a-z0-9]{8,20}") {
        let (one, other) = (format!("{start}{shared}"), format!("{shared}{end}"));
        let redactor = redactor_with(&one);
        redactor.learn(&Secret::new(other.as_str()));
        let text = format!("({start}{shared}{end})");
        prop_assert_eq!(redactor.redact(&text), format!("({REDACTED})"));
    }
}
