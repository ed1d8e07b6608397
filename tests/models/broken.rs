//! Streams that break, hang, or hold what is no JSON, in each form, against a server of ours.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::process::Stdio;

use serde_json::Value;

use crate::forms::{Form, assert_valid};
use crate::server::{Deed, Server};

fn completed(events: &[Value]) -> Vec<&str> {
    let done = events.iter().filter(|event| event["type"] == "message.completed");
    done.map(|event| event["text"].as_str().unwrap()).collect()
}

#[test]
fn a_stream_that_is_cut_in_the_middle_goes_on_in_a_new_message() {
    for form in Form::ALL {
        let rest = form.text(" and goes on.") + &form.end();
        let server = Server::start(vec![Deed::Cut(form.text("It begins")), Deed::Answer(rest)]);
        let home = form.home(&server.url, "");
        let events = home.json(&["chat", "--json", "go"]);
        assert_eq!(completed(&events), ["It begins", " and goes on."], "{form:?}");
        let bodies = server.bodies();
        assert_valid(&bodies[1]);
        let again = bodies[1].to_string();
        assert!(again.contains("It begins") && again.contains("cut off"), "{form:?}: {again}");
    }
}

#[test]
fn a_stream_that_ends_without_an_end_is_no_answer() {
    for form in Form::ALL {
        let whole = form.text("All of it.") + &form.end();
        let server = Server::start(vec![Deed::Answer(String::from(": nothing\n\n")), Deed::Answer(whole)]);
        let home = form.home(&server.url, "");
        assert_eq!(home.prints(&["chat", "go"]), "All of it.\n", "{form:?}");
        assert_eq!(server.bodies().len(), 2, "{form:?}");
    }
}

#[test]
fn an_answer_that_was_cut_at_a_limit_is_told_so_beside_it() {
    for form in Form::ALL {
        let server = Server::start(vec![Deed::Answer(form.text("Half of") + &form.cut())]);
        let home = form.home(&server.url, "max_output = 7\n");
        let output = home.run(&["chat", "go"]);
        let said = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(said(&output.stdout), "Half of\n", "{form:?}");
        let aside = said(&output.stderr);
        assert!(output.status.success() && aside.contains("cut after 7 tokens"), "{form:?}: {aside}");
    }
}

#[test]
fn an_input_that_is_no_json_is_told_to_the_model_and_the_run_goes_on() {
    for form in Form::ALL {
        let end = form.text("I see.") + &form.end();
        let server =
            Server::start(vec![Deed::Answer(form.call("read_file", "{\"path\": \"one")), Deed::Answer(end)]);
        let home = form.home(&server.url, "");
        let events = home.json(&["chat", "--json", "go"]);
        assert_eq!(completed(&events), ["I see."], "{form:?}");
        let bodies = server.bodies();
        assert_valid(&bodies[1]);
        assert!(bodies[1].to_string().contains("read_file takes"), "{form:?}: {}", bodies[1]);
    }
}

