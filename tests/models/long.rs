//! A run of two hundred calls with five megabytes of output stays within the window of the model, and within bounded
//! memory.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use crate::door::Door;
use crate::forms::{Form, assert_valid};
use crate::home::Home;
use crate::server::{Deed, Server};

/// How many tokens the model can read, at about four bytes each.
const WINDOW: usize = 30_000;

const CALLS: usize = 200;

/// How much more memory such a run may take than one with a single call. What the session remembers of it is five
/// megabytes, which are copied once for the log and once for the agent.
const MOST_MORE_BYTES: u64 = 48 << 20;

/// A model that makes calls without end, and a home where it may make so many.
fn tireless(calls: usize) -> (Server, Home) {
    let form = Form::Chat;
    // Whether a question is for a summary is up to the agent, so every answer serves for both: a text, and a call.
    let both = |number: usize| {
        let call = form.call("read_file", r#"{"path":"large.txt"}"#);
        Deed::Answer(form.text(&format!("Step {number}. ")) + &call)
    };
    let mut deeds: Vec<Deed> = (0..2 * calls).map(both).collect();
    deeds.push(Deed::Answer(form.text("Done.") + &form.end()));
    let server = Server::start(deeds);
    let home = form.home(&server.url, &format!("context_window = {WINDOW}\n"));
    let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    home.configure(
        "parlor.toml",
        &settings.replace("kind = \"model\"", &format!("kind = \"model\"\nmax_steps = {calls}")),
    );
    std::fs::write(home.folder().join("large.txt"), "0123456789abcde\n".repeat(1600)).unwrap();
    (server, home)
}

#[test]
fn two_hundred_calls_with_five_megabytes_of_output_stay_within_the_window() {
    let (server, home) = tireless(CALLS);
    let output = home.run(&["chat", "--json", "read it again and again"]);
    let events = String::from_utf8(output.stdout).unwrap();
    assert!(events.contains("STEP_LIMIT"), "{}", String::from_utf8_lossy(&output.stderr));
    let read: usize =
        events.lines().filter(|line| line.contains("\"type\":\"tool.completed\"")).map(str::len).sum();
    assert!(read > 5_000_000, "{read} bytes of output");
    let bodies = server.bodies();
    assert!(bodies.len() > CALLS, "{} questions, some of them for summaries", bodies.len());
    for body in &bodies {
        assert_valid(body);
        assert!(body.to_string().len() < 5 * WINDOW, "{} bytes", body.to_string().len());
    }
}

#[test]
fn and_within_bounded_memory() {
    let peak = |calls: usize| {
        let (server, home) = tireless(calls);
        let mut door = Door::open(&home);
        door.turn("read it again and again");
        assert!(server.bodies().len() >= calls, "all calls were made");
        door.peak()
    };
    let (one, many) = (peak(1), peak(CALLS));
    assert!(
        many < one + MOST_MORE_BYTES,
        "{} MiB more than {} MiB",
        many.saturating_sub(one) >> 20,
        one >> 20
    );
}
