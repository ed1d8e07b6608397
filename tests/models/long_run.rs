//! A run of two hundred tool calls with five megabytes of output stays within the context window of the model, and
//! within bounded memory.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use crate::api_format::{ApiFormat, assert_valid};
use crate::home::Home;
use crate::loaf_child::LoafChild;
use crate::scripted_server::{Reply, ScriptedServer};

/// The context window of the model in tokens of about four bytes.
const CONTEXT_WINDOW: usize = 30_000;

const CALLS: usize = 200;

/// How much more memory such a run may take than a run with a single call. The session keeps five megabytes of
/// output, and copies them once for the log and once for the agent.
const MAX_EXTRA_BYTES: u64 = 48 << 20;

/// A model that always makes another tool call, and a home that allows `calls` of them.
fn endless_caller(calls: usize) -> (ScriptedServer, Home) {
    let api = ApiFormat::Chat;
    // The agent decides when it asks for a summary, so every answer has both a text and a call.
    let text_and_call = |number: usize| {
        let call = api.call("read_file", r#"{"path":"large.txt"}"#);
        Reply::Stream(api.text(&format!("Step {number}. ")) + &call)
    };
    let mut replies: Vec<Reply> = (0..2 * calls).map(text_and_call).collect();
    replies.push(Reply::Stream(api.text("Done.") + &api.end()));
    let server = ScriptedServer::start(replies);
    let home = api.home(&server.url, &format!("context_window = {CONTEXT_WINDOW}\n"));
    let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    home.configure(
        "parlor.toml",
        &settings.replace("kind = \"model\"", &format!("kind = \"model\"\nmax_steps = {calls}")),
    );
    std::fs::write(home.folder().join("large.txt"), "0123456789abcde\n".repeat(1600)).unwrap();
    (server, home)
}

#[test]
fn two_hundred_calls_with_five_megabytes_of_output_stay_within_the_context_window() {
    let (server, home) = endless_caller(CALLS);
    let output = home.run(&["chat", "--json", "read it again and again"]);
    let events = String::from_utf8(output.stdout).unwrap();
    assert!(events.contains("STEP_LIMIT"), "{}", String::from_utf8_lossy(&output.stderr));
    let read: usize =
        events.lines().filter(|line| line.contains("\"type\":\"tool.completed\"")).map(str::len).sum();
    assert!(read > 5_000_000, "{read} bytes of output");
    let bodies = server.bodies();
    assert!(bodies.len() > CALLS, "{} requests, some of them for summaries", bodies.len());
    for body in &bodies {
        assert_valid(body);
        assert!(body.to_string().len() < 5 * CONTEXT_WINDOW, "{} bytes", body.to_string().len());
    }
}

#[test]
fn two_hundred_calls_with_five_megabytes_of_output_take_bounded_memory() {
    let peak = |calls: usize| {
        let (server, home) = endless_caller(calls);
        let mut loaf = LoafChild::start(&home);
        loaf.run_turn("read it again and again");
        assert!(server.bodies().len() >= calls, "all calls were made");
        loaf.peak_memory()
    };
    let (one, many) = (peak(1), peak(CALLS));
    assert!(
        many < one + MAX_EXTRA_BYTES,
        "{} MiB more than {} MiB",
        many.saturating_sub(one) >> 20,
        one >> 20
    );
}
