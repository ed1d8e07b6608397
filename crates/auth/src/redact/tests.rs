use proptest::prelude::*;

use super::*;

mod encodings;
mod work;

fn redactor_with(secret: &str) -> Redactor {
    let redactor = Redactor::new();
    redactor.learn(&Secret::new(secret));
    redactor
}

#[test]
fn a_secret_is_found_in_several_encodings() {
    let redactor = redactor_with("to\"ken/+=ÿ§ word~");
    assert_eq!(redactor.redact("a to\"ken/+=ÿ§ word~ b"), "a [secret] b");
    for encoded in [
        "to%22ken%2F%2B%3D%C3%BF%C2%A7%20word%7E",
        "to%22ken%2F%2B%3D%C3%BF%C2%A7%20word~",
        "to%22ken%2F%2B%3D%C3%BF%C2%A7+word%7E",
        r#"to\"ken/+=ÿ§ word~"#,
    ] {
        assert_eq!(redactor.redact(encoded), REDACTED, "{encoded}");
    }
}

#[test]
fn text_without_secrets_is_not_copied() {
    assert!(matches!(redactor_with("a-long-secret").redact("nothing here"), Cow::Borrowed("nothing here")));
}

#[test]
fn short_secrets_are_not_redacted() {
    assert_eq!(redactor_with("short77").redact("short77"), "short77");
    assert_eq!(redactor_with("enough88").redact("enough88"), REDACTED);
}

#[test]
fn the_oldest_secret_is_dropped_first() {
    let redactor = Redactor::new();
    let secret = |number: usize| format!("secret-number-{number:04}.");
    for number in 0..=MAX_REDACTED {
        redactor.learn(&Secret::new(secret(number)));
        redactor.learn(&Secret::new(secret(number)));
    }
    assert_eq!(redactor.redact(&secret(0)), secret(0));
    assert_eq!(redactor.redact(&secret(1)), REDACTED);
    assert_eq!(redactor.redact(&secret(MAX_REDACTED)), REDACTED);
}

#[test]
fn a_secret_that_is_learned_again_is_not_dropped() {
    let redactor = redactor_with("the-key-that-is-used");
    for number in 0..2 * MAX_REDACTED {
        redactor.learn(&Secret::new(format!("secret-number-{number:04}.")));
        redactor.learn(&Secret::new("the-key-that-is-used"));
    }
    assert_eq!(redactor.redact("the-key-that-is-used"), REDACTED);
    assert_eq!(redactor.redact("secret-number-0000."), "secret-number-0000.");
}

#[test]
fn groups_have_separate_limits() {
    let keys = redactor_with("a-key-of-a-provider");
    let tokens = keys.new_group();
    let token = |number: usize| format!("token-number-{number:04}.");
    for number in 0..=MAX_REDACTED {
        tokens.learn(&Secret::new(token(number)));
    }
    for redactor in [&keys, &tokens] {
        assert_eq!(redactor.redact("a-key-of-a-provider"), REDACTED);
        assert_eq!(redactor.redact(&token(0)), token(0));
        assert_eq!(redactor.redact(&token(1)), REDACTED);
    }
}

#[test]
fn stored_secrets_are_learned() {
    let home = tempfile::tempdir().unwrap();
    let store = SecretStore::open(home.path()).unwrap();
    let store_secret = |name: Option<crate::SecretName>, text: &str| {
        store.write(&name.unwrap(), &Secret::new(text)).unwrap();
    };
    store_secret(crate::SecretName::key("a"), "a-key-that-is-kept");
    let login =
        r#"{"version":1,"access_token":"access-12345","refresh_token":"refresh-12345","obtained_at":1}"#;
    store_secret(crate::SecretName::login("b"), login);
    store_secret(crate::SecretName::login("c"), "no login at all");
    let redactor = Redactor::new();
    redactor.learn_all(&store);
    let text = "a-key-that-is-kept access-12345 refresh-12345 no login at all";
    assert_eq!(redactor.redact(text), "[secret] [secret] [secret] no login at all");
}

#[test]
fn the_end_of_a_text_is_held_back_while_it_may_be_a_secret() {
    let held = |text: &str| redactor_with("s3cret-é-token").redact_prefix(text).1;
    assert_eq!(held("nothing"), 0);
    assert_eq!(held("text s3cret-"), 7);
    assert_eq!(held("s3cret-s3c"), 3);
    assert_eq!(held("s"), 1);
    assert_eq!(held("s3cret-é-token"), 0, "a complete secret is decided");
    assert_eq!(Redactor::new().redact_prefix("s3cret"), ("s3cret".into(), 0));
}

proptest! {
    #[test]
    fn a_secret_in_pieces_is_never_shown(
        before in "[a-c]{0,6}", after in "[a-c]{0,6}", cuts in proptest::collection::vec(1_usize..5, 0..12)
    ) {
        let secret = "abcabcabd-s3c";
        let redactor = redactor_with(secret);
        let text = format!("{before}{secret}{after}");
        let (mut rest, mut held, mut seen) = (text.as_str(), String::new(), String::new());
        for cut in cuts.into_iter().chain([text.len()]) {
            let (piece, later) = rest.split_at(cut.min(rest.len()));
            rest = later;
            held.push_str(piece);
            let (shown, kept) = redactor.redact_prefix(&held);
            seen.push_str(&shown);
            held = held.split_at(held.len() - kept).1.to_owned();
        }
        seen.push_str(&redactor.redact(&held));
        prop_assert_eq!(seen, redactor.redact(&text));
    }

    #[test]
    fn a_secret_is_found_in_any_bytes(
        before in proptest::collection::vec(any::<u8>(), 0..90), after in proptest::collection::vec(any::<u8>(), 0..90),
    ) {
        let secret = "sk-s3cret-of-a-picture";
        let redactor = redactor_with(secret);
        prop_assert!(!redactor.contains_secret(&[before.as_slice(), &after].concat()));
        prop_assert!(redactor.contains_secret(&[before.as_slice(), secret.as_bytes(), &after].concat()));
    }

    #[test]
    fn the_number_of_forms_is_limited(secret in "\\PC{8,60}") {
        prop_assert!(pattern::forms(&secret).len() <= MAX_FORMS);
    }

    #[test]
    fn a_secret_is_found_inside_of_base64(secret in "[!-~]{9,40}", before in ".{0,9}", after in ".{0,9}") {
        let redactor = redactor_with(&secret);
        for alphabet in [base64_simd::STANDARD, base64_simd::URL_SAFE_NO_PAD] {
            let encoded = alphabet.encode_to_string(format!("{before}{secret}{after}"));
            prop_assert!(redactor.redact(&encoded).contains(REDACTED), "{encoded}");
        }
    }
}
