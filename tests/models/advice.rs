//! What is said when a model cannot be asked: which key, address or name to look at. Against a server of ours.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::process::{Command, Stdio};

use crate::forms::Form;
use crate::home::Home;
use crate::server::{Deed, Server};

/// What a chat says aside when it fails.
fn fails(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// The first note of a run that is tried again.
fn first_note(mut command: Command) -> String {
    let mut chat = command.stdout(Stdio::piped()).spawn().unwrap();
    let out = chat.stdout.take().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(out));
    // The waits grow, so only the first is waited for.
    let note = lines.map(Result::unwrap).find(|line| line.contains("step.updated")).unwrap();
    chat.kill().unwrap();
    chat.wait().unwrap();
    note
}

fn no(status: u16) -> Deed {
    Deed::Refuse(status, "x: y".to_owned())
}

#[test]
fn a_key_that_is_refused_is_named_and_never_shown() {
    for (form, status) in [(Form::Chat, 401), (Form::Responses, 403), (Form::Anthropic, 401)] {
        let server = Server::start(vec![no(status)]);
        let home = form.home(&server.url, "");
        let said = fails(home.command(&["chat", "hello"]));
        assert!(said.contains("the key in SOME_API_KEY is not accepted"), "{form:?}: {said}");
        assert!(
            said.contains(&format!("({status}: no)")) && said.contains("set another there"),
            "{form:?}: {said}"
        );
        assert!(!said.contains("s3cret"), "{said}");
    }
}

#[test]
fn a_server_that_wants_a_key_says_how_to_give_one() {
    let (server, home) = (Server::start(vec![no(401)]), Home::new());
    let mut command = home.command(&["chat", "hello"]);
    command.env("OPENAI_BASE_URL", format!("{}/v1", server.url));
    let said = fails(command);
    assert!(said.contains("wants a key, and has none (401: no)"), "{said}");
    assert!(said.contains("set OPENAI_API_KEY, or run: parlor login openai --key"), "{said}");
}

#[test]
fn what_is_not_found_names_the_model_and_the_address() {
    for form in Form::ALL {
        let page = Deed::Body(404, "text/html", "<html>nothing here</html>");
        let server = Server::start(vec![page]);
        let said = fails(form.home(&server.url, "").command(&["chat", "hello"]));
        let place = format!("base_url = \"{}/v1\"", server.url);
        assert!(said.contains("model = \"claude-sonnet-5\"") && said.contains(&place), "{form:?}: {said}");
        assert!(said.contains("404: a page of HTML") && !said.contains("nothing here"), "{form:?}: {said}");
    }
}

#[test]
fn a_refusal_without_a_reason_says_what_to_check() {
    let server = Server::start(vec![Deed::Body(400, "text/plain", "")]);
    let said = fails(Form::Chat.home(&server.url, "").command(&["chat", "hello"]));
    assert!(said.contains("400: no reason given; check model = \"claude-sonnet-5\""), "{said}");
}

