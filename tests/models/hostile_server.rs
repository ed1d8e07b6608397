//! A hostile model server cannot freeze parlor or fill its memory; the run fails with the reason.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use parlor_model::provider::MAX_STREAM_EVENTS;

use crate::api_format::ApiFormat;
use crate::attacking_server::{
    ATTACK, Attack, AttackingServer, ServeProcess, gzipped, peak_memory_of, wait_for_run_end,
};
use crate::scripted_server::{Reply, ScriptedServer};

/// The limit of peak memory under attack. An idle process takes a tenth of it.
const MAX_MEMORY_BYTES: u64 = 256 << 20;

/// How often an endless attack repeats its piece of [`MIB`]: 1 GiB, four times the memory limit.
const ENDLESS: usize = 1024;
const MIB: usize = 1 << 20;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";

/// An uncompressed stream.
fn stream(first: &str, repeated: &str, times: usize) -> Attack {
    let (first, repeated) = (first.as_bytes().to_vec(), repeated.as_bytes().to_vec());
    Attack { head: format!("{OK}\r\n"), first, repeated, times, hangs: false }
}

/// Attacks `parlor serve` through one session while another client uses it. The attacked run must fail with `reason`.
async fn attack(api: ApiFormat, attack: Attack, reason: &str) {
    let attacker = AttackingServer::start(api, attack);
    let home = api.home(&attacker.url, "");
    let served = ServeProcess::start(&home);
    let (mut victim, mut other) = (served.client().await, served.client().await);
    victim.send(ATTACK).await.unwrap();
    tokio::task::block_in_place(|| attacker.wait_until_started());
    let health = tokio::task::block_in_place(|| served.health());
    assert!(health.starts_with("HTTP/1.1 200"), "{api:?}: {health}");
    other.send("hello").await.unwrap();
    let end = wait_for_run_end(&mut other).await;
    assert!(end.starts_with("run.completed"), "{api:?}: {end}");
    let end = wait_for_run_end(&mut victim).await;
    assert!(end.starts_with("run.failed") && end.contains(reason), "{api:?}: {end}");
    let peak = served.peak_memory();
    assert!(peak < MAX_MEMORY_BYTES, "{api:?}: {} MiB", peak >> 20);
    tokio::task::block_in_place(|| served.stop());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_stream_with_a_line_of_64_mib_is_refused() {
    let line = gzipped("{ printf 'data: '; head -c 67108864 /dev/zero | tr '\\0' a; }");
    let head = format!("{OK}content-encoding: gzip\r\ncontent-length: {}\r\n\r\n", line.len());
    attack(ApiFormat::Chat, Attack { head, first: line, ..Attack::default() }, "content-encoding: gzip")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_error_of_half_a_gigabyte_is_not_decompressed() {
    let compressed = gzipped("head -c 536870912 /dev/zero | tr '\\0' a");
    let head = "HTTP/1.1 400 No\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n".to_owned();
    let attack_of_error = Attack { head, first: compressed, ..Attack::default() };
    attack(ApiFormat::Chat, attack_of_error, "400: its text is packed (content-encoding: gzip)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_line_is_aborted() {
    for api in ApiFormat::ALL {
        let endless = stream("data: ", &"a".repeat(MIB), ENDLESS);
        attack(api, endless, "a line of the answer is longer than").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_event_is_aborted() {
    let lines = "data: aaaaaaaaaaaaaaaaaaaaaaaaa\n".repeat(MIB / 32);
    attack(ApiFormat::Anthropic, stream("", &lines, ENDLESS), "an event of the answer is longer than").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_stream_of_comments_is_aborted() {
    let comment = format!(": {}\n", "a".repeat(MIB - 3));
    attack(ApiFormat::Responses, stream("", &comment, ENDLESS), "the answer has more than").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_is_aborted() {
    for api in [ApiFormat::Chat, ApiFormat::Responses] {
        let text = api.text(&"a".repeat(1000)).repeat(1000);
        attack(api, stream("", &text, ENDLESS), "the answer is longer than").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_error_text_is_cut() {
    let head = "HTTP/1.1 400 No\r\nconnection: close\r\n\r\n".to_owned();
    let repeated = "no ".repeat(MIB / 3).into_bytes();
    attack(ApiFormat::Chat, Attack { head, repeated, times: ENDLESS, ..Attack::default() }, "400: no no no")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_and_a_signal_work_during_a_flood_of_events() {
    // Just below the limit of events per answer, so that the limit does not end the run before the stop does.
    let tiny = "data: {}\n\n".repeat(MAX_STREAM_EVENTS / 10);
    for only_signal in [false, true] {
        let flood = Attack { hangs: true, ..stream("", &tiny, 9) };
        let attacker = AttackingServer::start(ApiFormat::Chat, flood);
        let home = ApiFormat::Chat.home(&attacker.url, "");
        let served = ServeProcess::start(&home);
        let mut victim = served.client().await;
        victim.send(ATTACK).await.unwrap();
        tokio::task::block_in_place(|| attacker.wait_until_started());
        if !only_signal {
            victim.stop(None, None).await.unwrap();
            let end = wait_for_run_end(&mut victim).await;
            assert!(end.contains("RUN_CANCELLED"), "{end}");
        }
        tokio::task::block_in_place(|| served.stop());
        tokio::task::block_in_place(|| attacker.wait_until_ended());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_exits_while_a_provider_sends_nothing() {
    let hanging = Attack { hangs: true, ..stream("data: {}\n", "", 0) };
    let attacker = AttackingServer::start(ApiFormat::Chat, hanging);
    let home = ApiFormat::Chat.home(&attacker.url, "");
    let served = ServeProcess::start(&home);
    let mut victim = served.client().await;
    victim.send(ATTACK).await.unwrap();
    tokio::task::block_in_place(|| attacker.wait_until_started());
    tokio::task::block_in_place(|| served.stop());
    tokio::task::block_in_place(|| attacker.wait_until_ended());
}

/// The first retry event of an attacked chat, and its peak memory in bytes by then.
fn first_retry_note_and_memory(attack: Attack) -> (String, u64) {
    let attacker = AttackingServer::start(ApiFormat::Chat, attack);
    let home = ApiFormat::Chat.home(&attacker.url, "");
    let mut chat = home.command(&["chat", "--json", ATTACK]).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(chat.stdout.take().unwrap());
    // The delays grow, so the test waits only for the first one.
    let note = out.lines().map(Result::unwrap).find(|line| line.contains("step.updated")).unwrap();
    let peak = peak_memory_of(chat.id());
    chat.kill().unwrap();
    chat.wait().unwrap();
    (note, peak)
}

#[test]
fn endless_headers_and_trailers_are_aborted() {
    let line = format!("x: {}\r\n", "a".repeat(MIB));
    let head = Attack {
        head: OK.to_owned(),
        repeated: line.clone().into_bytes(),
        times: ENDLESS,
        ..Attack::default()
    };
    let chunked = format!("{OK}transfer-encoding: chunked\r\n\r\n0\r\n");
    let tail = Attack { head: chunked, repeated: line.into_bytes(), times: ENDLESS, ..Attack::default() };
    for (attack, reason) in [(head, "message head is too large"), (tail, "trailer")] {
        let (note, peak) = first_retry_note_and_memory(attack);
        assert!(note.contains(reason), "{note}");
        assert!(peak < MAX_MEMORY_BYTES, "{} MiB", peak >> 20);
    }
}

#[test]
fn an_endless_list_of_models_is_aborted() {
    for api in ApiFormat::ALL {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n".to_owned();
        let (first, repeated) = (b"{\"data\":[".to_vec(), b"{\"id\":\"a\"},".repeat(MIB / 11));
        let attacker =
            AttackingServer::start(api, Attack { head, first, repeated, times: ENDLESS, hangs: false });
        let home = api.home(&attacker.url, "");
        let stderr = home.refuses(&["models", "--refresh"]);
        assert!(stderr.contains("its response is larger than"), "{api:?}: {stderr}");
        let sent = attacker.wait_until_ended();
        assert!(sent < 32 * MIB, "{api:?}: parlor read {sent} bytes");
    }
}

#[test]
fn an_error_in_place_of_a_stream_is_reported() {
    let body = r#"{"error":{"type":"invalid_request_error","message":"this server cannot stream"}}"#;
    for api in ApiFormat::ALL {
        let server = ScriptedServer::start(vec![Reply::Body(200, "application/json", body)]);
        let stderr = api.home(&server.url, "").refuses(&["chat", "hello"]);
        assert!(
            stderr.contains("MODEL_REFUSED") && stderr.contains("this server cannot stream"),
            "{api:?}: {stderr}"
        );
    }
}
