//! Error messages of model requests: they name the key, the address or the model to check.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::process::{Command, Stdio};

use crate::api_format::ApiFormat;
use crate::home::Home;
use crate::scripted_server::{Reply, ScriptedServer};

/// The stderr of a command that must exit with code 1.
fn stderr_of_failure(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// The first event that announces a retry.
pub(crate) fn first_retry_note(mut command: Command) -> String {
    let mut chat = command.stdout(Stdio::piped()).spawn().unwrap();
    let out = chat.stdout.take().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(out));
    // The delays grow, so the test waits only for the first one.
    let note = lines.map(Result::unwrap).find(|line| line.contains("step.updated")).unwrap();
    chat.kill().unwrap();
    chat.wait().unwrap();
    note
}

fn refuse(status: u16) -> Reply {
    Reply::Status(status, "x: y".to_owned())
}

#[test]
fn a_refused_key_is_named_but_not_shown() {
    for (api, status) in [(ApiFormat::Chat, 401), (ApiFormat::Responses, 403), (ApiFormat::Anthropic, 401)] {
        let server = ScriptedServer::start(vec![refuse(status)]);
        let home = api.home(&server.url, "");
        let stderr = stderr_of_failure(home.command(&["chat", "hello"]));
        assert!(stderr.contains("the key in SOME_API_KEY is not accepted"), "{api:?}: {stderr}");
        assert!(
            stderr.contains(&format!("({status}: no)")) && stderr.contains("set another there"),
            "{api:?}: {stderr}"
        );
        assert!(!stderr.contains("s3cret"), "{stderr}");
    }
}

#[test]
fn a_missing_key_error_says_how_to_set_one() {
    let (server, home) = (ScriptedServer::start(vec![refuse(401)]), Home::new());
    let mut command = home.command(&["chat", "hello"]);
    command.env("OPENAI_BASE_URL", format!("{}/v1", server.url));
    let stderr = stderr_of_failure(command);
    assert!(stderr.contains("requires a key, and none was sent (401: no)"), "{stderr}");
    assert!(stderr.contains("set OPENAI_API_KEY, or run: parlor login openai --key"), "{stderr}");
}

#[test]
fn a_not_found_error_names_the_model_and_the_address() {
    for api in ApiFormat::ALL {
        let page = Reply::Body(404, "text/html", "<html>nothing here</html>");
        let server = ScriptedServer::start(vec![page]);
        let stderr = stderr_of_failure(api.home(&server.url, "").command(&["chat", "hello"]));
        let setting = format!("base_url = \"{}/v1\"", server.url);
        assert!(
            stderr.contains("model = \"claude-sonnet-5\"") && stderr.contains(&setting),
            "{api:?}: {stderr}"
        );
        assert!(
            stderr.contains("404: a page of HTML") && !stderr.contains("nothing here"),
            "{api:?}: {stderr}"
        );
    }
}

#[test]
fn an_error_without_a_reason_says_what_to_check() {
    let server = ScriptedServer::start(vec![Reply::Body(400, "text/plain", "")]);
    let stderr = stderr_of_failure(ApiFormat::Chat.home(&server.url, "").command(&["chat", "hello"]));
    assert!(stderr.contains("400: no reason given; check model = \"claude-sonnet-5\""), "{stderr}");
}

