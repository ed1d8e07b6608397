//! The process dies in the middle of a stream or of a tool call: the next prompt works, and what the provider is
//! sent then is a conversation that it takes.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::forms::{Form, assert_valid};
use crate::home::Home;
use crate::server::{Deed, Server};

/// Starts `message`, waits for text of a message or a tool, and kills the process.
fn die_at(home: &Home, message: &str, of: &str) {
    let mut chat = home.command(&["chat", "--json", message]).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(chat.stdout.take().unwrap());
    let wanted = |line: &String| line.contains(r#""type":"delta""#) && line.contains(&format!("\"{of}\":"));
    out.lines().map(Result::unwrap).find(wanted).expect("it happens");
    chat.kill().unwrap();
    chat.wait().unwrap();
}

#[test]
fn a_crash_in_the_middle_of_a_stream() {
    for form in Form::ALL {
        let server = Server::start(vec![
            Deed::Hang(form.text("I am about to ")),
            Deed::Answer(form.text("Again.") + &form.end()),
        ]);
        let home = form.home(&server.url, "");
        die_at(&home, "first", "message");
        let session = home.last_session();
        assert_eq!(home.prints(&["chat", "--session", &session, "second"]), "Again.\n", "{form:?}");
        let sent = &server.bodies()[1];
        assert_valid(sent);
        let sent = sent.to_string();
        assert!(sent.contains("first") && sent.contains("second"), "{form:?}: {sent}");
        assert!(sent.contains("broke off"), "{form:?}: the model is told of the end: {sent}");
    }
}

#[test]
fn a_crash_in_the_middle_of_a_tool_call() {
    for form in Form::ALL {
        let server = Server::start(vec![
            Deed::Answer(form.call("shell", r#"{"command":"echo started; sleep 1000"}"#)),
            Deed::Answer(form.text("Again.") + &form.end()),
        ]);
        let home = form.home(&server.url, "");
        die_at(&home, "first", "call");
        let session = home.last_session();
        assert_eq!(home.prints(&["chat", "--session", &session, "second"]), "Again.\n", "{form:?}");
        let sent = &server.bodies()[1];
        assert_valid(sent);
        assert!(sent.to_string().contains("sleep 1000"), "{form:?}: the model knows what it tried: {sent}");
    }
}
