//! The process is killed in the middle of a stream or of a tool call: the next prompt works, and the provider gets a
//! valid conversation.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::api_format::{ApiFormat, assert_valid};
use crate::home::Home;
use crate::scripted_server::{Reply, ScriptedServer};

/// Starts a chat, and kills it at the first delta of a `message` or of a tool `call`.
fn kill_at_delta(home: &Home, message: &str, kind: &str) {
    let mut chat = home.command(&["chat", "--json", message]).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(chat.stdout.take().unwrap());
    let wanted = |line: &String| line.contains(r#""type":"delta""#) && line.contains(&format!("\"{kind}\":"));
    out.lines().map(Result::unwrap).find(wanted).expect("the delta arrives");
    chat.kill().unwrap();
    chat.wait().unwrap();
}

#[test]
fn a_crash_in_the_middle_of_a_stream() {
    for api in ApiFormat::ALL {
        let server = ScriptedServer::start(vec![
            Reply::HangingStream(api.text("I am about to ")),
            Reply::Stream(api.text("Again.") + &api.end()),
        ]);
        let home = api.home(&server.url, "");
        kill_at_delta(&home, "first", "message");
        let session = home.last_session();
        assert_eq!(home.prints(&["chat", "--session", &session, "second"]), "Again.\n", "{api:?}");
        let sent = &server.bodies()[1];
        assert_valid(sent);
        let sent = sent.to_string();
        assert!(sent.contains("first") && sent.contains("second"), "{api:?}: {sent}");
        assert!(
            sent.contains("broke off"),
            "{api:?}: the model must learn that its answer broke off: {sent}"
        );
    }
}

#[test]
fn a_crash_in_the_middle_of_a_tool_call() {
    // `exec`, so that the program is parlor's own child, which ends with parlor.
    for api in ApiFormat::ALL {
        let server = ScriptedServer::start(vec![
            Reply::Stream(api.call("shell", r#"{"command":"echo started; exec sleep 1000"}"#)),
            Reply::Stream(api.text("Again.") + &api.end()),
        ]);
        let home = api.home(&server.url, "");
        kill_at_delta(&home, "first", "call");
        let session = home.last_session();
        assert_eq!(home.prints(&["chat", "--session", &session, "second"]), "Again.\n", "{api:?}");
        let sent = &server.bodies()[1];
        assert_valid(sent);
        assert!(
            sent.to_string().contains("sleep 1000"),
            "{api:?}: the model must see the interrupted call: {sent}"
        );
    }
}
