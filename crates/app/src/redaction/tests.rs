use parlor_engine::is_visible;
use parlor_tools::{MIN_CUT_BYTES, StreamRedactor};
use proptest::prelude::*;

use super::*;
use crate::settings::supr::SuprConfig;
use crate::text::TerminalSanitizer;

const KEY: &str = "sk-KEPT-openai-Qz7hT93kLmN0pXyW8vR";

/// A redaction that knows these keys and tokens.
fn redaction_of(keys: &[&str], tokens: &[&str]) -> Arc<dyn Redact> {
    let redactor = Redactor::new();
    keys.iter().for_each(|key| redactor.learn(&Secret::new(*key)));
    let nowhere = Path::new("/nonexistent");
    let redaction = Redaction::new(nowhere, &Config::default(), &Environment::read(), &redactor);
    tokens.iter().for_each(|token| redaction.learner()(token));
    Arc::new(redaction)
}

/// Redacts a text that arrives in pieces, and joins the results.
fn redact_stream(redact: &Arc<dyn Redact>, pieces: &[&str]) -> String {
    let mut stream = StreamRedactor::new(redact);
    let mut shown: String = pieces.iter().map(|piece| stream.push(piece).into_owned()).collect();
    shown.push_str(&stream.finish());
    shown
}

#[test]
fn old_and_new_tokens_and_keys_are_redacted() {
    let folder = tempfile::tempdir().unwrap();
    let keys = Redactor::new();
    keys.learn(&Secret::new("sk-key-of-a-provider"));
    let redaction = Redaction::new(folder.path(), &Config::default(), &Environment::read(), &keys);
    // Another process makes the tokens.
    let store = token::open_store(folder.path(), &SuprConfig::default()).unwrap();
    let old = store.now().token.clone();
    assert_eq!(redaction.redact(old.reveal()), "[secret]");
    for _ in 0..parlor_auth::MAX_REDACTED {
        let new = store.rotate().unwrap().token.clone();
        assert_eq!(redaction.redact(&format!("is {} it", new.reveal())), "is [secret] it");
    }
    let both = format!("sk-key-of-a-provider {}", store.now().token.reveal());
    assert_eq!(redaction.redact(&both), "[secret] [secret]", "however many tokens there were");
    assert_eq!(redaction.redact_prefix("text sk-key"), ("text ".into(), 6));
}

#[test]
fn the_passwords_of_the_database_are_redacted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), "pa55word-in-file\n").unwrap();
    let settings =
        "[log]\nurl = \"postgres://me:pa55word-in-url@db.example/parlor\"\npassword_file = \"password\"\n";
    std::fs::write(folder.path().join("parlor.toml"), settings).unwrap();
    let config = Config::load(folder.path()).unwrap();
    let redaction = Redaction::new(folder.path(), &config, &Environment::read(), &Redactor::new());
    assert_eq!(redaction.redact("pa55word-in-url pa55word-in-file"), "[secret] [secret]");
}

#[test]
fn a_one_time_code_is_redacted() {
    let redact = redaction_of(&[], &["code-of-a-one-time-link"]);
    assert_eq!(redact.redact("/#code=code-of-a-one-time-link"), "/#code=[secret]");
}

/// The last character of a key may also be the first one of a token or of its encoded form.
#[test]
fn a_key_is_redacted_whatever_its_last_character() {
    let token = "b06ab16d9c3f4e5a8b7c6d5e4f3a2b1c";
    let letters = ('a'..='z').chain('A'..='Z').chain('0'..='9').chain(['-', '_']);
    let leaks = letters.filter(|last| {
        let key = format!("{KEY}{last}");
        let redact = redaction_of(&[&key], &[token]);
        let (start, end) = key.split_at(10);
        redact_stream(&redact, &["the key: ", start, end, " end"]) != "the key: [secret] end"
    });
    assert_eq!(leaks.collect::<String>(), "");
}

/// The token ends in `7`, with which the hexadecimal form of a key that begins with `s` starts.
#[test]
fn a_token_in_pieces_is_redacted_beside_a_key() {
    let token = "0123456789abcdef0123456789abcde7";
    let redact = redaction_of(&[KEY], &[token]);
    assert_eq!(redact_stream(&redact, &["token ", token, " end"]), "token [secret] end");
}

#[test]
fn a_cut_inside_two_overlapping_secrets_shows_neither() {
    let (key, token) = ("sk-first-0123b06a", "b06ab16d9c3f4e5a8b7c6d5e");
    let redact = redaction_of(&[key], &[token]);
    for text in [key, &format!("{key}b16d9c"), "sk-first-0123b06", "sk-first-0123b06ab16"] {
        let shown = redact.redact_truncated(text).into_owned();
        assert!(shown.is_empty() || shown == "[secret]", "{text} is {shown}");
    }
    assert_eq!(redact.redact_truncated(&format!("{key} {token} b06")), "[secret] [secret] b06");
}

/// Sequences that a terminal obeys or does not show, also malformed and unterminated ones.
fn invisible_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\x1b\\[[0-9;]{0,5}[a-zA-Z]",
        "\x1b\\][0-9a-z;]{0,9}(\x07|\x1b\\\\)",
        "[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]{1,3}",
        "[\u{80}-\u{9f}\u{ad}\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2060}-\u{2069}\u{feff}\u{e0041}]{1,3}",
        "\x1b[PX^_ (#\\[\\]]?[ -~\u{e4}\u{dc}]{0,4}(\x18|\x1a|\x1b\\\\|\u{9c}|)",
    ]
}

