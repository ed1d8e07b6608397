//! Many sessions at once, whose turns are steered, interrupted and queued at random, and a long conversation.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use parlor_testkit::RandomNumbers;
use serde_json::{Value, json};

use crate::server::{Home, Server, memory_kib, streamed, text};
use crate::soak;

const SESSIONS: usize = 50;

/// How much the server's memory may grow in the second half of the test, in KiB. In a soak of a minute every session has
/// reached the limit of what it keeps in the first half; in the short test it has not.
const GROWTH_KIB: u64 = 16 << 10;

/// All requests and turns of the test, to check that each ends once.
#[derive(Default)]
struct Ledger {
    /// Requests without a response, by id; true for `session.send`.
    open: HashMap<u64, bool>,
    accepted: HashSet<String>,
    /// How many queued turns `session.queue.clear` removed.
    cleared: usize,
    /// How often each turn ended.
    ended: HashMap<String, usize>,
    /// The streamed text of each running turn.
    streamed: HashMap<String, String>,
    /// The assistant messages of each session since its last turn ended, as one text.
    answers: HashMap<String, String>,
}

impl Ledger {
    fn record(&mut self, line: &Value) {
        if let Some(id) = line["id"].as_u64() {
            let is_send =
                self.open.remove(&id).unwrap_or_else(|| panic!("answered twice or never sent: {line}"));
            if is_send && line["result"]["accepted"] == true {
                assert!(self.accepted.insert(text(&line["result"]["turn_id"])), "{line}");
            }
            if let Some(count) = line["result"]["cleared_count"].as_u64() {
                self.cleared += usize::try_from(count).unwrap();
            }
            return;
        }
        let (kind, payload) = (text(&line["params"]["type"]), &line["params"]["payload"]);
        match kind.as_str() {
            "session.stream.chunk" => {
                let piece = text(&payload["chunk"]["answerText"]);
                self.streamed.entry(text(&payload["turn_id"])).or_default().push_str(&piece);
            }
            "session.message.appended" if payload["message"]["kind"] == "assistant" => {
                let answer = text(&payload["message"]["text"]);
                self.answers.entry(text(&payload["session_id"])).or_default().push_str(&answer);
            }
            "session.completed" => {
                let streamed = self.streamed.remove(&text(&payload["turn_id"])).unwrap_or_default();
                assert_eq!(self.answers[&text(&payload["session_id"])], streamed);
            }
            _ => {}
        }
        if matches!(kind.as_str(), "session.completed" | "session.interrupted" | "session.error") {
            assert_ne!(kind, "session.error", "{line}");
            self.answers.remove(&text(&payload["session_id"]));
            *self.ended.entry(text(&payload["turn_id"])).or_default() += 1;
        }
    }
}

/// Sends a random request to a session.
async fn send_random_request(
    server: &mut Server,
    ledger: &mut Ledger,
    random: &mut RandomNumbers,
    session: &str,
) {
    let prompts = ["/wait 0.3", "/say a b c d e f", "/think hm", "!echo hi", "/wait 60"];
    let (method, params) = match random.next() % 8 {
        0..=3 => {
            let text = prompts[(random.next() % prompts.len() as u64) as usize];
            ("session.send", json!({"session_id": session, "text": text, "enqueue": true}))
        }
        4 | 5 => ("session.interrupt", json!({"session_id": session})),
        6 => ("session.steer", json!({"session_id": session, "text": "left"})),
        _ => ("session.queue.clear", json!({"session_id": session})),
    };
    let id = server.send_request(method, params).await;
    ledger.open.insert(id, method == "session.send");
}

#[tokio::test]
async fn in_fifty_busy_sessions_every_turn_ends_once_and_every_request_is_answered_once() {
    let home = Home::new();
    let mut server = home.server().await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(server.session().await);
    }
    let (mut ledger, mut random) = (Ledger::default(), RandomNumbers(0x2545_f491_4f6c_dd1d));
    let half = soak(Duration::from_secs(4), Duration::from_secs(60)) / 2;
    let (start, mut before) = (Instant::now(), None);
    while start.elapsed() < 2 * half {
        for _ in 0..20 {
            let session = sessions[(random.next() % SESSIONS as u64) as usize].clone();
            send_random_request(&mut server, &mut ledger, &mut random, &session).await;
        }
        while ledger.open.len() > 10 {
            let line = server.line().await;
            ledger.record(&line);
        }
        if start.elapsed() > half {
            before.get_or_insert_with(|| memory_kib(server.pid()));
        }
    }
    // Clear all queues and interrupt all turns.
    for session in &sessions {
        for method in ["session.queue.clear", "session.interrupt"] {
            let id = server.send_request(method, json!({"session_id": session})).await;
            ledger.open.insert(id, false);
        }
    }
    while !ledger.open.is_empty() || ledger.ended.len() + ledger.cleared < ledger.accepted.len() {
        let line = server.line().await;
        ledger.record(&line);
    }
    assert!(ledger.accepted.len() > SESSIONS, "{}", ledger.accepted.len());
    assert!(ledger.ended.values().all(|count| *count == 1), "a turn ended twice");
    assert!(ledger.ended.keys().all(|turn| ledger.accepted.contains(turn)));
    assert_eq!(ledger.ended.len() + ledger.cleared, ledger.accepted.len());
    for session in &sessions {
        let state = server.call("session.get", json!({"session_id": session})).await;
        assert_eq!((&state["pending"], &state["statusLabel"]), (&json!(false), &json!("ready")));
    }
    let (before, now) = (before.expect("half of the time has passed"), memory_kib(server.pid()));
    assert!(now < before + GROWTH_KIB, "from {before} to {now} KiB");
}

/// How many turns the long conversation has.
const LONG_TURNS: usize = 300;
/// How many bytes each of its answers has.
const LONG_TEXT_BYTES: usize = 100_000;

#[tokio::test]
async fn a_long_conversation_takes_no_more_memory_than_a_short_one() {
    let home = Home::new();
    let mut server = home.server().await;
    let session = server.session().await;
    let prompt = format!("!head -c {LONG_TEXT_BYTES} /dev/zero | tr '\\0' x");
    let mut before = 0;
    for turn in 0..LONG_TURNS {
        let events = server.turn(&session, &prompt).await;
        assert!(streamed(&events).len() > LONG_TEXT_BYTES / 2, "{}", streamed(&events));
        // After a third of the turns every bounded buffer is full.
        if turn == LONG_TURNS / 3 {
            before = memory_kib(server.pid());
        }
    }
    let now = memory_kib(server.pid());
    let text_kib = (LONG_TURNS * 2 / 3 * LONG_TEXT_BYTES) as u64 >> 10;
    assert!(now < before + text_kib / 4, "from {before} to {now} KiB with {text_kib} KiB of text");
    let state = server.call("session.get", json!({"session_id": session})).await;
    assert!(state["messages"].as_array().unwrap().len() < LONG_TURNS, "the oldest messages are left out");
    let chat = server.call("history.get", json!({"id": state["activeSessionId"]})).await;
    assert_eq!(chat["messages"].as_array().unwrap().len(), 2 * LONG_TURNS, "the saved chat has all messages");
}
