//! The same scenarios in each form, against aimock, through the real program.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use serde_json::Value;

use crate::forms::{Form, assert_valid};
use crate::mock::Mock;

/// Plays `message` in each form and gives the events, and what the server was asked, to `check`.
fn in_each_form(message: &str, more: &str, check: impl Fn(Form, &[Value], &[Value])) {
    for form in Form::ALL {
        let mut mock = Mock::start();
        let home = form.home(&mock.url, more);
        let events = home.json(&["chat", "--json", message]);
        let requests: Vec<Value> = mock.requests().iter().map(|entry| entry["body"].clone()).collect();
        // Those of other forms aimock keeps in words of its own; `broken.rs` looks at theirs.
        requests.iter().filter(|_| form == Form::Chat).for_each(assert_valid);
        check(form, &events, &requests);
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
    in_each_form("say hello", "", |form, events, _| {
        assert_eq!(texts(events), ["Hello from the mock, in several pieces."], "{form:?}");
        let deltas: Vec<&str> =
            of_type(events, "delta").iter().map(|event| event["text"].as_str().unwrap()).collect();
        assert_eq!(deltas.concat(), texts(events)[0], "{form:?}");
        assert_eq!(events.last().unwrap()["ending"], "completed", "{form:?}");
    });
}

#[test]
fn reasoning() {
    in_each_form("think first", "", |form, events, requests| {
        assert_eq!(of_type(events, "step.reasoned")[0]["text"], "Two and two make four.", "{form:?}");
        assert_eq!(texts(events), ["Four."], "{form:?}");
        let asked = requests[0].to_string();
        let level = match form {
            Form::Chat => r#""reasoning_effort":"low""#,
            Form::Responses | Form::Anthropic => r#""effort":"low""#,
        };
        // aimock keeps the requests of other forms in the words of chat, which has no place for it.
        assert!(asked.contains(level) || form != Form::Chat, "{form:?}: {asked}");
    });
}

#[test]
fn one_tool() {
    in_each_form("read one", "", |form, events, requests| {
        let output = of_type(events, "tool.completed")[0]["output"].as_str().unwrap().to_owned();
        assert!(output.contains("content 0"), "{form:?}: {output}");
        assert_eq!(texts(events), ["I have read it."], "{form:?}");
        assert!(requests[1].to_string().contains("content 0"), "{form:?}: the model reads it too");
    });
}

#[test]
fn three_tools_at_once() {
    in_each_form("read three", "", |form, events, requests| {
        let places: Vec<&str> = events
            .iter()
            .filter_map(|event| event["type"].as_str())
            .filter(|kind| ["tool.called", "tool.completed"].contains(kind))
            .collect();
        assert_eq!(places[..3], ["tool.called"; 3], "{form:?}: all are at work before one is done");
        let sent = requests[1].to_string();
        let order: Vec<usize> =
            (0..3).map(|number| sent.find(&format!("content {number}")).unwrap()).collect();
        assert!(order.is_sorted(), "{form:?}: results are in the order of the calls");
        assert_eq!(texts(events), ["All three at once.", "I have read all three."], "{form:?}");
    });
}

#[test]
fn bad_arguments_and_an_unknown_tool() {
    in_each_form("bad arguments", "", |form, events, _| {
        assert_eq!(of_type(events, "tool.failed")[0]["failure"]["code"], "INVALID_INPUT", "{form:?}");
        assert_eq!(texts(events), ["I see what is wrong."], "{form:?}");
    });
    in_each_form("unknown tool", "", |form, events, _| {
        assert_eq!(of_type(events, "tool.failed")[0]["failure"]["code"], "UNKNOWN_TOOL", "{form:?}");
        assert_eq!(texts(events), ["Then without it."], "{form:?}");
    });
}

#[test]
fn too_many_requests_and_then_success() {
    in_each_form("too often", "", |form, events, requests| {
        let note = of_type(events, "step.updated")[0]["headline"].as_str().unwrap().to_owned();
        assert!(note.contains("trying again in 1.0 s"), "{form:?}: Retry-After holds: {note}");
        assert_eq!(texts(events), ["Now it works."], "{form:?}");
        assert_eq!(requests.len(), 2, "{form:?}");
    });
}

#[test]
fn an_overflow_is_compacted_and_the_next_turn_knows_of_it() {
    for form in Form::ALL {
        let mut mock = Mock::start();
        let home = form.home(&mock.url, "");
        home.prints(&["chat", "say hello to the first"]);
        let session = home.last_session();
        home.prints(&["chat", "--session", &session, "say hello to the second"]);
        let events = home.json(&["chat", "--json", "--session", &session, "this is too long"]);
        assert_eq!(texts(&events), ["Now it fits."], "{form:?}");
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert!(kinds.contains(&"session.compacted"), "{form:?}: {kinds:?}");
        home.prints(&["chat", "--session", &session, "say hello once more"]);
        let requests = mock.requests();
        let last = requests.last().unwrap()["body"].to_string();
        assert!(last.contains("They spoke of many things."), "{form:?}: the session keeps the summary");
        assert!(!last.contains("to the first"), "{form:?}: and not what it stands for");
    }
}

#[test]
fn a_key_that_is_not_accepted_is_the_users_to_mend() {
    for form in Form::ALL {
        let mock = Mock::start();
        let home = form.home(&mock.url, "");
        let output = home.run(&["chat", "wrong key"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("is not accepted") && said.contains("MODEL_AUTH"), "{form:?}: {said}");
        assert!(!said.contains("s3cret"), "{form:?}: {said}");
    }
}

#[test]
fn the_key_reaches_the_provider_and_nobody_else() {
    for form in Form::ALL {
        let mut mock = Mock::start();
        let home = form.home(&mock.url, "");
        home.prints(&["chat", "say hello"]);
        let headers = mock.requests()[0]["headers"].to_string();
        // aimock blots out what looks like a secret; that there was one is seen all the same.
        let name = if form == Form::Anthropic { "x-api-key" } else { "authorization" };
        assert!(headers.contains(name), "{form:?}: {headers}");
        let log = home.prints(&["replay", &home.last_session(), "--json"]);
        assert!(!log.contains("s3cret"), "{form:?}");
    }
}
