use parlor_engine::is_visible;
use parlor_tools::{MIN_CUT_BYTES, StreamRedactor};
use proptest::prelude::*;

use super::*;
use crate::settings::supr::SuprConfig;
use crate::text::Clean;

const KEY: &str = "sk-KEPT-openai-Qz7hT93kLmN0pXyW8vR";

/// A redaction that knows these keys and these tokens.
fn knowing(keys: &[&str], tokens: &[&str]) -> Arc<dyn Redact> {
    let redactor = Redactor::new();
    keys.iter().for_each(|key| redactor.learn(&Secret::new(*key)));
    let nowhere = Path::new("/nonexistent");
    let redaction = Redaction::new(nowhere, &Config::default(), &Environment::read(), &redactor);
    tokens.iter().for_each(|token| redaction.learner()(token));
    Arc::new(redaction)
}

fn in_pieces(redact: &Arc<dyn Redact>, pieces: &[&str]) -> String {
    let mut sieve = StreamRedactor::new(redact);
    let mut shown: String = pieces.iter().map(|piece| sieve.push(piece).into_owned()).collect();
    shown.push_str(&sieve.rest());
    shown
}

#[test]
fn tokens_old_and_new_and_keys_are_taken_out() {
    let folder = tempfile::tempdir().unwrap();
    let keys = Redactor::new();
    keys.learn(&Secret::new("sk-key-of-a-provider"));
    let redaction = Redaction::new(folder.path(), &Config::default(), &Environment::read(), &keys);
    // Another process makes the tokens.
    let store = token::store(folder.path(), &SuprConfig::default()).unwrap();
    let old = store.now().token.clone();
    assert_eq!(redaction.redact(old.reveal()), "[secret]");
    for _ in 0..parlor_auth::MAX_REDACTED {
        let new = store.rotate().unwrap().token.clone();
        assert_eq!(redaction.redact(&format!("is {} it", new.reveal())), "is [secret] it");
    }
    let both = format!("sk-key-of-a-provider {}", store.now().token.reveal());
    assert_eq!(redaction.redact(&both), "[secret] [secret]", "however many tokens there were");
    assert_eq!(redaction.sift("text sk-key"), ("text ".into(), 6));
}

#[test]
fn what_a_door_gives_out_is_taken_out() {
    let redact = knowing(&[], &["code-of-a-one-time-link"]);
    assert_eq!(redact.redact("/#code=code-of-a-one-time-link"), "/#code=[secret]");
}

/// The last character of a key may be the first one of a token, in one of its forms.
#[test]
fn no_last_character_of_a_key_lets_it_through_beside_a_token() {
    let token = "b06ab16d9c3f4e5a8b7c6d5e4f3a2b1c";
    let letters = ('a'..='z').chain('A'..='Z').chain('0'..='9').chain(['-', '_']);
    let leaks = letters.filter(|last| {
        let key = format!("{KEY}{last}");
        let redact = knowing(&[&key], &[token]);
        let (start, end) = key.split_at(10);
        in_pieces(&redact, &["the key: ", start, end, " end"]) != "the key: [secret] end"
    });
    assert_eq!(leaks.collect::<String>(), "");
}

/// `7` is how the hexadecimal form of a key that begins with `s` begins.
#[test]
fn a_token_in_pieces_is_taken_out_beside_a_key() {
    let token = "0123456789abcdef0123456789abcde7";
    let redact = knowing(&[KEY], &[token]);
    assert_eq!(in_pieces(&redact, &["token ", token, " end"]), "token [secret] end");
}

#[test]
fn a_cut_behind_one_secret_that_may_begin_another_shows_neither() {
    let (key, token) = ("sk-first-0123b06a", "b06ab16d9c3f4e5a8b7c6d5e");
    let redact = knowing(&[key], &[token]);
    for text in [key, &format!("{key}b16d9c"), "sk-first-0123b06", "sk-first-0123b06ab16"] {
        let shown = redact.redact_cut(text).into_owned();
        assert!(shown.is_empty() || shown == "[secret]", "{text} is {shown}");
    }
    assert_eq!(redact.redact_cut(&format!("{key} {token} b06")), "[secret] [secret] b06");
}