#[test]
fn the_time_of_a_run_ends_a_tool_that_is_at_work() {
    let form = Form::Chat;
    let server =
        Server::start(vec![Deed::Answer(form.call("shell", r#"{"command":"echo started; sleep 1000"}"#))]);
    let home = form.home(&server.url, "");
    let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    home.configure("parlor.toml", &settings.replace("kind = \"model\"", "kind = \"model\"\nmax_seconds = 2"));
    let output = home.run(&["chat", "--json", "go"]);
    let events = String::from_utf8(output.stdout).unwrap();
    let of = |name: &str| events.lines().find(|line| line.contains(&format!("\"type\":\"{name}\""))).unwrap();
    assert!(of("tool.failed").contains("CANCELLED") && of("tool.failed").contains("started"), "{events}");
    assert!(of("run.ended").contains("TIME_LIMIT") && of("run.ended").contains("max_seconds"), "{events}");
    assert_eq!(server.bodies().len(), 1, "the model is not asked again");
}

#[test]
fn an_answer_of_a_megabyte_is_more_than_the_two_tokens_that_its_provider_counts() {
    let form = Form::Chat;
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    let call = form.call("shell", r#"{"command":"true"}"#);
    let call = call.replace("data: [DONE]", &format!("{usage}\n\ndata: [DONE]"));
    let megabyte = form.text(&"word ".repeat(200_000)) + &call;
    let server = Server::start(vec![Deed::Answer(megabyte); 20]);
    let home = form.home(&server.url, "context_window = 10000000\n");
    let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    let limited = settings.replace("kind = \"model\"", "kind = \"model\"\nmax_tokens = 40000");
    home.configure("parlor.toml", &limited);
    let output = home.run(&["chat", "--json", "go"]);
    let events = String::from_utf8(output.stdout).unwrap();
    let ended = events.lines().find(|line| line.contains("\"type\":\"run.ended\"")).unwrap();
    assert!(ended.contains("TOKEN_LIMIT") && ended.contains("max_tokens"), "{ended}");
    assert_eq!(server.bodies().len(), 2, "one arrives, and goes back with the next question");
    let used = events.lines().filter(|line| line.contains("\"input_tokens\":1,")).count();
    assert_eq!(used, 2, "what is paid for is what the provider counts: {events:.0}");
}

#[test]
fn a_provider_that_says_until_when_to_wait_is_asked_then() {
    let form = Form::Chat;
    let line = "date: Sun, 06 Nov 1994 12:00:00 GMT\r\nretry-after: Sun, 06 Nov 1994 12:00:02 GMT";
    let answer = Deed::Answer(form.text("Hello.") + &form.end());
    let server = Server::start(vec![Deed::Refuse(503, line.to_owned()), answer]);
    let home = form.home(&server.url, "");
    let events = home.json(&["chat", "--json", "go"]);
    assert_eq!(completed(&events), ["Hello."]);
    let notes: Vec<String> = events
        .iter()
        .filter(|event| event["type"] == "step.updated")
        .map(|event| event["headline"].to_string())
        .collect();
    assert!(notes.len() == 1 && notes[0].contains("trying again in 2.0 s"), "{notes:?}");
}

#[test]
fn a_stop_in_the_middle_of_a_stream_leaves_it_at_once() {
    for form in Form::ALL {
        let server = Server::start(vec![
            Deed::Hang(form.text("One, two, ")),
            Deed::Answer(form.text("Three.") + &form.end()),
        ]);
        let home = form.home(&server.url, "");
        let mut chat = home.start_waiting("count");
        let id = rustix::process::Pid::from_child(&chat);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        server.wait_until_left();
        let status = chat.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{form:?}");
        let session = home.last_session();
        assert_eq!(home.prints(&["chat", "--session", &session, "go on"]), "Three.\n", "{form:?}");
        let again = server.bodies()[1].clone();
        assert_valid(&again);
        let again = again.to_string();
        assert!(again.contains("One, two, ") && again.contains("stopped your work"), "{form:?}: {again}");
    }
}

#[test]
fn a_server_that_is_not_there_is_asked_as_often_as_it_is_said() {
    let home = Form::Chat.home("http://127.0.0.1:1", "");
    let mut chat = home.command(&["chat", "--json", "hello"]).stdout(Stdio::piped()).spawn().unwrap();
    let out = chat.stdout.take().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(out));
    // The waits grow, so only the first is waited for.
    let note = lines.map(Result::unwrap).find(|line| line.contains("step.updated")).unwrap();
    assert!(note.contains("Connection refused") && note.contains("(2 of 5)"), "{note}");
    chat.kill().unwrap();
    chat.wait().unwrap();
}

#[test]
fn calls_of_an_answer_that_the_provider_did_not_let_pass_are_not_made() {
    for (form, ended, filtered) in [
        (Form::Chat, "tool_calls\"", "content_filter\""),
        (Form::Anthropic, "\"stop_reason\":\"tool_use", "\"stop_reason\":\"refusal"),
    ] {
        let call = form.call("shell", "{\"command\":\"echo ran > ran\"}");
        let (begun, end) = call.rsplit_once(ended).unwrap();
        let server = Server::start(vec![Deed::Answer(format!("{begun}{filtered}{end}"))]);
        let home = form.home(&server.url, "");
        let output = home.run(&["chat", "go"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("MODEL_REFUSED") && !home.folder().join("ran").exists(), "{form:?}: {said}");
    }
}

#[test]
fn a_key_that_is_told_as_the_name_of_a_tool_is_written_nowhere() {
    // Longer than a name may be, and with letters that none may have.
    let key = format!("sk-{}+/{}", "s3cret".repeat(8), "LONG".repeat(10));
    for form in Form::ALL {
        let call = form.call(&key, "{}");
        let server = Server::start(vec![Deed::Answer(call), Deed::Answer(form.text("Well.") + &form.end())]);
        let home = form.home(&server.url, "");
        let output = home.command(&["chat", "--json", "go"]).env("SOME_API_KEY", &key).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("UNKNOWN_TOOL") && !said.contains("s3cret"), "{form:?}: {said}");
        for file in ["parlor.db", "parlor.db-wal"] {
            let written = std::fs::read(home.state().join(file)).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&written).contains("s3cret"), "{form:?}: {file}");
        }
    }
}

#[test]
fn calls_of_one_name_are_calls_of_their_own() {
    let form = Form::Chat;
    let call = form.call("list_dir", "{\"path\":\".\"}");
    let (first, rest) = call.split_once("\n\n").unwrap();
    let both = format!("{first}\n\n{}\n\n{rest}", first.replace("\"index\":0,\"id\"", "\"index\":1,\"id\""));
    let end = || Deed::Answer(form.text("Well.") + &form.end());
    let server = Server::start(vec![Deed::Answer(both), end(), end()]);
    let home = form.home(&server.url, "");
    let events = home.json(&["chat", "--json", "go"]);
    let done: Vec<&Value> = events.iter().filter(|event| event["type"] == "tool.completed").collect();
    assert!(done.len() == 2 && done[0]["call"] != done[1]["call"], "{events:?}");
    let session = events[0]["session"].as_str().unwrap();
    home.prints(&["chat", "--session", session, "more"]);
    let bodies = server.bodies();
    assert_valid(&bodies[2]);
    assert!(!bodies[2].to_string().contains("cut off"), "{}", bodies[2]);
}
