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

/// A step for each piece of an answer. A text of JSON is one of TOML.
fn says(pieces: &[&str]) -> String {
    let step = |piece: &&str| format!("{{ say = {} }},\n", Value::from(*piece));
    pieces.iter().map(step).collect()
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

const KEY: &str = "sk-KEPT-openai-Qz7hT93kLmN0pXyW8vRx";

/// What a terminal does not show, as `printf` of a shell is told it: a colour, a bell, a title, a mark that turns the
/// direction of writing around, and a title that is longer than what is looked through while a text is written.
fn unseen() -> [String; 5] {
    let long = format!(r"\033]0;{}\007", "x".repeat(1000));
    [r"\033[m", r"\007", r"\033]0;title\007", r"\342\200\256", &long].map(str::to_owned)
}

/// What a person sees of a text, and what is left of it without control characters.
fn seen(text: &str) -> [String; 2] {
    let mut parts = text.split('\u{1b}');
    let mut terminal = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = if part.starts_with(']') { '\u{7}' } else { 'm' };
        terminal.push_str(part.split_once(end).map_or("", |(_, rest)| rest));
    }
    let letters = |text: &str| text.replace(|letter: char| letter.is_control() || letter == '\u{202e}', "");
    [letters(&terminal), letters(text)]
}

#[test]
fn what_a_terminal_does_not_show_hides_no_secret_in_what_a_tool_prints() {
    for unseen in unseen() {
        let command = format!(r#"printf "$(sed 's/KEPT/KE{}PT/' key.txt)""#, unseen.replace('\\', r"\\"));
        let command = Value::from(command);
        let home = home(KEY, &format!("{{ tool = \"shell\", args = {{ command = {command} }} }}"));
        let (told, kept) = told_and_kept(&home);
        let result = told.lines().find(|line| line.contains(r#""type":"tool.completed""#)).unwrap();
        let result: Value = serde_json::from_str(result).unwrap();
        let output = result["output"].as_str().unwrap();
        assert!(output.contains("[secret]"), "{unseen}: {output:?}");
        for text in seen(output).iter().chain([&told, &kept]) {
            assert!(!text.contains(KEY), "{unseen}: {text}");
        }
    }
}

#[test]
fn what_a_terminal_does_not_show_hides_no_secret_in_what_a_provider_says() {
    let body = |unseen: &str| {
        let message = KEY.replace("KEPT", &format!("KE{unseen}PT"));
        let error = serde_json::json!({"error": {"message": format!("wrong key {message} given")}});
        &*Box::leak(error.to_string().into_boxed_str())
    };
    for unseen in ["\u{1b}[m", "\u{7}", "\u{202e}", "\u{1b}\u{1b}]2;x\u{1b}\\"] {
        let server = model_server::Server::start(vec![model_server::Deed::Body(
            401,
            "application/json",
            body(unseen),
        )]);
        let home = forms::Form::Chat.home(&server.url, "");
        let output = home.command(&["chat", "--json", "go"]).env("SOME_API_KEY", KEY).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let failed = told.lines().find(|line| line.contains(r#""type":"run.ended""#)).unwrap();
        let failed: Value = serde_json::from_str(failed).unwrap();
        let message = failed["failure"]["message"].as_str().unwrap_or_else(|| panic!("{failed}"));
        assert!(message.contains("[secret]"), "{unseen:?}: {message:?}");
        assert!(seen(message).iter().all(|text| !text.contains(KEY)), "{unseen:?}: {message:?}");
    }
}

/// What an agent says comes in pieces, and is shown before the whole of it is known.
#[test]
fn what_a_terminal_does_not_show_hides_no_secret_in_an_answer() {
    for unseen in ["\u{1b}[m", "\u{7}", "\u{202e}", "\u{1b}]0;title\u{7}"] {
        let text = KEY.replace("KEPT", &format!("KE{unseen}PT"));
        let letters: Vec<String> = text.chars().map(|letter| letter.to_string()).collect();
        let home = home(KEY, &says(&letters.iter().map(String::as_str).collect::<Vec<_>>()));
        let (told, _) = told_and_kept(&home);
        let completed = told.lines().find(|line| line.contains(r#""type":"message.completed""#)).unwrap();
        assert!(completed.contains(r#""text":"[secret]""#), "{unseen:?}: {told}");
    }
}

/// A picture of one point.
const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00,
    0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x03, 0x01,
    0x01, 0x00, 0xc9, 0xfe, 0x92, 0xef, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60,
    0x82,
];

/// An image goes to the provider as it is, so one that holds a secret is not given to the model.
#[test]
fn an_image_that_holds_a_secret_is_not_sent() {
    let form = forms::Form::Chat;
    for (secret, is_sent) in [(KEY, false), (TOKEN, false), ("no-secret-of-parlor", true)] {
        let server = model_server::Server::start(vec![
            model_server::Deed::Answer(form.call("read_file", r#"{"path":"shot.png"}"#)),
            model_server::Deed::Answer(form.text("Done.") + &form.end()),
        ]);
        let home = form.home(&server.url, "");
        home.configure("supr.json", &serde_json::json!({ "token": TOKEN }).to_string());
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(home.state().join("supr.json"), private).unwrap();
        std::fs::write(home.folder().join("shot.png"), [PNG, secret.as_bytes()].concat()).unwrap();
        let output = home.command(&["chat", "--json", "go"]).env("SOME_API_KEY", KEY).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let sent = server.bodies()[1].to_string();
        assert_eq!(sent.contains("iVBORw0KGgo"), is_sent, "{secret}: {sent}");
        let refusal = "`shot.png` holds a secret that parlor keeps";
        assert_eq!(told.contains(refusal) && sent.contains(refusal), !is_sent, "{secret}: {told}");
    }
}
