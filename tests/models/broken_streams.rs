//! Streams that break off, hang or contain invalid JSON, in each API format.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use serde_json::Value;

use crate::api_format::{ApiFormat, assert_valid};
use crate::error_advice::first_retry_note;
use crate::scripted_server::{Reply, ScriptedServer};

fn completed_texts(events: &[Value]) -> Vec<&str> {
    let done = events.iter().filter(|event| event["type"] == "message.completed");
    done.map(|event| event["text"].as_str().unwrap()).collect()
}

#[test]
fn a_cut_stream_continues_in_a_new_message() {
    for api in ApiFormat::ALL {
        let rest = api.text(" and goes on.") + &api.end();
        let server =
            ScriptedServer::start(vec![Reply::CutStream(api.text("It begins")), Reply::Stream(rest)]);
        let home = api.home(&server.url, "");
        let events = home.json(&["chat", "--json", "go"]);
        assert_eq!(completed_texts(&events), ["It begins", " and goes on."], "{api:?}");
        let bodies = server.bodies();
        assert_valid(&bodies[1]);
        let again = bodies[1].to_string();
        assert!(again.contains("It begins") && again.contains("cut off"), "{api:?}: {again}");
    }
}

#[test]
fn a_stream_without_an_end_event_is_retried() {
    for api in ApiFormat::ALL {
        let whole = api.text("All of it.") + &api.end();
        let server =
            ScriptedServer::start(vec![Reply::Stream(String::from(": nothing\n\n")), Reply::Stream(whole)]);
        let home = api.home(&server.url, "");
        assert_eq!(home.prints(&["chat", "go"]), "All of it.\n", "{api:?}");
        assert_eq!(server.bodies().len(), 2, "{api:?}");
    }
}

#[test]
fn an_answer_cut_at_the_token_limit_is_reported_on_stderr() {
    for api in ApiFormat::ALL {
        let server = ScriptedServer::start(vec![Reply::Stream(api.text("Half of") + &api.end_at_limit())]);
        let home = api.home(&server.url, "max_output = 7\n");
        let output = home.run(&["chat", "go"]);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(text(&output.stdout), "Half of\n", "{api:?}");
        let stderr = text(&output.stderr);
        assert!(output.status.success() && stderr.contains("cut after 7 tokens"), "{api:?}: {stderr}");
    }
}

#[test]
fn an_invalid_tool_input_is_reported_to_the_model_and_the_run_continues() {
    for api in ApiFormat::ALL {
        let end = api.text("I see.") + &api.end();
        let server = ScriptedServer::start(vec![
            Reply::Stream(api.call("read_file", "{\"path\": \"one")),
            Reply::Stream(end),
        ]);
        let home = api.home(&server.url, "");
        let events = home.json(&["chat", "--json", "go"]);
        assert_eq!(completed_texts(&events), ["I see."], "{api:?}");
        let bodies = server.bodies();
        assert_valid(&bodies[1]);
        assert!(bodies[1].to_string().contains("read_file takes"), "{api:?}: {}", bodies[1]);
    }
}

