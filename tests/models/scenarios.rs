//! The same scenarios in each API format, against aimock, with the real program.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use serde_json::Value;

use crate::aimock::Aimock;
use crate::api_format::{ApiFormat, assert_valid};

/// Sends `message` in each API format; `check` gets the events and the requests to the server.
fn in_each_format(message: &str, extra_settings: &str, check: impl Fn(ApiFormat, &[Value], &[Value])) {
    for api in ApiFormat::ALL {
        let mut mock = Aimock::start();
        let home = api.home(&mock.url, extra_settings);
        let events = home.json(&["chat", "--json", message]);
        let requests: Vec<Value> = mock.requests().iter().map(|entry| entry["body"].clone()).collect();
        // aimock converts requests of the other formats; `broken_streams.rs` checks those.
        requests.iter().filter(|_| api == ApiFormat::Chat).for_each(assert_valid);
        check(api, &events, &requests);
    }
}

fn of_type<'a>(events: &'a [Value], wanted: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == wanted).collect()
}

fn texts(events: &[Value]) -> Vec<&str> {
    of_type(events, "message.completed").iter().map(|event| event["text"].as_str().unwrap()).collect()
}

#[test]
fn plain_text() {
    in_each_format("say hello", "", |api, events, _| {
        assert_eq!(texts(events), ["Hello from the mock, in several pieces."], "{api:?}");
        let deltas: Vec<&str> =
            of_type(events, "delta").iter().map(|event| event["text"].as_str().unwrap()).collect();
        assert_eq!(deltas.concat(), texts(events)[0], "{api:?}");
        assert_eq!(events.last().unwrap()["ending"], "completed", "{api:?}");
    });
}

#[test]
fn reasoning() {
    in_each_format("think first", "", |api, events, requests| {
        assert_eq!(of_type(events, "step.reasoned")[0]["text"], "Two and two make four.", "{api:?}");
        assert_eq!(texts(events), ["Four."], "{api:?}");
        let request = requests[0].to_string();
        let level = match api {
            ApiFormat::Chat => r#""reasoning_effort":"low""#,
            ApiFormat::Responses | ApiFormat::Anthropic => r#""effort":"low""#,
        };
        // aimock converts requests of the other formats to chat, and drops the level.
        assert!(request.contains(level) || api != ApiFormat::Chat, "{api:?}: {request}");
    });
}

#[test]
fn one_tool() {
    in_each_format("read one", "", |api, events, requests| {
        let output = of_type(events, "tool.completed")[0]["output"].as_str().unwrap().to_owned();
        assert!(output.contains("content 0"), "{api:?}: {output}");
        assert_eq!(texts(events), ["I have read it."], "{api:?}");
        assert!(requests[1].to_string().contains("content 0"), "{api:?}: the model must get the content too");
    });
}

#[test]
fn three_tools_at_once() {
    in_each_format("read three", "", |api, events, requests| {
        let tool_events: Vec<&str> = events
            .iter()
            .filter_map(|event| event["type"].as_str())
            .filter(|kind| ["tool.called", "tool.completed"].contains(kind))
            .collect();
        assert_eq!(
            tool_events[..3],
            ["tool.called"; 3],
            "{api:?}: all calls must start before one completes"
        );
        let sent = requests[1].to_string();
        let order: Vec<usize> =
            (0..3).map(|number| sent.find(&format!("content {number}")).unwrap()).collect();
        assert!(order.is_sorted(), "{api:?}: results are in the order of the calls");
        assert_eq!(texts(events), ["All three at once.", "I have read all three."], "{api:?}");
    });
}

#[test]
fn bad_arguments_and_an_unknown_tool() {
    in_each_format("bad arguments", "", |api, events, _| {
        assert_eq!(of_type(events, "tool.failed")[0]["failure"]["code"], "INVALID_INPUT", "{api:?}");
        assert_eq!(texts(events), ["I see what is wrong."], "{api:?}");
    });
    in_each_format("unknown tool", "", |api, events, _| {
        assert_eq!(of_type(events, "tool.failed")[0]["failure"]["code"], "UNKNOWN_TOOL", "{api:?}");
        assert_eq!(texts(events), ["Then without it."], "{api:?}");
    });
}

#[test]
fn a_rate_limited_request_is_retried() {
    in_each_format("too often", "", |api, events, requests| {
        let note = of_type(events, "step.updated")[0]["headline"].as_str().unwrap().to_owned();
        assert!(note.contains("trying again in 1.0 s"), "{api:?}: Retry-After must be respected: {note}");
        assert_eq!(texts(events), ["Now it works."], "{api:?}");
        assert_eq!(requests.len(), 2, "{api:?}");
    });
}

#[test]
fn a_context_overflow_is_compacted_and_the_next_turn_uses_the_summary() {
    for api in ApiFormat::ALL {
        let mut mock = Aimock::start();
        let home = api.home(&mock.url, "");
        home.prints(&["chat", "say hello to the first"]);
        let session = home.last_session();
        home.prints(&["chat", "--session", &session, "say hello to the second"]);
        let events = home.json(&["chat", "--json", "--session", &session, "this is too long"]);
        assert_eq!(texts(&events), ["Now it fits."], "{api:?}");
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert!(kinds.contains(&"session.compacted"), "{api:?}: {kinds:?}");
        home.prints(&["chat", "--session", &session, "say hello once more"]);
        let requests = mock.requests();
        let last = requests.last().unwrap()["body"].to_string();
        assert!(
            last.contains("They spoke of many things."),
            "{api:?}: the next request must have the summary"
        );
        assert!(!last.contains("to the first"), "{api:?}: and not the summarized messages");
    }
}

#[test]
fn a_rejected_key_fails_the_run() {
    for api in ApiFormat::ALL {
        let mock = Aimock::start();
        let home = api.home(&mock.url, "");
        let output = home.run(&["chat", "wrong key"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("is not accepted") && said.contains("MODEL_AUTH"), "{api:?}: {said}");
        assert!(!said.contains("s3cret"), "{api:?}: {said}");
    }
}

#[test]
fn the_key_is_sent_to_the_provider_and_not_logged() {
    for api in ApiFormat::ALL {
        let mut mock = Aimock::start();
        let home = api.home(&mock.url, "");
        home.prints(&["chat", "say hello"]);
        let headers = mock.requests()[0]["headers"].to_string();
        // aimock redacts secrets, but keeps the header name.
        let name = if api == ApiFormat::Anthropic { "x-api-key" } else { "authorization" };
        assert!(headers.contains(name), "{api:?}: {headers}");
        let log = home.prints(&["replay", &home.last_session(), "--json"]);
        assert!(!log.contains("s3cret"), "{api:?}");
    }
}
