//! What a hostile model server sends freezes nothing, fills no memory, and ends its run with an error that says why.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use parlor_model::provider::MAX_STREAM_EVENTS;

use crate::attacker::{ATTACK, Attack, Attacker, Served, end_of_run, gzipped, peak_of};
use crate::forms::Form;
use crate::server::{Deed, Server};

/// The most memory that a process may ever take, whatever it is sent. Idle it takes a tenth.
const MOST_BYTES: u64 = 256 << 20;

/// How often a piece of [`MIB`] is sent by whoever does not end: four times what may be kept of it.
const ENDLESS: usize = 1024;
const MIB: usize = 1 << 20;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";

/// A stream that is not packed.
fn stream(first: &str, again: &str, times: usize) -> Attack {
    let (first, again) = (first.as_bytes().to_vec(), again.as_bytes().to_vec());
    Attack { head: format!("{OK}\r\n"), first, again, times, hangs: false }
}

/// Attacks `parlor serve` through one session, while others want something of it. The run fails and says `why`.
async fn attack(form: Form, attack: Attack, why: &str) {
    let attacker = Attacker::start(form, attack);
    let home = form.home(&attacker.url, "");
    let served = Served::start(&home);
    let (mut victim, mut other) = (served.client().await, served.client().await);
    victim.send(ATTACK).await.unwrap();
    tokio::task::block_in_place(|| attacker.wait_until_begun());
    let health = tokio::task::block_in_place(|| served.health());
    assert!(health.starts_with("HTTP/1.1 200"), "{form:?}: {health}");
    other.send("hello").await.unwrap();
    let said = end_of_run(&mut other).await;
    assert!(said.starts_with("run.completed"), "{form:?}: {said}");
    let said = end_of_run(&mut victim).await;
    assert!(said.starts_with("run.failed") && said.contains(why), "{form:?}: {said}");
    let peak = served.peak();
    assert!(peak < MOST_BYTES, "{form:?}: {} MiB", peak >> 20);
    tokio::task::block_in_place(|| served.end());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packed_stream_with_a_line_of_64_mib_is_refused() {
    let line = gzipped("{ printf 'data: '; head -c 67108864 /dev/zero | tr '\\0' a; }");
    let head = format!("{OK}content-encoding: gzip\r\ncontent-length: {}\r\n\r\n", line.len());
    attack(Form::Chat, Attack { head, first: line, ..Attack::default() }, "content-encoding: gzip").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packed_error_of_half_a_gigabyte_is_not_unpacked() {
    let packed = gzipped("head -c 536870912 /dev/zero | tr '\\0' a");
    let head = "HTTP/1.1 400 No\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n".to_owned();
    let attack_of_error = Attack { head, first: packed, ..Attack::default() };
    attack(Form::Chat, attack_of_error, "400: its text is packed (content-encoding: gzip)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_without_an_end_is_left() {
    for form in Form::ALL {
        let endless = stream("data: ", &"a".repeat(MIB), ENDLESS);
        attack(form, endless, "a line of the answer is longer than").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_an_end_is_left() {
    let lines = "data: aaaaaaaaaaaaaaaaaaaaaaaaa\n".repeat(MIB / 32);
    attack(Form::Anthropic, stream("", &lines, ENDLESS), "an event of the answer is longer than").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_says_nothing_without_an_end_is_left() {
    let comment = format!(": {}\n", "a".repeat(MIB - 3));
    attack(Form::Responses, stream("", &comment, ENDLESS), "the answer has more than").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_goes_on_for_ever_is_left() {
    for form in [Form::Chat, Form::Responses] {
        let text = form.text(&"a".repeat(1000)).repeat(1000);
        attack(form, stream("", &text, ENDLESS), "the answer is longer than").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_without_an_end_is_cut() {
    let head = "HTTP/1.1 400 No\r\nconnection: close\r\n\r\n".to_owned();
    let again = "no ".repeat(MIB / 3).into_bytes();
    attack(Form::Chat, Attack { head, again, times: ENDLESS, ..Attack::default() }, "400: no no no").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_and_a_signal_are_heard_in_a_flood_of_events() {
    // As many as are read of one answer, nearly: that limit is not to end the run before the stop does.
    let tiny = "data: {}\n\n".repeat(MAX_STREAM_EVENTS / 10);
    for ends_all in [false, true] {
        let flood = Attack { hangs: true, ..stream("", &tiny, 9) };
        let attacker = Attacker::start(Form::Chat, flood);
        let home = Form::Chat.home(&attacker.url, "");
        let served = Served::start(&home);
        let mut victim = served.client().await;
        victim.send(ATTACK).await.unwrap();
        tokio::task::block_in_place(|| attacker.wait_until_begun());
        if !ends_all {
            victim.stop(None, None).await.unwrap();
            let said = end_of_run(&mut victim).await;
            assert!(said.contains("RUN_CANCELLED"), "{said}");
        }
        tokio::task::block_in_place(|| served.end());
        tokio::task::block_in_place(|| attacker.wait_until_ended());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_ends_while_a_provider_says_nothing() {
    let hanging = Attack { hangs: true, ..stream("data: {}\n", "", 0) };
    let attacker = Attacker::start(Form::Chat, hanging);
    let home = Form::Chat.home(&attacker.url, "");
    let served = Served::start(&home);
    let mut victim = served.client().await;
    victim.send(ATTACK).await.unwrap();
    tokio::task::block_in_place(|| attacker.wait_until_begun());
    tokio::task::block_in_place(|| served.end());
    tokio::task::block_in_place(|| attacker.wait_until_ended());
}

/// What a chat that is attacked says when it is to try again, and its peak of memory by then.
fn first_note(attack: Attack) -> (String, u64) {
    let attacker = Attacker::start(Form::Chat, attack);
    let home = Form::Chat.home(&attacker.url, "");
    let mut chat = home.command(&["chat", "--json", ATTACK]).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(chat.stdout.take().unwrap());
    // The waits grow, so only the first is waited for.
    let note = out.lines().map(Result::unwrap).find(|line| line.contains("step.updated")).unwrap();
    let peak = peak_of(chat.id());
    chat.kill().unwrap();
    chat.wait().unwrap();
    (note, peak)
}

#[test]
fn a_head_and_a_tail_without_an_end_are_left() {
    let line = format!("x: {}\r\n", "a".repeat(MIB));
    let head =
        Attack { head: OK.to_owned(), again: line.clone().into_bytes(), times: ENDLESS, ..Attack::default() };
    let chunked = format!("{OK}transfer-encoding: chunked\r\n\r\n0\r\n");
    let tail = Attack { head: chunked, again: line.into_bytes(), times: ENDLESS, ..Attack::default() };
    for (attack, why) in [(head, "message head is too large"), (tail, "trailer")] {
        let (note, peak) = first_note(attack);
        assert!(note.contains(why), "{note}");
        assert!(peak < MOST_BYTES, "{} MiB", peak >> 20);
    }
}

#[test]
fn a_list_of_models_without_an_end_is_left() {
    for form in Form::ALL {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n".to_owned();
        let (first, again) = (b"{\"data\":[".to_vec(), b"{\"id\":\"a\"},".repeat(MIB / 11));
        let attacker = Attacker::start(form, Attack { head, first, again, times: ENDLESS, hangs: false });
        let home = form.home(&attacker.url, "");
        let said = home.refuses(&["models", "--refresh"]);
        assert!(said.contains("it tells more than can be read"), "{form:?}: {said}");
        let taken = attacker.wait_until_ended();
        assert!(taken < 32 * MIB, "{form:?}: {taken} bytes were taken");
    }
}

#[test]
fn an_error_in_the_place_of_a_stream_is_told() {
    let body = r#"{"error":{"type":"invalid_request_error","message":"this server cannot stream"}}"#;
    for form in Form::ALL {
        let server = Server::start(vec![Deed::Body(200, "application/json", body)]);
        let said = form.home(&server.url, "").refuses(&["chat", "hello"]);
        assert!(
            said.contains("MODEL_REFUSED") && said.contains("this server cannot stream"),
            "{form:?}: {said}"
        );
    }
}