/// What a terminal obeys or leaves out, also broken and without an end.
fn unseen() -> impl Strategy<Value = String> {
    prop_oneof![
        "\x1b\\[[0-9;]{0,5}[a-zA-Z]",
        "\x1b\\][0-9a-z;]{0,9}(\x07|\x1b\\\\)",
        "[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]{1,3}",
        "[\u{80}-\u{9f}\u{ad}\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2060}-\u{2069}\u{feff}\u{e0041}]{1,3}",
        "\x1b[PX^_ (#\\[\\]]?[ -~\u{e4}\u{dc}]{0,4}(\x18|\x1a|\x1b\\\\|\u{9c}|)",
    ]
}

/// Secrets whose beginnings, middles and ends are alike, so that one begins within another or is a part of it.
fn alike() -> impl Strategy<Value = Vec<String>> {
    let one = prop_oneof!["[ab7]{8,14}", "(ab|ba|7){8,10}", "sk-[ab]{6,10}", "[0-9a-f]{8,16}"];
    proptest::collection::vec(one, 1..4).prop_map(|mut secrets| {
        let first = secrets[0].clone();
        let half = first.split_at(first.len() / 2).1.to_owned();
        secrets.extend([format!("{first}ab7ab7"), format!("7ab7ab{first}"), format!("{half}ab7ab7ab")]);
        secrets
    })
}

/// A text that is made of secrets, their parts and other letters.
fn made_of(secrets: Vec<String>) -> impl Strategy<Value = (Vec<String>, String)> {
    let count = secrets.len();
    let part = (0..count, 0.0..1.0, any::<bool>(), "[ab7 %\\\\\\n]{0,3}");
    let kept = secrets.clone();
    proptest::collection::vec(part, 1..6).prop_map(move |parts| {
        let mut text = String::new();
        for (which, share, is_whole, between) in parts {
            let secret = &secrets[which];
            let length = (secret.len() as f64 * share) as usize;
            text.push_str(if is_whole { secret } else { secret.split_at(length).0 });
            text.push_str(&between);
        }
        (kept.clone(), text)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Neither a terminal nor a page puts a secret together out of what was shown to it.
    #[test]
    fn what_a_screen_leaves_out_hides_no_secret(
        inserted in proptest::collection::vec((0_usize..16, unseen()), 0..8), around in unseen(),
        cuts in proptest::collection::vec(1_usize..5, 0..40),
    ) {
        let secret = "skabm7[];PX0-KEY";
        let redact = knowing(&[secret], &["0123456789abcdef"]);
        let mut text = secret.to_owned();
        for (place, unseen) in inserted {
            let place = text.ceil_char_boundary(place);
            text.insert_str(place, &unseen);
        }
        let text = format!("{around}a {text} b{around}");
        let (mut pieces, mut rest) = (Vec::new(), text.as_str());
        for cut in cuts {
            let (piece, later) = rest.split_at(rest.ceil_char_boundary(cut));
            pieces.push(piece);
            rest = later;
        }
        pieces.push(rest);
        for shown in [redact.redact(&text).into_owned(), in_pieces(&redact, &pieces)] {
            let terminal = Clean::default().text(&shown);
            let page: String = shown.chars().filter(|letter| is_visible(*letter)).collect();
            for seen in [&shown, &terminal, &page] {
                prop_assert!(!seen.contains(secret), "{:?} of {:?}", shown, text);
            }
        }
    }

    /// However many secrets there are, of whichever kind, and however they are alike: pieces show what the whole shows.
    #[test]
    fn any_cut_of_a_text_shows_what_the_whole_shows(
        (secrets, text) in alike().prop_flat_map(made_of), keys in 0_usize..7,
        cuts in proptest::collection::vec(1_usize..12, 0..30),
    ) {
        let all: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let (keys, tokens) = all.split_at(keys.min(all.len()));
        let redact = knowing(keys, tokens);
        let (mut pieces, mut rest) = (Vec::new(), text.as_str());
        for cut in cuts {
            let (piece, later) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = later;
        }
        pieces.push(rest);
        let shown = in_pieces(&redact, &pieces);
        prop_assert_eq!(&shown, &redact.redact(&text));
        for secret in &all {
            prop_assert!(!shown.contains(secret), "{} is in {}", secret, shown);
        }
        for end in 0..=text.len() {
            let (start, _) = text.split_at(end);
            let shown = redact.redact_cut(start);
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
