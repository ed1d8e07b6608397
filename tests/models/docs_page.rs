//! `docs/models.md` names the limits, error codes and providers of the code.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::fs;

fn read(path: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    fs::read_to_string(format!("{root}/{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All sources of a folder of `crates/model/src`, subfolders included.
fn sources(folder: &str) -> String {
    let path = format!("{}/../../crates/model/src/{folder}", env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let texts = entries.map(|entry| {
        if entry.file_type().unwrap().is_dir() {
            return sources(&format!("{folder}/{}", entry.file_name().display()));
        }
        fs::read_to_string(entry.path()).unwrap()
    });
    texts.collect()
}

#[test]
fn the_page_names_every_limit_and_every_code() {
    let page = read("docs/models.md");
    let text = sources("model_agent") + &sources("provider");
    let constants = text.lines().filter_map(|line| line.strip_prefix("pub const "));
    let mut names: Vec<&str> = constants.filter_map(|line| line.split(':').next()).collect();
    // File names are not limits.
    names.retain(|name| !["INSTRUCTIONS_FILE", "SKILL_FILE"].contains(name));
    assert!(names.len() > 30, "the test does not find the constants: {names:?}");
    // The codes that the model crate uses, in the spelling that `FailureCode` gives them.
    let failures = read("crates/vocab/src/failure.rs");
    let spellings = failures.lines().filter_map(|line| line.trim().strip_suffix("\",")?.split_once(" = \""));
    let codes: Vec<&str> = spellings
        .filter(|(variant, _)| text.contains(&format!("FailureCode::{variant}")))
        .map(|(_, spelling)| spelling)
        .collect();
    assert!(codes.len() > 10, "the test does not find the codes: {codes:?}");
    // These codes reach only the model, which gets an explanation with them.
    let only_for_the_model = ["TOO_MANY_CALLS", "UNKNOWN_TOOL", "INVALID_INPUT", "NOT_FOUND"];
    for name in names.into_iter().chain(codes).filter(|name| !only_for_the_model.contains(name)) {
        assert!(page.contains(&format!("`{name}`")), "docs/models.md does not mention {name}");
    }
}

#[test]
fn the_page_names_every_provider_and_its_key() {
    let page = read("docs/models.md");
    for kind in parlor_model::provider::ProviderKind::ALL {
        assert!(page.contains(&format!("| `{}` |", kind.name())), "{}", kind.name());
        assert!(page.contains(kind.base_url().trim_end_matches('/')), "{}", kind.base_url());
        assert!(kind.key_variable().is_none_or(|name| page.contains(name)), "{}", kind.name());
    }
}
