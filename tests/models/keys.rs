//! Which key a model server receives: that of a variable, else a stored one. Logins are in `tests/auth`. These tests
//! use the scripted server, because aimock does not report the keys that it receives.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Output, Stdio};

use parlor_log::SystemClock;
use parlor_vocab::Clock;
use serde_json::{Value, json};

use crate::api_format::ApiFormat;
use crate::home::Home;
use crate::loaf_child::LoafChild;
use crate::scripted_server::{Reply, ScriptedServer};

/// Runs a command with this text on its stdin.
fn run_with_input(home: &Home, args: &[&str], input: &str) -> Output {
    let mut command = home.command(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that fails at once does not read its stdin.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn store_key(home: &Home, name: &str, key: &str) -> String {
    let output = run_with_input(home, &["login", name, "--key"], key);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn model_entry(home: &Home, model: &str) -> Value {
    home.json(&["models", "--json"]).into_iter().find(|entry| entry["name"] == model).unwrap()
}

#[test]
fn a_redirect_sends_neither_the_key_nor_the_message_to_another_server() {
    let other =
        ScriptedServer::start(vec![Reply::Stream(ApiFormat::Chat.text("Hello.") + &ApiFormat::Chat.end())]);
    let location = format!("Location: {}/v1/chat/completions", other.url);
    let (server, home) = (ScriptedServer::start(vec![Reply::Status(307, location)]), Home::new());
    let mut command = home.command(&["chat", "private text"]);
    command.env("OPENAI_BASE_URL", format!("{}/v1", server.url)).env("OPENAI_API_KEY", "variable-s3cret");
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert_eq!((server.bodies().len(), other.bodies().len()), (1, 0));
}

#[test]
fn a_stored_key_is_used_until_logout() {
    let answer = || Reply::Stream(ApiFormat::Chat.text("Hello.") + &ApiFormat::Chat.end());
    let (server, home) = (ScriptedServer::start(vec![answer(), answer()]), Home::new());
    assert_eq!(model_entry(&home, "openai")["ready"], false);
    let said = store_key(&home, "openai", "kept-s3cret-key\n");
    assert!(said.contains("secrets/key-openai") && !said.contains("s3cret"), "{said}");
    assert_eq!(model_entry(&home, "openai")["ready"], true);
    assert!(home.prints(&["auth"]).contains("openai: key\n"));
    let doctor = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("with the stored key of openai"), "{doctor}");

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
    assert_eq!(server.header_values("authorization"), [bearer("kept-s3cret-key"), bearer("variable-s3cret")]);

    assert_eq!(home.prints(&["logout", "openai"]), "Removed the key of openai.\n");
    let missing = model_entry(&home, "openai")["missing"].as_str().unwrap().to_owned();
    assert_eq!(missing, "there is no key: set OPENAI_API_KEY, or run: parlor login openai --key");
    assert!(home.refuses(&["login", "openai"]).contains("run: parlor login openai --key"));
}

#[test]
fn a_key_goes_to_another_server_only_if_the_settings_name_the_key() {
    for api in ApiFormat::ALL {
        let answer = || Reply::Stream(api.text("Hello.") + &api.end());
        let server = ScriptedServer::start(vec![answer(), answer()]);
        let home = api.home(&server.url, "");
        let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
        let settings = settings.replace("SOME_API_KEY", "NO_SUCH_KEY");
        home.configure("parlor.toml", &settings);
        for name in ["openai", "anthropic"] {
            store_key(&home, name, "kept-for-the-provider");
        }
        home.prints(&["chat", "hello"]);
        home.configure("parlor.toml", &format!("{settings}auth = \"mine\"\n"));
        let said = home.refuses(&["chat", "hello"]);
        assert!(said.contains("parlor login mine --key"), "{api:?}: {said}");
        store_key(&home, "mine", "kept-for-the-server");
        home.prints(&["chat", "hello"]);
        let name = if api == ApiFormat::Anthropic { "x-api-key" } else { "authorization" };
        let sent = server.header_values(name);
        assert_eq!(sent[0], None, "{api:?}");
        let kept = sent[1].as_ref().expect("a key");
        assert!(kept.ends_with("kept-for-the-server"), "{api:?}: {kept}");
    }
}

#[test]
fn a_key_set_through_the_loaf_door_is_used_at_once() {
    let answer = Reply::Stream(ApiFormat::Chat.text("Hello.") + &ApiFormat::Chat.end());
    let (server, home) = (ScriptedServer::start(vec![answer]), Home::new());
    let settings = format!(
        "[agents.main]\nkind = \"model\"\nmodel = \"routed\"\n[models.routed]\nprovider = \"openrouter\"\n\
         model = \"a/b\"\nbase_url = \"{}/v1\"\nauth = \"openrouter\"\n",
        server.url
    );
    // The lists of both servers are in the cache, so neither is asked for its models.
    let list = |id: &str| json!({"fetched_ms": SystemClock.now().0, "models": [id]});
    let (openrouter, own) =
        ("openrouter https://openrouter.ai/api/v1/", format!("openrouter {}/v1", server.url));
    let cache = json!({openrouter: list("a/listed"), own: list("a/own")});
    home.configure("models.json", &cache.to_string());
    for (settings, models) in [
        ("", ["openrouter", "a/listed"].as_slice()),
        (&settings, &["main", "openrouter", "routed", "a/listed", "a/own"]),
    ] {
        home.configure("parlor.toml", settings);
        let mut loaf = LoafChild::start(&home);
        let before = loaf.request("model.list", r#"{"provider":"openrouter"}"#);
        let model_count = before["models"].as_array().unwrap().len();
        // In the second round the key is already stored.
        assert_eq!(model_count, if settings.is_empty() { 0 } else { models.len() }, "{before}");
        let set = loaf.request("auth.set.openrouter_key", r#"{"api_key":"key-through-the-door"}"#);
        assert_eq!(set["configured"], true, "{set}");
        let listed = loaf.request("model.list", r#"{"provider":"openrouter"}"#);
        let ids: Vec<&str> =
            listed["models"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
        assert_eq!(ids, models, "{listed}");
        assert_eq!(set["model_count"], models.len(), "{set}");
        assert_eq!(loaf.request("auth.status", "{}")["has_openrouter_key"], true);
    }
    assert_eq!(home.prints(&["chat", "hello"]), "Hello.\n");
    assert_eq!(server.header_values("authorization"), [Some("Bearer key-through-the-door".to_owned())]);
}

#[test]
fn logout_all_deletes_all_keys() {
    let home = Home::new();
    for name in ["exa", "openai"] {
        store_key(&home, name, "kept-s3cret-key");
    }
    let said = home.refuses(&["logout"]);
    assert!(said.contains("name one of these providers, or use --all: exa, openai"), "{said}");
    let said = home.prints(&["logout", "--all"]);
    assert_eq!(said, "Removed the key of exa.\nRemoved the key of openai.\n");
    assert!(home.refuses(&["logout", "--all"]).contains("no stored key to remove"));
    store_key(&home, "openai", "kept-s3cret-key");
    assert_eq!(
        home.prints(&["logout"]),
        "Removed the key of openai.\n",
        "without a name, the only key is deleted"
    );
}

#[test]
fn logout_from_an_unknown_provider_lists_the_known_ones_and_writes_no_file() {
    let home = Home::new();
    store_key(&home, "openai", "kept-s3cret-key");
    let login = "[auth.x]\nclient_id = \"c\"\nauthorize_url = \"https://x.test/a\"\ntoken_url = \"https://x.test/t\"\n";
    home.configure(
        "parlor.toml",
        &format!("{login}[models.own]\nprovider = \"openai\"\nmodel = \"m\"\nauth = \"own\"\n"),
    );
    store_key(&home, "own", "kept-s3cret-key");
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
        let expected = format!(
            "there is no provider {name:?}; there are: anthropic, exa, gemini, openai, openrouter, own, x."
        );
        assert!(said.contains(&expected), "{said}");
        assert_eq!(files(), before);
    }
    assert_eq!(
        home.prints(&["logout", "own"]),
        "Removed the key of own.\n",
        "a key that no model uses can be deleted too"
    );
}

#[test]
fn a_key_that_cannot_be_deleted_does_not_keep_the_others() {
    let home = Home::new();
    for name in ["anthropic", "openrouter"] {
        store_key(&home, name, "kept-s3cret-key");
    }
    // The marker of a key in a keyring that is not available now.
    std::fs::write(home.state().join("secrets/.key-openai.keyring"), "").unwrap();
    let said = home.refuses(&["logout", "--all"]);
    assert!(said.contains("key-openai is in the system's keyring"), "{said}");
    for name in ["anthropic", "openrouter"] {
        assert!(!home.state().join(format!("secrets/key-{name}")).exists(), "{name}");
    }
}

#[test]
fn a_key_file_that_others_can_read_is_reported_with_a_fix() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    store_key(&home, "openai", "\u{feff}\"kept-s3cret-key\"\r\n");
    let file = home.state().join("secrets/key-openai");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept-s3cret-key");
    home.prints(&["auth", "--check"]);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let said = home.prints(&["auth"]);
    assert!(said.contains("openai: key, which cannot be used: ") && said.contains("chmod 600"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    assert_eq!(home.json(&["auth", "--json"])[0]["state"], "unreadable");
    assert_eq!(home.run(&["auth", "--check"]).status.code(), Some(1));
}

#[test]
fn an_invalid_key_in_a_file_is_reported_at_once() {
    let home = Home::new();
    store_key(&home, "openai", "kept-s3cret-key");
    std::fs::write(home.state().join("secrets/key-openai"), "kept-s3cret-key\n").unwrap();
    let message = "the stored key of openai is not valid";
    let said = home.refuses(&["chat", "hello"]);
    assert!(said.contains(message) && said.contains("run: parlor login openai --key"), "{said}");
    let doctor = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    assert!(doctor.lines().any(|line| line.starts_with("warning") && line.contains(message)), "{doctor}");
    assert!(![said, doctor].concat().contains("s3cret"), "the key is shown");
}

#[test]
fn an_invalid_key_is_not_stored() {
    let home = Home::new();
    for (name, input, hint) in [
        ("openai", "", "no key was entered"),
        ("openai", "two words", "one word"),
        ("openai", "OPENAI_API_KEY=key", "after the ="),
        ("opnai", "key", "known names: anthropic, exa, gemini, openai, openrouter"),
    ] {
        let output = run_with_input(&home, &["login", name, "--key"], input);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(hint), "{said}");
    }
    assert!(!home.state().join("secrets").exists());
}

/// Runs a command with a key in a variable; returns the exit code, and stdout and stderr together.
fn run_with_key(home: &Home, args: &[&str], name: &str, key: &OsStr) -> (Option<i32>, String) {
    let output = home.command(args).env(name, key).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn whitespace_around_a_key_in_a_variable_is_not_sent() {
    let answer = Reply::Stream(ApiFormat::Chat.text("Hello.") + &ApiFormat::Chat.end());
    let server = ScriptedServer::start(vec![answer]);
    let home = ApiFormat::Chat.home(&server.url, "");
    let (code, said) = run_with_key(&home, &["chat", "hello"], "SOME_API_KEY", OsStr::new(" s3cret-key\r\n"));
    assert_eq!((code, said.as_str()), (Some(0), "Hello.\n"));
    assert_eq!(server.header_values("authorization"), [Some("Bearer s3cret-key".to_owned())]);

    let home = Home::new();
    let (_, said) = run_with_key(&home, &["doctor"], "ANTHROPIC_API_KEY", OsStr::new(" \n"));
    assert!(said.contains("none; the built-in agent answers"), "{said}");
    let (_, said) = run_with_key(&home, &["models"], "ANTHROPIC_API_KEY", OsStr::new(" "));
    assert!(said.contains("there is no key: set ANTHROPIC_API_KEY"), "{said}");
}

#[test]
fn a_variable_with_an_invalid_key_is_reported_at_once() {
    for key in [&b"s3cret-a\ns3cret-b"[..], b"s3cret\x1b[A", b"s3cret\xff"] {
        let (home, key) = (Home::new(), OsStr::from_bytes(key));
        let (code, said) = run_with_key(&home, &["chat", "--json", "hello"], "OPENAI_API_KEY", key);
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("MODEL_SETTINGS") && said.contains("OPENAI_API_KEY is not a valid key"),
            "{said}"
        );
        assert!(!said.contains("step.updated"), "an invalid key must not be retried: {said}");
        let (_, doctor) = run_with_key(&home, &["doctor"], "OPENAI_API_KEY", key);
        let line = doctor.lines().find(|line| line.contains("OPENAI_API_KEY is not a valid key"));
        assert!(line.is_some_and(|line| line.starts_with("warning")), "{doctor}");
        let (_, listed) = run_with_key(&home, &["models"], "OPENAI_API_KEY", key);
        assert!(listed.contains("OPENAI_API_KEY is not a valid key"), "{listed}");
        assert!(![said, doctor, listed].concat().contains("s3cret"), "a key is shown");
    }
}
