//! Many sessions at once, each with turns that are steered, interrupted and queued at random.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::noise::Noise;
use crate::server::{Home, Server, memory_kib, streamed, text};
use crate::soak;

const SESSIONS: usize = 50;

/// A crowd that has done its work has not grown by more than this.
const GROWTH_KIB: u64 = 32 << 10;

/// What is known of all turns and requests.
#[derive(Default)]
struct Ledger {
    /// Requests without an answer, with the session of those that send.
    open: HashMap<u64, bool>,
    accepted: HashSet<String>,
    cleared: usize,
    ended: HashMap<String, usize>,
    /// Per turn: what was streamed.
    streamed: HashMap<String, String>,
    /// Per session: what its last assistant message was.
    said: HashMap<String, String>,
}

impl Ledger {
    fn note(&mut self, line: &Value) {
        if let Some(id) = line["id"].as_u64() {
            let sends =
                self.open.remove(&id).unwrap_or_else(|| panic!("answered twice or never asked: {line}"));
            if sends && line["result"]["accepted"] == true {
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
                self.said.insert(text(&payload["session_id"]), text(&payload["message"]["text"]));
            }
            "session.completed" => {
                let streamed = self.streamed.remove(&text(&payload["turn_id"])).unwrap_or_default();
                assert_eq!(self.said[&text(&payload["session_id"])], streamed);
            }
            _ => {}
        }
        if matches!(kind.as_str(), "session.completed" | "session.interrupted" | "session.error") {
            assert_ne!(kind, "session.error", "{line}");
            *self.ended.entry(text(&payload["turn_id"])).or_default() += 1;
        }
    }
}

/// Does something to a session.
async fn act(server: &mut Server, ledger: &mut Ledger, noise: &mut Noise, session: &str) {
    let prompt = ["/wait 0.3", "/say a b c d e f", "/think hm", "!echo hi", "/wait 60"];
    let (method, params) = match noise.next() % 8 {
        0..=3 => {
            let text = prompt[(noise.next() % prompt.len() as u64) as usize];
            ("session.send", json!({"session_id": session, "text": text, "enqueue": true}))
        }
        4 | 5 => ("session.interrupt", json!({"session_id": session})),
        6 => ("session.steer", json!({"session_id": session, "text": "left"})),
        _ => ("session.queue.clear", json!({"session_id": session})),
    };
    let id = server.ask(method, params).await;
    ledger.open.insert(id, method == "session.send");
}

#[tokio::test]
async fn every_turn_ends_once_and_every_request_is_answered_once() {
    let home = Home::new();
    let mut server = home.server().await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(server.session().await);
    }
    let (mut ledger, mut noise) = (Ledger::default(), Noise(0x2545_f491_4f6c_dd1d));
    let until = Instant::now() + soak(Duration::from_secs(4), Duration::from_secs(60));
    let mut before = None;
    while Instant::now() < until {
        for _ in 0..20 {
            let session = sessions[(noise.next() % SESSIONS as u64) as usize].clone();
            act(&mut server, &mut ledger, &mut noise, &session).await;
        }
        while ledger.open.len() > 10 {
            let line = server.line().await;
            ledger.note(&line);
        }
        before.get_or_insert_with(|| memory_kib(server.pid()));
    }
    // All is brought to an end: what waits is forgotten, what runs is interrupted.
    for session in &sessions {
        for method in ["session.queue.clear", "session.interrupt"] {
            let id = server.ask(method, json!({"session_id": session})).await;
            ledger.open.insert(id, false);
        }
    }
    while !ledger.open.is_empty() || ledger.ended.len() + ledger.cleared < ledger.accepted.len() {
        let line = server.line().await;
        ledger.note(&line);
    }
    assert!(ledger.accepted.len() > SESSIONS, "{}", ledger.accepted.len());
    assert!(ledger.ended.values().all(|count| *count == 1), "a turn ended twice");
    assert!(ledger.ended.keys().all(|turn| ledger.accepted.contains(turn)));
    assert_eq!(ledger.ended.len() + ledger.cleared, ledger.accepted.len());
    for session in &sessions {
        let told = server.call("session.get", json!({"session_id": session})).await;
        assert_eq!((&told["pending"], &told["statusLabel"]), (&json!(false), &json!("ready")));
    }
    let (before, now) = (before.unwrap(), memory_kib(server.pid()));
    assert!(now < before + GROWTH_KIB, "from {before} to {now} KiB");
}

/// How many turns a long conversation has, and how much text comes with each.
const LONG_TURNS: usize = 300;
const LONG_TEXT: usize = 100_000;

#[tokio::test]
async fn a_long_conversation_takes_no_more_memory_than_a_short_one() {
    let home = Home::new();
    let mut server = home.server().await;
    let session = server.session().await;
    let prompt = format!("!head -c {LONG_TEXT} /dev/zero | tr '\\0' x");
    let mut before = 0;
    for turn in 0..LONG_TURNS {
        let events = server.turn(&session, &prompt).await;
        assert!(streamed(&events).len() > LONG_TEXT / 2, "{}", streamed(&events));
        // By then everything that has a limit has come to it.
        if turn == LONG_TURNS / 3 {
            before = memory_kib(server.pid());
        }
    }
    let now = memory_kib(server.pid());
    let text_kib = (LONG_TURNS * 2 / 3 * LONG_TEXT) as u64 >> 10;
    assert!(now < before + text_kib / 4, "from {before} to {now} KiB with {text_kib} KiB of text");
    let told = server.call("session.get", json!({"session_id": session})).await;
    assert!(told["messages"].as_array().unwrap().len() < LONG_TURNS, "the oldest are left out");
    let chat = server.call("history.get", json!({"id": told["activeSessionId"]})).await;
    assert_eq!(chat["messages"].as_array().unwrap().len(), 2 * LONG_TURNS, "the saved chat has all");
}
