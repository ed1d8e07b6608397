//! Which key arrives at a server: that of a variable, then one that is kept. Logins are in `tests/auth`. The server is
//! ours: aimock does not say which key it was sent.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::door::Door;
use crate::forms::Form;
use crate::home::Home;
use crate::server::{Deed, Server};

/// Gives a program something to read.
fn with_input(home: &Home, args: &[&str], input: &str) -> Output {
    let mut command = home.command(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that refuses at once does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn keep_key(home: &Home, name: &str, key: &str) -> String {
    let output = with_input(home, &["login", name, "--key"], key);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn line_of(home: &Home, model: &str) -> Value {
    home.json(&["models", "--json"]).into_iter().find(|line| line["name"] == model).unwrap()
}

#[test]
fn who_is_redirected_to_gets_neither_the_key_nor_what_was_said() {
    let other = Server::start(vec![Deed::Answer(Form::Chat.text("Hello.") + &Form::Chat.end())]);
    let elsewhere = format!("Location: {}/v1/chat/completions", other.url);
    let (server, home) = (Server::start(vec![Deed::Refuse(307, elsewhere)]), Home::new());
    let mut command = home.command(&["chat", "private words"]);
    command.env("OPENAI_BASE_URL", format!("{}/v1", server.url)).env("OPENAI_API_KEY", "variable-s3cret");
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert_eq!((server.bodies().len(), other.bodies().len()), (1, 0));
}

#[test]
fn a_key_that_is_kept_opens_a_model_until_it_is_forgotten() {
    let answer = || Deed::Answer(Form::Chat.text("Hello.") + &Form::Chat.end());
    let (server, home) = (Server::start(vec![answer(), answer()]), Home::new());
    assert_eq!(line_of(&home, "openai")["ready"], false);
    let said = keep_key(&home, "openai", "kept-s3cret-key\n");
    assert!(said.contains("secrets/key-openai") && !said.contains("s3cret"), "{said}");
    assert_eq!(line_of(&home, "openai")["ready"], true);
    assert!(home.prints(&["auth"]).contains("openai: a key is kept"));
    let doctor = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("with the key of openai that is kept"), "{doctor}");

    let url = format!("{}/v1", server.url);
    let chat = |key: Option<&str>| {
        let mut command = home.command(&["chat", "say hello"]);
        command.env("OPENAI_BASE_URL", &url).envs(key.map(|key| ("OPENAI_API_KEY", key)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    chat(None);
    chat(Some("variable-s3cret"));
    let bearer = |key: &str| Some(format!("Bearer {key}"));
    assert_eq!(server.heads("authorization"), [bearer("kept-s3cret-key"), bearer("variable-s3cret")]);

    assert_eq!(home.prints(&["logout", "openai"]), "The key of openai is forgotten.\n");
    let missing = line_of(&home, "openai")["missing"].as_str().unwrap().to_owned();
    assert_eq!(missing, "there is no key: set OPENAI_API_KEY, or run: parlor login openai --key");
    assert!(home.refuses(&["login", "openai"]).contains("run: parlor login openai --key"));
}

#[test]
fn a_key_goes_to_another_server_only_where_the_settings_name_it() {
    for form in Form::ALL {
        let answer = || Deed::Answer(form.text("Hello.") + &form.end());
        let server = Server::start(vec![answer(), answer()]);
        let home = form.home(&server.url, "");
        let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
        let settings = settings.replace("SOME_API_KEY", "NO_SUCH_KEY");
        home.configure("parlor.toml", &settings);
        for name in ["openai", "anthropic"] {
            keep_key(&home, name, "kept-for-the-provider");
        }
        home.prints(&["chat", "hello"]);
        home.configure("parlor.toml", &format!("{settings}auth = \"mine\"\n"));
        let said = home.refuses(&["chat", "hello"]);
        assert!(said.contains("parlor login mine --key"), "{form:?}: {said}");
        keep_key(&home, "mine", "kept-for-the-server");
        home.prints(&["chat", "hello"]);
        let name = if form == Form::Anthropic { "x-api-key" } else { "authorization" };
        let sent = server.heads(name);
        assert_eq!(sent[0], None, "{form:?}");
        let kept = sent[1].as_ref().expect("a key");
        assert!(kept.ends_with("kept-for-the-server"), "{form:?}: {kept}");
    }
}

#[test]
fn a_key_that_comes_through_the_loaf_door_opens_a_model_at_once() {
    let answer = Deed::Answer(Form::Chat.text("Hello.") + &Form::Chat.end());
    let (server, home) = (Server::start(vec![answer]), Home::new());
    let settings = format!(
        "[agents.main]\nkind = \"model\"\nmodel = \"routed\"\n[models.routed]\nprovider = \"openrouter\"\n\
         model = \"a/b\"\nbase_url = \"{}/v1\"\nauth = \"openrouter\"\n",
        server.url
    );
    for (settings, models) in
        [("", ["openrouter"].as_slice()), (&settings, &["main", "openrouter", "routed"])]
    {
        home.configure("parlor.toml", settings);
        let mut door = Door::open(&home);
        let before = door.ask("model.list", r#"{"provider":"openrouter"}"#);
        let offered = before["models"].as_array().unwrap().len();
        // The second time the key is kept already.
        assert_eq!(offered, if settings.is_empty() { 0 } else { models.len() }, "{before}");
        let set = door.ask("auth.set.openrouter_key", r#"{"api_key":"key-through-the-door"}"#);
        assert_eq!(set["configured"], true, "{set}");
        let listed = door.ask("model.list", r#"{"provider":"openrouter"}"#);
        let ids: Vec<&str> =
            listed["models"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
        assert_eq!(ids, models, "{listed}");
        assert_eq!(set["model_count"], models.len(), "{set}");
        assert_eq!(door.ask("auth.status", "{}")["has_openrouter_key"], true);
    }
    assert_eq!(home.prints(&["chat", "hello"]), "Hello.\n");
    assert_eq!(server.heads("authorization"), [Some("Bearer key-through-the-door".to_owned())]);
}

#[test]
fn all_that_is_kept_is_forgotten_at_once() {
    let home = Home::new();
    for name in ["exa", "openai"] {
        keep_key(&home, name, "kept-s3cret-key");
    }
    let said = home.refuses(&["logout"]);
    assert!(said.contains("say which one, or --all; there are: exa, openai"), "{said}");
    let said = home.prints(&["logout", "--all"]);
    assert_eq!(said, "The key of exa is forgotten.\nThe key of openai is forgotten.\n");
    assert!(home.refuses(&["logout", "--all"]).contains("no key is kept"));
    keep_key(&home, "openai", "kept-s3cret-key");
    assert_eq!(home.prints(&["logout"]), "The key of openai is forgotten.\n", "there is no other");
}

#[test]
fn logging_out_of_somebody_unknown_says_who_there_is_and_leaves_nothing_behind() {
    let home = Home::new();
    keep_key(&home, "openai", "kept-s3cret-key");
    let login = "[auth.x]\nclient_id = \"c\"\nauthorize_url = \"https://x.test/a\"\ntoken_url = \"https://x.test/t\"\n";
    home.configure(
        "parlor.toml",
        &format!("{login}[models.own]\nprovider = \"openai\"\nmodel = \"m\"\nauth = \"own\"\n"),
    );
    keep_key(&home, "own", "kept-s3cret-key");
    home.configure("parlor.toml", login);
    let files = || {
        let entries = std::fs::read_dir(home.state().join("secrets")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let before = files();
    for name in ["nosuch", "../up"] {
        let said = home.refuses(&["logout", name]);
        let there = format!(
            "there is no provider {name:?}; there are: anthropic, exa, gemini, openai, openrouter, own, x."
        );
        assert!(said.contains(&there), "{said}");
        assert_eq!(files(), before);
    }
    assert_eq!(
        home.prints(&["logout", "own"]),
        "The key of own is forgotten.\n",
        "also what nobody asks for now"
    );
}

#[test]
fn what_cannot_be_forgotten_keeps_nothing_else() {
    let home = Home::new();
    for name in ["anthropic", "openrouter"] {
        keep_key(&home, name, "kept-s3cret-key");
    }
    // One that was put into a keyring, where there is none now.
    std::fs::write(home.state().join("secrets/.key-openai.keyring"), "").unwrap();
    let said = home.refuses(&["logout", "--all"]);
    assert!(said.contains("key-openai is in the system's keyring"), "{said}");
    for name in ["anthropic", "openrouter"] {
        assert!(!home.state().join(format!("secrets/key-{name}")).exists(), "{name}");
    }
}

#[test]
fn a_key_that_others_can_read_is_told_with_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    keep_key(&home, "openai", "\u{feff}\"kept-s3cret-key\"\r\n");
    let file = home.state().join("secrets/key-openai");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept-s3cret-key");
    home.prints(&["auth", "--check"]);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let said = home.prints(&["auth"]);
    assert!(said.contains("openai: a key is kept, and not used: ") && said.contains("chmod 600"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    assert_eq!(home.json(&["auth", "--json"])[0]["state"], "unreadable");
    assert_eq!(home.run(&["auth", "--check"]).status.code(), Some(1));
}

#[test]
fn a_key_that_was_written_by_hand_and_cannot_be_sent_is_told_at_once() {
    let home = Home::new();
    keep_key(&home, "openai", "kept-s3cret-key");
    std::fs::write(home.state().join("secrets/key-openai"), "kept-s3cret-key\n").unwrap();
    let told = "what is kept for openai is no key";
    let said = home.refuses(&["chat", "hello"]);
    assert!(said.contains(told) && said.contains("run: parlor login openai --key"), "{said}");
    let doctor = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    assert!(doctor.lines().any(|line| line.starts_with("warning") && line.contains(told)), "{doctor}");
    assert!(![said, doctor].concat().contains("s3cret"), "the key is shown");
}

#[test]
fn what_is_no_key_is_not_kept() {
    let home = Home::new();
    for (name, input, hint) in [
        ("openai", "", "there is no key on stdin"),
        ("openai", "two words", "one word"),
        ("openai", "OPENAI_API_KEY=key", "after the ="),
        ("opnai", "key", "there are: anthropic, exa, gemini, openai, openrouter"),
    ] {
        let output = with_input(&home, &["login", name, "--key"], input);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(hint), "{said}");
    }
    assert!(!home.state().join("secrets").exists());
}

/// What a program says with a key in a variable.
fn with_key(home: &Home, args: &[&str], name: &str, key: &OsStr) -> (Option<i32>, String) {
    let output = home.command(args).env(name, key).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn white_space_around_a_key_in_a_variable_is_not_sent() {
    let answer = Deed::Answer(Form::Chat.text("Hello.") + &Form::Chat.end());
    let server = Server::start(vec![answer]);
    let home = Form::Chat.home(&server.url, "");
    let (code, said) = with_key(&home, &["chat", "hello"], "SOME_API_KEY", OsStr::new(" s3cret-key\r\n"));
    assert_eq!((code, said.as_str()), (Some(0), "Hello.\n"));
    assert_eq!(server.heads("authorization"), [Some("Bearer s3cret-key".to_owned())]);

    let home = Home::new();
    let (_, said) = with_key(&home, &["doctor"], "ANTHROPIC_API_KEY", OsStr::new(" \n"));
    assert!(said.contains("none; the local agent answers"), "{said}");
    let (_, said) = with_key(&home, &["models"], "ANTHROPIC_API_KEY", OsStr::new(" "));
    assert!(said.contains("there is no key: set ANTHROPIC_API_KEY"), "{said}");
}

#[test]
fn a_variable_that_cannot_be_a_key_is_named_at_once() {
    for key in [&b"s3cret-a\ns3cret-b"[..], b"s3cret\x1b[A", b"s3cret\xff"] {
        let (home, key) = (Home::new(), OsStr::from_bytes(key));
        let (code, said) = with_key(&home, &["chat", "--json", "hello"], "OPENAI_API_KEY", key);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("MODEL_SETTINGS") && said.contains("OPENAI_API_KEY holds no key"), "{said}");
        assert!(!said.contains("step.updated"), "it is not tried again: {said}");
        let (_, doctor) = with_key(&home, &["doctor"], "OPENAI_API_KEY", key);
        let line = doctor.lines().find(|line| line.contains("OPENAI_API_KEY holds no key"));
        assert!(line.is_some_and(|line| line.starts_with("warning")), "{doctor}");
        let (_, listed) = with_key(&home, &["models"], "OPENAI_API_KEY", key);
        assert!(listed.contains("OPENAI_API_KEY holds no key"), "{listed}");
        assert!(![said, doctor, listed].concat().contains("s3cret"), "a key is shown");
    }
}