#[test]
fn the_time_limit_of_a_run_stops_a_running_tool() {
    let api = ApiFormat::Chat;
    let server = ScriptedServer::start(vec![Reply::Stream(
        api.call("shell", r#"{"command":"echo started; sleep 1000"}"#),
    )]);
    let home = api.home(&server.url, "");
    let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    home.configure("parlor.toml", &settings.replace("kind = \"model\"", "kind = \"model\"\nmax_seconds = 2"));
    let output = home.run(&["chat", "--json", "go"]);
    let events = String::from_utf8(output.stdout).unwrap();
    let event =
        |name: &str| events.lines().find(|line| line.contains(&format!("\"type\":\"{name}\""))).unwrap();
    assert!(
        event("tool.failed").contains("CANCELLED") && event("tool.failed").contains("started"),
        "{events}"
    );
    assert!(
        event("run.ended").contains("TIME_LIMIT") && event("run.ended").contains("max_seconds"),
        "{events}"
    );
    assert_eq!(server.bodies().len(), 1, "the model must not be asked again");
}

#[test]
fn a_large_answer_reaches_the_token_limit_even_if_the_provider_reports_few_tokens() {
    let api = ApiFormat::Chat;
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    let call = api.call("shell", r#"{"command":"true"}"#);
    let call = call.replace("data: [DONE]", &format!("{usage}\n\ndata: [DONE]"));
    let megabyte = api.text(&"word ".repeat(200_000)) + &call;
    let server = ScriptedServer::start(vec![Reply::Stream(megabyte); 20]);
    let home = api.home(&server.url, "context_window = 10000000\n");
    let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    let limited = settings.replace("kind = \"model\"", "kind = \"model\"\nmax_tokens = 40000");
    home.configure("parlor.toml", &limited);
    let output = home.run(&["chat", "--json", "go"]);
    let events = String::from_utf8(output.stdout).unwrap();
    let ended = events.lines().find(|line| line.contains("\"type\":\"run.ended\"")).unwrap();
    assert!(ended.contains("TOKEN_LIMIT") && ended.contains("max_tokens"), "{ended}");
    assert_eq!(
        server.bodies().len(),
        2,
        "the first answer is sent back with the second request, which reaches the limit"
    );
    let used = events.lines().filter(|line| line.contains("\"input_tokens\":1,")).count();
    assert_eq!(used, 2, "usage must have the numbers of the provider: {events:.0}");
}

#[test]
fn a_retry_after_date_is_respected() {
    let api = ApiFormat::Chat;
    let headers = "date: Sun, 06 Nov 1994 12:00:00 GMT\r\nretry-after: Sun, 06 Nov 1994 12:00:02 GMT";
    let answer = Reply::Stream(api.text("Hello.") + &api.end());
    let server = ScriptedServer::start(vec![Reply::Status(503, headers.to_owned()), answer]);
    let home = api.home(&server.url, "");
    let events = home.json(&["chat", "--json", "go"]);
    assert_eq!(completed_texts(&events), ["Hello."]);
    let notes: Vec<String> = events
        .iter()
        .filter(|event| event["type"] == "step.updated")
        .map(|event| event["headline"].to_string())
        .collect();
    assert!(notes.len() == 1 && notes[0].contains("trying again in 2.0 s"), "{notes:?}");
}

#[test]
fn a_stop_disconnects_from_the_stream_at_once() {
    for api in ApiFormat::ALL {
        let server = ScriptedServer::start(vec![
            Reply::HangingStream(api.text("One, two, ")),
            Reply::Stream(api.text("Three.") + &api.end()),
        ]);
        let home = api.home(&server.url, "");
        let mut chat = home.start_waiting("count");
        let id = rustix::process::Pid::from_child(&chat);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        server.wait_until_disconnected();
        let status = chat.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{api:?}");
        let session = home.last_session();
        assert_eq!(home.prints(&["chat", "--session", &session, "go on"]), "Three.\n", "{api:?}");
        let again = server.bodies()[1].clone();
        assert_valid(&again);
        let again = again.to_string();
        assert!(again.contains("One, two, ") && again.contains("stopped your work"), "{api:?}: {again}");
    }
}

#[test]
fn an_unreachable_server_is_retried_and_the_attempts_are_counted() {
    let home = ApiFormat::Chat.home("http://127.0.0.1:1", "");
    let note = first_retry_note(home.command(&["chat", "--json", "hello"]));
    assert!(note.contains("Connection refused") && note.contains("(2 of 5)"), "{note}");
}

#[test]
fn tool_calls_of_a_filtered_answer_are_not_executed() {
    for (api, finish_reason, filtered) in [
        (ApiFormat::Chat, "tool_calls\"", "content_filter\""),
        (ApiFormat::Anthropic, "\"stop_reason\":\"tool_use", "\"stop_reason\":\"refusal"),
    ] {
        let call = api.call("shell", "{\"command\":\"echo ran > ran\"}");
        let (begun, end) = call.rsplit_once(finish_reason).unwrap();
        let server = ScriptedServer::start(vec![Reply::Stream(format!("{begun}{filtered}{end}"))]);
        let home = api.home(&server.url, "");
        let output = home.run(&["chat", "go"]);
        let output_text = String::from_utf8(output.stderr).unwrap();
        assert!(
            output_text.contains("MODEL_REFUSED") && !home.folder().join("ran").exists(),
            "{api:?}: {output_text}"
        );
    }
}

#[test]
fn a_key_used_as_a_tool_name_is_written_nowhere() {
    // Longer than a tool name may be, and with characters that are not allowed in one.
    let key = format!("sk-{}+/{}", "s3cret".repeat(8), "LONG".repeat(10));
    for api in ApiFormat::ALL {
        let call = api.call(&key, "{}");
        let server =
            ScriptedServer::start(vec![Reply::Stream(call), Reply::Stream(api.text("Well.") + &api.end())]);
        let home = api.home(&server.url, "");
        let output = home.command(&["chat", "--json", "go"]).env("SOME_API_KEY", &key).output().unwrap();
        let output_text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output_text.contains("UNKNOWN_TOOL") && !output_text.contains("s3cret"),
            "{api:?}: {output_text}"
        );
        for file in ["parlor.db", "parlor.db-wal"] {
            let written = std::fs::read(home.state().join(file)).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&written).contains("s3cret"), "{api:?}: {file}");
        }
    }
}

#[test]
fn two_calls_with_the_same_id_are_kept_apart() {
    let api = ApiFormat::Chat;
    let call = api.call("list_dir", "{\"path\":\".\"}");
    let (first, rest) = call.split_once("\n\n").unwrap();
    let both = format!("{first}\n\n{}\n\n{rest}", first.replace("\"index\":0,\"id\"", "\"index\":1,\"id\""));
    let end = || Reply::Stream(api.text("Well.") + &api.end());
    let server = ScriptedServer::start(vec![Reply::Stream(both), end(), end()]);
    let home = api.home(&server.url, "");
    let events = home.json(&["chat", "--json", "go"]);
    let completed: Vec<&Value> = events.iter().filter(|event| event["type"] == "tool.completed").collect();
    assert!(completed.len() == 2 && completed[0]["call"] != completed[1]["call"], "{events:?}");
    let session = events[0]["session"].as_str().unwrap();
    home.prints(&["chat", "--session", session, "more"]);
    let bodies = server.bodies();
    assert_valid(&bodies[2]);
    assert!(!bodies[2].to_string().contains("cut off"), "{}", bodies[2]);
}
