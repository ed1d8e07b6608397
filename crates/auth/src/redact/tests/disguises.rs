//! Every encoding that a secret is looked for in, for any secret, with any text around it, cut anywhere.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::form_urlencoded;

use super::*;

/// How a text can be disguised so that whoever reads it can undo that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disguise {
    Plain,
    HexLower,
    HexUpper,
    /// As `xxd -p` prints it.
    HexWrapped,
    /// Every byte.
    PercentAll,
    PercentAllLower,
    /// As `encodeURIComponent` does.
    Component,
    ComponentLower,
    /// As forms do.
    Form,
    FormLower,
    /// Some characters of it, in both cases.
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
    /// All but ASCII as `\uxxxx`, as Python writes it, within another text of JSON.
    JsonAsciiTwice,
    Base64,
    Base64Url,
    Base64Wrapped64,
    Base64Wrapped76,
    /// As the content of a text of JSON, where line ends are escaped.
    Base64WrappedInJson,
    /// As a file tool shows it.
    Base64Numbered,
    Base64InForm,
}

use Disguise::*;

const ALL: [Disguise; 26] = [
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

/// What `encodeURIComponent` leaves as it is.
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

impl Disguise {
    /// `text`, which may be a secret with something before and after it.
    fn of(self, text: &str) -> String {
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
                let some = |(place, letter): (usize, char)| match (letter.is_ascii(), place % 3) {
                    (true, 0) => format!("%{:02x}", u32::from(letter)),
                    (true, 1) => format!("%{:02X}", u32::from(letter)),
                    // A percent sign by itself would be one of an escape.
                    (true, _) if letter == '%' => "%25".to_owned(),
                    _ => letter.to_string(),
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
                let ascii = |letter: char| match letter.is_ascii() {
                    true => letter.to_string(),
                    false => {
                        letter.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
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

impl Disguise {
    /// Whether what stands around the secret changes how its ends look.
    fn is_shared(self) -> bool {
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
    let lower = |letter: char| {
        left = if letter == '%' { 3 } else { usize::saturating_sub(left, 1) };
        if left > 0 { letter.to_ascii_lowercase() } else { letter }
    };
    text.chars().map(lower).collect()
}

/// The characters of `disguise` that say nothing of what stands around the secret, or none.
fn own(disguise: Disguise, secret: &str, before: &str, after: &str) -> String {
    let whole = disguise.of(&format!("{before}{secret}{after}"));
    let (start, end) = (disguise.of(before), disguise.of(after));
    let own = whole.strip_prefix(&start).and_then(|rest| rest.strip_suffix(&end));
    own.unwrap_or_default().to_owned()
}

/// What is shown of a text that comes in pieces of such sizes, as whoever writes in pieces does it.
fn in_pieces(redactor: &Redactor, text: &str, cuts: &[usize]) -> String {
    let (mut rest, mut held, mut seen) = (text, String::new(), String::new());
    for cut in cuts.iter().copied().chain([text.len()]) {
        let (piece, later) = rest.split_at(rest.floor_char_boundary(cut));
        rest = later;
        held.push_str(piece);
        let (shown, kept) = redactor.redact_prefix(&held);
        seen.push_str(&shown);
        held = held.split_at(held.len() - kept).1.to_owned();
    }
    seen.push_str(&redactor.redact(&held));
    seen
}

/// Secrets as there are: keys, tokens, passwords of any characters.
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

    /// Base64 shares a character with its neighbours; the others are gone to the last byte.
    #[test]
    fn no_disguise_hides_a_secret(
        secret in secrets(), before in "[a-z\u{e4} ]{0,9}", after in "[a-z\u{e4} ]{0,9}",
    ) {
        let redactor = knowing(&secret);
        for disguise in ALL {
            let text = disguise.of(&format!("{before}{secret}{after}"));
            let shown = redactor.redact(&text);
            prop_assert!(shown.contains(REDACTED), "{disguise:?}: {text}");
            let own = own(disguise, &secret, &before, &after);
            prop_assert!(own.is_empty() || !shown.contains(&own), "{disguise:?}: {text} is {shown}");
            if !disguise.is_shared() {
                let expected = format!("{}{REDACTED}{}", disguise.of(&before), disguise.of(&after));
                // A secret that ends with a backslash may leave some of those that escape it.
                let plain = |text: &str| match secret.ends_with('\\') {
                    true => text.replace('\\', ""),
                    false => text.to_owned(),
                };
                prop_assert_eq!(plain(&shown), plain(&expected), "{:?}", disguise);
            }
        }
    }

    #[test]
    fn no_cut_lets_a_disguise_through(
        secret in secrets(), which in proptest::sample::select(&ALL[..]), before in "[ -~]{0,9}", after in "[ -~]{0,9}",
        cuts in proptest::collection::vec(1_usize..30, 0..40),
    ) {
        let redactor = knowing(&secret);
        let text = which.of(&format!("{before}{secret}{after}"));
        prop_assert_eq!(in_pieces(&redactor, &text, &cuts), redactor.redact(&text));
    }

    /// What was cut off within a secret shows nothing of it, if what may be its beginning is left out.
    #[test]
    fn a_text_that_ends_within_a_secret_shows_nothing_of_it(
        secret in secrets(), which in proptest::sample::select(&ALL[..]), before in "[a-z ]{0,9}", share in 0.0..1.0,
    ) {
        prop_assume!(!which.is_shared());
        let (start, whole) = (which.of(&before), which.of(&format!("{before}{secret}")));
        let cut = start.len() + ((whole.len() - start.len()) as f64 * share) as usize;
        let text = whole.split_at(whole.floor_char_boundary(cut)).0;
        let (shown, _) = knowing(&secret).redact_prefix(text);
        prop_assert!(start.starts_with(shown.as_ref()), "{:?}: {} of {} shows {}", which, text, whole, shown);
    }

    /// A line of base64 is not the beginning of a secret, nor is a number or a name.
    #[test]
    fn text_without_secrets_stays_as_it_is(
        secret in secrets(), text in "[ -~\n\u{e4}]{0,200}", which in proptest::sample::select(&ALL[..]),
    ) {
        let redactor = knowing(&secret);
        let text = which.of(&text);
        prop_assume!(!text.contains(&secret));
        let shown = redactor.redact(&text);
        prop_assert_eq!(&shown, &text);
    }

    /// What two secrets share is taken out with both.
    #[test]
    fn secrets_that_overlap_are_both_gone(start in "[a-z0-9]{8,20}", shared in "[a-z0-9]{4,12}", end in "[a-z0-9]{8,20}") {
        let (one, other) = (format!("{start}{shared}"), format!("{shared}{end}"));
        let redactor = knowing(&one);
        redactor.learn(&Secret::new(other.as_str()));
        let text = format!("({start}{shared}{end})");
        prop_assert_eq!(redactor.redact(&text), format!("({REDACTED})"));
    }
}