/// Secrets that overlap: one starts within another or is a part of it.
fn overlapping_secrets() -> impl Strategy<Value = Vec<String>> {
    let one = prop_oneof!["[ab7]{8,14}", "(ab|ba|7){8,10}", "sk-[ab]{6,10}", "[0-9a-f]{8,16}"];
    proptest::collection::vec(one, 1..4).prop_map(|mut secrets| {
        let first = secrets[0].clone();
        let half = first.split_at(first.len() / 2).1.to_owned();
        secrets.extend([format!("{first}ab7ab7"), format!("7ab7ab{first}"), format!("{half}ab7ab7ab")]);
        secrets
    })
}

/// A text that is made of secrets, parts of secrets and other characters.
fn text_with(secrets: Vec<String>) -> impl Strategy<Value = (Vec<String>, String)> {
    let count = secrets.len();
    let part = (0..count, 0.0..1.0, any::<bool>(), "[ab7 %\\\\\\n]{0,3}");
    let all = secrets.clone();
    proptest::collection::vec(part, 1..6).prop_map(move |parts| {
        let mut text = String::new();
        for (which, share, is_whole, between) in parts {
            let secret = &secrets[which];
            let length = (secret.len() as f64 * share) as usize;
            text.push_str(if is_whole { secret } else { secret.split_at(length).0 });
            text.push_str(&between);
        }
        (all.clone(), text)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A secret that is interspersed with invisible characters must not reappear on a terminal or on a web page.
    #[test]
    fn invisible_characters_do_not_hide_a_secret(
        inserted in proptest::collection::vec((0_usize..16, invisible_text()), 0..8), around in invisible_text(),
        cuts in proptest::collection::vec(1_usize..5, 0..40),
    ) {
        let secret = "skabm7[];PX0-KEY";
        let redact = redaction_of(&[secret], &["0123456789abcdef"]);
        let mut text = secret.to_owned();
        for (position, invisible) in inserted {
            let position = text.ceil_char_boundary(position);
            text.insert_str(position, &invisible);
        }
        let text = format!("{around}a {text} b{around}");
        let (mut pieces, mut rest) = (Vec::new(), text.as_str());
        for cut in cuts {
            let (piece, later) = rest.split_at(rest.ceil_char_boundary(cut));
            pieces.push(piece);
            rest = later;
        }
        pieces.push(rest);
        for shown in [redact.redact(&text).into_owned(), redact_stream(&redact, &pieces)] {
            let terminal = TerminalSanitizer::default().sanitize(&shown);
            let page: String = shown.chars().filter(|letter| is_visible(*letter)).collect();
            for visible in [&shown, &terminal, &page] {
                prop_assert!(!visible.contains(secret), "{:?} of {:?}", shown, text);
            }
        }
    }

    /// Redacting a text in pieces gives the same result as redacting it as a whole, for any number of overlapping secrets.
    #[test]
    fn redaction_does_not_depend_on_how_a_text_is_cut(
        (secrets, text) in overlapping_secrets().prop_flat_map(text_with), keys in 0_usize..7,
        cuts in proptest::collection::vec(1_usize..12, 0..30),
    ) {
        let all: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let (keys, tokens) = all.split_at(keys.min(all.len()));
        let redact = redaction_of(keys, tokens);
        let (mut pieces, mut rest) = (Vec::new(), text.as_str());
        for cut in cuts {
            let (piece, later) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = later;
        }
        pieces.push(rest);
        let shown = redact_stream(&redact, &pieces);
        prop_assert_eq!(&shown, &redact.redact(&text));
        for secret in &all {
            prop_assert!(!shown.contains(secret), "{} is in {}", secret, shown);
        }
        for end in 0..=text.len() {
            let (start, _) = text.split_at(end);
            let shown = redact.redact_truncated(start);
            for secret in &all {
                prop_assert!(!shown.contains(secret), "{} is in {}", secret, shown);
                let mut lengths = (MIN_CUT_BYTES..secret.len()).rev();
                let cut = lengths.find(|length| start.ends_with(secret.split_at(*length).0)).unwrap_or(0);
                let is_left_out = shown.contains("[secret]") || shown.len() <= start.len() - cut;
                prop_assert!(is_left_out, "{} bytes of {} end {}", cut, secret, shown);
            }
        }
    }
}

/// A hostile provider chose its token and a text that agrees with it everywhere, with a key in it that is cut anywhere.
#[test]
fn a_stream_that_is_too_much_work_shows_no_part_of_a_key() {
    let (token, key) = (format!("{}B", "A".repeat(6000)), "sk-key-of-another-provider");
    let redact = redaction_of(&[&token, key], &[]);
    for junk in ["A".repeat(20_000), "A".repeat(400_000)] {
        for cut in [4, key.len() / 2, key.len() - 4] {
            let (first, second) = key.split_at(cut);
            let (before, after) = (format!("{junk}{first}"), format!("{second} {junk}"));
            let shown = redact_stream(&redact, &[before.as_str(), after.as_str()]);
            let lengths = (junk.len(), cut, shown.len());
            assert!(!shown.contains(first) && !shown.contains(second), "{lengths:?}");
            assert!(shown.contains("[secret]") || shown.contains(parlor_tools::WITHHELD), "{lengths:?}");
        }
    }
}
