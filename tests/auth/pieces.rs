//! Secrets that come in pieces, or with what a terminal does not show in between: not on screens, not in events, not on disk.

use std::os::unix::fs::OpenOptionsExt;

use super::*;

/// What lets clients in.
const TOKEN: &str = "b06ab16d9c3f4e5a8b7c6d5e4f3a2b17";

/// A state folder that keeps `key`, with a token, and an agent that takes `steps`.
fn home(key: &str, steps: &str) -> Home {
    let home = Home::new();
    std::fs::write(home.folder().join("key.txt"), key).unwrap();
    let file = std::fs::File::open(home.folder().join("key.txt")).unwrap();
    assert!(home.command(&["login", "exa", "--key"]).stdin(file).status().unwrap().success());
    let mut options = std::fs::OpenOptions::new();
    let stored =
        options.write(true).create_new(true).mode(0o600).open(home.state().join("supr.json")).unwrap();
    serde_json::to_writer(stored, &serde_json::json!({ "token": TOKEN })).unwrap();
    let agents = "default_agent = \"s\"\nagents.s = { kind = \"script\", file = \"s.toml\" }\n";
    home.configure("parlor.toml", agents);
    home.configure("s.toml", &format!("[otherwise]\nsteps = [\n{steps}\n]\n"));
    home
}

/// All that is told of a run, and all that is kept of it.
fn told_and_kept(home: &Home) -> (String, String) {
    let output = home.run(&["chat", "--json", "go"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains(r#""ending":"completed""#), "{told} {}", String::from_utf8_lossy(&output.stderr));
    let database = ["parlor.db", "parlor.db-wal"].map(|file| std::fs::read(home.state().join(file)));
    let kept =
        String::from_utf8_lossy(&database.into_iter().flatten().flatten().collect::<Vec<u8>>()).into_owned();
    (told, kept)
}

/// A step for each piece of an answer.
fn says(pieces: &[&str]) -> String {
    pieces.iter().map(|piece| format!("{{ say = {piece:?} }},\n")).collect()
}

#[test]
fn a_key_whose_end_may_begin_the_token_is_not_shown() {
    let key = "sk-KEPT-openai-Qz7hT93kLmN0pXyW8vRb";
    let (start, end) = key.split_at(10);
    let home = home(key, &says(&["the key: ", start, end, " end"]));
    let (told, kept) = told_and_kept(&home);
    for text in [&told, &kept] {
        assert!(!text.contains(key), "{text}");
    }
    assert!(told.contains("the key: [secret] end"), "{told}");
}

#[test]
fn a_token_whose_end_may_begin_a_key_is_not_shown() {
    let home = home("sk-KEPT-openai-Qz7hT93kLmN0pXyW8vRx", &says(&["token ", TOKEN, " end"]));
    let (told, kept) = told_and_kept(&home);
    for text in [&told, &kept] {
        assert!(!text.contains(TOKEN), "{text}");
    }
    assert!(told.contains("token [secret] end"), "{told}");
}