#[test]
fn an_answer_that_is_not_a_stream_suggests_checking_the_address() {
    for api in ApiFormat::ALL {
        for (kind, body) in
            [("text/html", "<html>Welcome</html>"), ("application/json", r#"{"status":"ok"}"#)]
        {
            let server = ScriptedServer::start(vec![Reply::Body(200, kind, body)]);
            let note = first_retry_note(api.home(&server.url, "").command(&["chat", "--json", "hello"]));
            assert!(note.contains("check base_url") && note.contains(&server.url), "{api:?} {kind}: {note}");
        }
    }
}

#[test]
fn an_unreachable_server_suggests_starting_it() {
    let note = first_retry_note(
        ApiFormat::Chat.home("http://127.0.0.1:1", "").command(&["chat", "--json", "hello"]),
    );
    assert!(note.contains("is the server running at http://127.0.0.1:1/v1?"), "{note}");
    let home = Home::new();
    home.configure(
        "parlor.toml",
        "[agents.main]\nkind = \"model\"\nmodel = \"mine\"\n[models.mine]\nprovider = \"ollama\"\nmodel = \"m\"\n\
         base_url = \"http://127.0.0.1:1\"\n",
    );
    let note = first_retry_note(home.command(&["chat", "--json", "hello"]));
    assert!(note.contains("ollama serve"), "{note}");
    let stderr = stderr_of_failure(home.command(&["models", "--refresh"]));
    assert!(stderr.contains("ollama serve"), "{stderr}");
}

#[test]
fn a_too_long_retry_delay_is_reported_with_its_end() {
    let headers = "date: Sun, 06 Nov 1994 12:00:00 GMT\r\nretry-after: 7200";
    let server = ScriptedServer::start(vec![Reply::Status(429, headers.to_owned())]);
    let stderr = stderr_of_failure(ApiFormat::Chat.home(&server.url, "").command(&["chat", "hello"]));
    assert!(stderr.contains("120 minutes, until Sun, 06 Nov 1994 14:00:00 GMT"), "{stderr}");
}

#[test]
fn a_variable_with_an_invalid_address_is_named_but_not_shown() {
    let home = Home::new();
    let with_base_url = |args: &[&str]| {
        let mut command = home.command(args);
        // The user put a key there by mistake.
        command.env("OPENAI_BASE_URL", "sk-s3cret-key");
        command
    };
    let stderr = stderr_of_failure(with_base_url(&["chat", "hello"]));
    assert!(
        stderr.contains("MODEL_SETTINGS") && stderr.contains("OPENAI_BASE_URL is not an address"),
        "{stderr}"
    );
    assert!(stderr.contains("set it to an address such as http://127.0.0.1:8080/v1"), "{stderr}");
    let doctor = String::from_utf8(with_base_url(&["doctor"]).output().unwrap().stdout).unwrap();
    let message = "OPENAI_BASE_URL is not an address";
    assert_eq!(doctor.matches(message).count(), 1, "{doctor}");
    assert!(doctor.contains("fix: export OPENAI_BASE_URL=http://127.0.0.1:8080/v1, or unset it"), "{doctor}");
    // Also if another model is available.
    let doctor = with_base_url(&["doctor"]).env("ANTHROPIC_API_KEY", "s3cret").output().unwrap().stdout;
    let doctor = String::from_utf8(doctor).unwrap();
    assert!(doctor.contains(message) && doctor.contains("ANTHROPIC_API_KEY set"), "{doctor}");
    let listed = String::from_utf8(with_base_url(&["models"]).output().unwrap().stdout).unwrap();
    let env = with_base_url(&["chat", "--agent", "local", "!env; echo end"]).output().unwrap().stdout;
    let env = String::from_utf8(env).unwrap();
    assert!(listed.contains(message) && env.contains("end\n"), "{listed}{env}");
    assert!(
        ![stderr, doctor, listed, env].concat().contains("sk-s3cret"),
        "the value of the variable is shown"
    );
    for file in ["parlor.db", "parlor.db-wal"] {
        let bytes = std::fs::read(home.state().join(file)).unwrap_or_default();
        assert!(
            !bytes.windows(9).any(|window| window == b"sk-s3cret"),
            "the value of the variable is in {file}"
        );
    }
}

#[test]
fn a_model_without_a_key_names_the_variable() {
    let home = Home::new();
    for model in ["openai", "openai/some-model"] {
        let stderr = stderr_of_failure(home.command(&["chat", "--model", model, "hello"]));
        assert!(stderr.contains("set OPENAI_API_KEY, or run: parlor login openai --key"), "{stderr}");
    }
    let stderr = stderr_of_failure(home.command(&["chat", "--model", "other", "hello"]));
    assert!(stderr.contains("parlor doctor"), "{stderr}");
}

#[test]
fn a_self_hosted_server_needs_only_its_address() {
    let answer = Reply::Stream(ApiFormat::Chat.text("Hello.") + &ApiFormat::Chat.end());
    let list = Reply::Body(200, "application/json", r#"{"data":[{"id":"qwen3-coder"},{"id":"tiny"}]}"#);
    let (server, home) = (ScriptedServer::start(vec![answer, list]), Home::new());
    let url = format!("{}/v1", server.url);
    let with_base_url = |args: &[&str]| {
        let output = home.command(args).env("OPENAI_BASE_URL", &url).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(
        with_base_url(&["chat", "--model", "openai/qwen3-coder", "hello"]),
        ("Hello.\n".to_owned(), String::new())
    );
    assert_eq!(server.bodies()[0]["model"], "qwen3-coder");
    let (listed, _) = with_base_url(&["models", "--all"]);
    assert!(listed.contains("qwen3-coder") && listed.contains("tiny"), "{listed}");
    let (doctor, _) = with_base_url(&["doctor"]);
    assert!(doctor.contains(&format!("at {url}), without a key")), "{doctor}");
}
