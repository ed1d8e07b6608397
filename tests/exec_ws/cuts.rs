//! Clients whose connections are cut go on with their sessions, and lose and repeat nothing.

use std::collections::BTreeMap;

use parlor_testkit::RandomNumbers;
use serde_json::{Value, json};

use crate::client::{Client, decode};
use crate::server::Server;

const PROCESSES: usize = 6;
const LINES: usize = 30;

#[tokio::test]
async fn a_session_has_one_connection_and_goes_on_over_another() {
    let server = Server::start();
    let mut first = Client::connect(server.exec).await;
    let session = first.open(None).await.unwrap();
    first.start("p", "echo up; while read line; do echo got $line; done").await;
    assert_eq!(first.output("p", 0, "\n").await, "up\n");

    let mut second = Client::connect(server.exec).await;
    assert_eq!(second.open(Some(&session)).await, Err(-32010));
    assert_eq!(second.open(Some("none")).await, Err(-32600));
    drop(first);
    let mut second = resume(&server, &session).await;
    let write = json!({"processId": "p", "chunk": "b25lCg==", "writeId": "1"});
    assert_eq!(second.call("process/write", write).await, Ok(json!({"status": "accepted"})));
    assert_eq!(second.output("p", 0, "got one\n").await, "up\ngot one\n");
    // The second connection is not the first one's: its requests are counted anew.
    assert_eq!(second.call("process/read", json!({"processId": "q"})).await, Err(-32600));
}

/// Connects again, as the codex CLI does: it repeats `initialize` while the server has not noticed the cut yet.
async fn resume(server: &Server, session: &str) -> Client {
    loop {
        let mut client = Client::connect(server.exec).await;
        match client.open(Some(session)).await {
            Ok(resumed) => {
                assert_eq!(resumed, session);
                return client;
            }
            Err(code) => assert_eq!(code, -32010),
        }
    }
}

/// What a client has seen of a process.
#[derive(Default)]
struct Seen {
    last_seq: u64,
    text: String,
    is_closed: bool,
}

impl Seen {
    /// Takes an event if it is the next one. Those that a read has brought already are skipped.
    fn on_event(&mut self, method: &str, params: &Value) {
        let seq = params["seq"].as_u64().unwrap();
        if seq <= self.last_seq {
            return;
        }
        assert_eq!(seq, self.last_seq + 1, "a gap before {method}");
        self.last_seq = seq;
        match method {
            "process/output" => self.text.push_str(&decode(params)),
            "process/closed" => self.is_closed = true,
            _ => assert_eq!(method, "process/exited"),
        }
    }

    /// Takes what a read after a cut brings.
    fn on_read(&mut self, page: &Value) {
        for chunk in page["chunks"].as_array().unwrap() {
            self.on_event("process/output", chunk);
        }
        // The numbers without a chunk are those of the exit and the end.
        self.last_seq = page["nextSeq"].as_u64().unwrap() - 1;
        self.is_closed = page["closed"].as_bool().unwrap();
    }
}

struct Session<'a> {
    server: &'a Server,
    id: String,
    /// `None` only between two connections.
    client: Option<Client>,
    seen: BTreeMap<String, Seen>,
    random: RandomNumbers,
    cuts: usize,
}

impl Session<'_> {
    fn client(&mut self) -> &mut Client {
        self.client.as_mut().unwrap()
    }

    fn take_events(&mut self) {
        for frame in std::mem::take(&mut self.client().events) {
            let process = frame["params"]["processId"].as_str().unwrap();
            let seen = self.seen.get_mut(process).unwrap();
            seen.on_event(frame["method"].as_str().unwrap(), &frame["params"]);
        }
    }

    /// Loses the connection without a word, and asks for what happened meanwhile.
    async fn cut(&mut self) {
        self.cuts += 1;
        self.client = None;
        self.client = Some(resume(self.server, &self.id).await);
        let processes: Vec<String> = self.seen.keys().cloned().collect();
        for process in processes {
            let params = json!({
                "processId": process, "afterSeq": self.seen[&process].last_seq, "maxBytes": null, "waitMs": 0,
            });
            let page = self.client().call("process/read", params).await.unwrap();
            self.seen.get_mut(&process).unwrap().on_read(&page);
        }
        // Events that were pushed before the reads come behind what the reads brought.
        self.take_events();
    }

    /// Writes a line. The connection may be lost before the request, before its answer, or after it; then the client
    /// sends the same write again.
    async fn write(&mut self, process: &str, number: usize) {
        let chunk = base64_simd::STANDARD.encode_to_string(format!("{number}\n"));
        let params = json!({"processId": process, "chunk": chunk, "writeId": number.to_string()});
        loop {
            match self.random.next() % 8 {
                0 => self.replace_client_after(0).await,
                1 => {
                    self.client().request("process/write", params.clone()).await;
                    let frames = self.random.next() % 3;
                    self.replace_client_after(frames).await;
                    continue;
                }
                _ => {}
            }
            let answer = self.client().call("process/write", params.clone()).await;
            assert_eq!(answer, Ok(json!({"status": "accepted"})));
            self.take_events();
            return;
        }
    }

    /// Reads up to `frames` messages that are there, and drops the connection.
    async fn replace_client_after(&mut self, frames: u64) {
        for _ in 0..frames {
            // What is read here counts as seen, also an answer.
            let frame = self.client().frame_if_any().await;
            let Some(frame) = frame.filter(|frame| frame.get("id").is_none()) else { break };
            self.client().events.push(frame);
        }
        self.take_events();
        self.cut().await;
    }
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_when_connections_are_cut_anywhere() {
    let server = Server::start();
    let mut client = Client::connect(server.exec).await;
    let id = client.open(None).await.unwrap();
    let mut session = Session {
        server: &server,
        id,
        client: Some(client),
        seen: BTreeMap::new(),
        random: RandomNumbers(0x5eed),
        cuts: 0,
    };
    let script = format!("while read line; do echo got $line; [ $line = {LINES} ] && exit 0; done");
    for number in 0..PROCESSES {
        let process = format!("p{number}");
        session.seen.insert(process.clone(), Seen::default());
        session.client().start(&process, &script).await;
    }
    for number in 1..=LINES {
        for process in 0..PROCESSES {
            session.write(&format!("p{process}"), number).await;
        }
    }
    while !session.seen.values().all(|seen| seen.is_closed) {
        let frame = session.client().frame().await;
        session.client().events.push(frame);
        session.take_events();
    }
    let expected: String = (1..=LINES).map(|number| format!("got {number}\n")).collect();
    for (process, seen) in &session.seen {
        assert_eq!(seen.text, expected, "{process}");
    }
    assert!(session.cuts > 20, "only {} cuts", session.cuts);
}
