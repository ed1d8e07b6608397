//! Secrets that arrive in several pieces, or with invisible characters in between, are redacted on screens, in events
//! and on disk.

use std::os::unix::fs::OpenOptionsExt;

use super::*;

/// The token of the supr door.
const TOKEN: &str = "b06ab16d9c3f4e5a8b7c6d5e4f3a2b17";

/// A home with a stored key, the token, and a script agent with these steps.
fn home_with_key(key: &str, steps: &str) -> Home {
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

/// Runs a chat; returns its stdout and the content of the database.
fn run_chat(home: &Home) -> (String, String) {
    let output = home.run(&["chat", "--json", "go"]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains(r#""ending":"completed""#),
        "{stdout} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let files = ["parlor.db", "parlor.db-wal"].map(|file| std::fs::read(home.state().join(file)));
    let database =
        String::from_utf8_lossy(&files.into_iter().flatten().flatten().collect::<Vec<u8>>()).into_owned();
    // Long events are deflated in the database.
    (stdout, database + &home.prints(&["replay", &home.last_session(), "--json"]))
}

/// Script steps that say these pieces. JSON strings are valid TOML strings.
fn say_steps(pieces: &[&str]) -> String {
    let step = |piece: &&str| format!("{{ say = {} }},\n", Value::from(*piece));
    pieces.iter().map(step).collect()
}

#[test]
fn a_key_is_redacted_if_its_end_could_start_the_token() {
    let key = "sk-KEPT-openai-Qz7hT93kLmN0pXyW8vRb";
    let (start, end) = key.split_at(10);
    let home = home_with_key(key, &say_steps(&["the key: ", start, end, " end"]));
    let (stdout, database) = run_chat(&home);
    for text in [&stdout, &database] {
        assert!(!text.contains(key), "{text}");
    }
    assert!(stdout.contains("the key: [secret] end"), "{stdout}");
}

#[test]
fn the_token_is_redacted_if_its_end_could_start_a_key() {
    let home = home_with_key("sk-KEPT-openai-Qz7hT93kLmN0pXyW8vRx", &say_steps(&["token ", TOKEN, " end"]));
    let (stdout, database) = run_chat(&home);
    for text in [&stdout, &database] {
        assert!(!text.contains(TOKEN), "{text}");
    }
    assert!(stdout.contains("token [secret] end"), "{stdout}");
}

const KEY: &str = "sk-KEPT-openai-Qz7hT93kLmN0pXyW8vRx";

/// Sequences that a terminal does not show, as arguments of `printf`: a colour, a bell, a title, a right-to-left
/// override, and a title longer than the window in which streamed text is searched.
fn invisible_sequences() -> [String; 5] {
    let long = format!(r"\033]0;{}\007", "x".repeat(1000));
    [r"\033[m", r"\007", r"\033]0;title\007", r"\342\200\256", &long].map(str::to_owned)
}

/// A text as a terminal shows it, and the text without control characters.
fn visible_texts(text: &str) -> [String; 2] {
    let mut parts = text.split('\u{1b}');
    let mut terminal = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = if part.starts_with(']') { '\u{7}' } else { 'm' };
        terminal.push_str(part.split_once(end).map_or("", |(_, rest)| rest));
    }
    let without_controls =
        |text: &str| text.replace(|char: char| char.is_control() || char == '\u{202e}', "");
    [without_controls(&terminal), without_controls(text)]
}

#[test]
fn invisible_characters_do_not_hide_a_secret_in_tool_output() {
    for invisible in invisible_sequences() {
        let command = format!(r#"printf "$(sed 's/KEPT/KE{}PT/' key.txt)""#, invisible.replace('\\', r"\\"));
        let command = Value::from(command);
        let home = home_with_key(KEY, &format!("{{ tool = \"shell\", args = {{ command = {command} }} }}"));
        let (stdout, database) = run_chat(&home);
        let result = stdout.lines().find(|line| line.contains(r#""type":"tool.completed""#)).unwrap();
        let result: Value = serde_json::from_str(result).unwrap();
        let output = result["output"].as_str().unwrap();
        assert!(output.contains("[secret]"), "{invisible}: {output:?}");
        for text in visible_texts(output).iter().chain([&stdout, &database]) {
            assert!(!text.contains(KEY), "{invisible}: {text}");
        }
    }
}

#[test]
fn invisible_characters_do_not_hide_a_secret_in_a_provider_error() {
    let body = |invisible: &str| {
        let message = KEY.replace("KEPT", &format!("KE{invisible}PT"));
        let error = serde_json::json!({"error": {"message": format!("wrong key {message} given")}});
        &*Box::leak(error.to_string().into_boxed_str())
    };
    for invisible in ["\u{1b}[m", "\u{7}", "\u{202e}", "\u{1b}\u{1b}]2;x\u{1b}\\"] {
        let server = model_server::ScriptedServer::start(vec![model_server::Reply::Body(
            401,
            "application/json",
            body(invisible),
        )]);
        let home = api_format::ApiFormat::Chat.home(&server.url, "");
        let output = home.command(&["chat", "--json", "go"]).env("SOME_API_KEY", KEY).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let failed = stdout.lines().find(|line| line.contains(r#""type":"run.ended""#)).unwrap();
        let failed: Value = serde_json::from_str(failed).unwrap();
        let message = failed["failure"]["message"].as_str().unwrap_or_else(|| panic!("{failed}"));
        assert!(message.contains("[secret]"), "{invisible:?}: {message:?}");
        assert!(visible_texts(message).iter().all(|text| !text.contains(KEY)), "{invisible:?}: {message:?}");
    }
}

/// An answer is streamed, so parts of it are shown before the rest is known.
#[test]
fn invisible_characters_do_not_hide_a_secret_in_an_answer() {
    for invisible in ["\u{1b}[m", "\u{7}", "\u{202e}", "\u{1b}]0;title\u{7}"] {
        let text = KEY.replace("KEPT", &format!("KE{invisible}PT"));
        let pieces: Vec<String> = text.chars().map(|char| char.to_string()).collect();
        let home = home_with_key(KEY, &say_steps(&pieces.iter().map(String::as_str).collect::<Vec<_>>()));
        let (stdout, _) = run_chat(&home);
        let completed = stdout.lines().find(|line| line.contains(r#""type":"message.completed""#)).unwrap();
        assert!(completed.contains(r#""text":"[secret]""#), "{invisible:?}: {stdout}");
    }
}

/// A PNG image of one pixel.
const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00,
    0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x03, 0x01,
    0x01, 0x00, 0xc9, 0xfe, 0x92, 0xef, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60,
    0x82,
];

/// Images are sent unchanged, so an image file that contains a secret must not be sent at all.
#[test]
fn an_image_file_with_a_secret_is_not_sent() {
    let api = api_format::ApiFormat::Chat;
    for (secret, is_sent) in [(KEY, false), (TOKEN, false), ("no-secret-of-parlor", true)] {
        let server = model_server::ScriptedServer::start(vec![
            model_server::Reply::Stream(api.call("read_file", r#"{"path":"shot.png"}"#)),
            model_server::Reply::Stream(api.text("Done.") + &api.end()),
        ]);
        let home = api.home(&server.url, "");
        home.configure("supr.json", &serde_json::json!({ "token": TOKEN }).to_string());
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(home.state().join("supr.json"), private).unwrap();
        std::fs::write(home.folder().join("shot.png"), [PNG, secret.as_bytes()].concat()).unwrap();
        let output = home.command(&["chat", "--json", "go"]).env("SOME_API_KEY", KEY).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let sent = server.bodies()[1].to_string();
        assert_eq!(sent.contains("iVBORw0KGgo"), is_sent, "{secret}: {sent}");
        let refusal = "`shot.png` holds a secret that parlor keeps";
        assert_eq!(stdout.contains(refusal) && sent.contains(refusal), !is_sent, "{secret}: {stdout}");
    }
}