#[test]
fn an_answer_that_is_no_stream_has_a_wrong_address() {
    for form in Form::ALL {
        for (kind, body) in
            [("text/html", "<html>Welcome</html>"), ("application/json", r#"{"status":"ok"}"#)]
        {
            let server = Server::start(vec![Deed::Body(200, kind, body)]);
            let note = first_note(form.home(&server.url, "").command(&["chat", "--json", "hello"]));
            assert!(note.contains("check base_url") && note.contains(&server.url), "{form:?} {kind}: {note}");
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_asked_for() {
    let note = first_note(Form::Chat.home("http://127.0.0.1:1", "").command(&["chat", "--json", "hello"]));
    assert!(note.contains("is the server running at http://127.0.0.1:1/v1?"), "{note}");
    let home = Home::new();
    home.configure(
        "parlor.toml",
        "[agents.main]\nkind = \"model\"\nmodel = \"mine\"\n[models.mine]\nprovider = \"ollama\"\nmodel = \"m\"\n\
         base_url = \"http://127.0.0.1:1\"\n",
    );
    let note = first_note(home.command(&["chat", "--json", "hello"]));
    assert!(note.contains("ollama serve"), "{note}");
    let said = fails(home.command(&["models", "--refresh"]));
    assert!(said.contains("ollama serve"), "{said}");
}

#[test]
fn a_wait_that_is_too_long_is_told_with_its_end() {
    let line = "date: Sun, 06 Nov 1994 12:00:00 GMT\r\nretry-after: 7200";
    let server = Server::start(vec![Deed::Refuse(429, line.to_owned())]);
    let said = fails(Form::Chat.home(&server.url, "").command(&["chat", "hello"]));
    assert!(said.contains("120 minutes, until Sun, 06 Nov 1994 14:00:00 GMT"), "{said}");
}

#[test]
fn a_variable_that_is_no_address_is_named() {
    let home = Home::new();
    let moved = |args: &[&str]| {
        let mut command = home.command(args);
        // A key by mistake.
        command.env("OPENAI_BASE_URL", "sk-s3cret-key");
        command
    };
    let said = fails(moved(&["chat", "hello"]));
    assert!(said.contains("MODEL_SETTINGS") && said.contains("OPENAI_BASE_URL is no address"), "{said}");
    assert!(said.contains("set it to one such as http://127.0.0.1:8080/v1"), "{said}");
    let doctor = String::from_utf8(moved(&["doctor"]).output().unwrap().stdout).unwrap();
    let told = "OPENAI_BASE_URL is no address";
    assert_eq!(doctor.matches(told).count(), 1, "{doctor}");
    assert!(doctor.contains("fix: export OPENAI_BASE_URL=http://127.0.0.1:8080/v1, or unset it"), "{doctor}");
    // Also if another model answers.
    let doctor = moved(&["doctor"]).env("ANTHROPIC_API_KEY", "s3cret").output().unwrap().stdout;
    let doctor = String::from_utf8(doctor).unwrap();
    assert!(doctor.contains(told) && doctor.contains("ANTHROPIC_API_KEY set"), "{doctor}");
    let listed = String::from_utf8(moved(&["models"]).output().unwrap().stdout).unwrap();
    let env = moved(&["chat", "--agent", "local", "!env; echo end"]).output().unwrap().stdout;
    let env = String::from_utf8(env).unwrap();
    assert!(listed.contains(told) && env.contains("end\n"), "{listed}{env}");
    assert!(![said, doctor, listed, env].concat().contains("sk-s3cret"), "what it is instead is shown");
    for file in ["parlor.db", "parlor.db-wal"] {
        let kept = std::fs::read(home.state().join(file)).unwrap_or_default();
        assert!(!kept.windows(9).any(|window| window == b"sk-s3cret"), "and kept in {file}");
    }
}

#[test]
fn a_model_without_a_key_says_what_is_missing() {
    let home = Home::new();
    for model in ["openai", "openai/some-model"] {
        let said = fails(home.command(&["chat", "--model", model, "hello"]));
        assert!(said.contains("set OPENAI_API_KEY, or run: parlor login openai --key"), "{said}");
    }
    let said = fails(home.command(&["chat", "--model", "other", "hello"]));
    assert!(said.contains("parlor doctor"), "{said}");
}

#[test]
fn a_server_of_ones_own_needs_no_more_than_its_address() {
    let answer = Deed::Answer(Form::Chat.text("Hello.") + &Form::Chat.end());
    let list = Deed::Body(200, "application/json", r#"{"data":[{"id":"qwen3-coder"},{"id":"tiny"}]}"#);
    let (server, home) = (Server::start(vec![answer, list]), Home::new());
    let url = format!("{}/v1", server.url);
    let moved = |args: &[&str]| {
        let output = home.command(args).env("OPENAI_BASE_URL", &url).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(
        moved(&["chat", "--model", "openai/qwen3-coder", "hello"]),
        ("Hello.\n".to_owned(), String::new())
    );
    assert_eq!(server.bodies()[0]["model"], "qwen3-coder");
    let (listed, _) = moved(&["models", "--all"]);
    assert!(listed.contains("qwen3-coder") && listed.contains("tiny"), "{listed}");
    let (doctor, _) = moved(&["doctor"]);
    assert!(doctor.contains(&format!("at {url}), without a key")), "{doctor}");
}
