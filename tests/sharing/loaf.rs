//! A front end of `parlor stdio loaf` with one session.

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::client::Client;
use crate::frames::{Frames, Shown, text};
use crate::home::Home;
use crate::line_process::LineProcess;

/// The name that the front end gives itself.
pub(crate) const CLIENT_NAME: &str = "front-end";

/// What an event shows.
pub(crate) fn read(line: &Value) -> Option<Shown> {
    let payload = &line["params"]["payload"];
    match line["params"]["type"].as_str()? {
        "session.message.appended" if payload["message"]["kind"] == "user" => {
            Some(Shown::Message(text(&payload["message"]["text"])))
        }
        "session.stream.chunk" => {
            payload["chunk"]["answerText"].as_str().map(|text| Shown::Text(text.to_owned()))
        }
        "session.status" if payload["pending"] == false => Some(Shown::End),
        _ => None,
    }
}

/// `parlor stdio loaf`, with requests.
pub(crate) struct LoafProcess {
    pub(crate) process: LineProcess,
    requests: u64,
}

impl LoafProcess {
    pub(crate) async fn start(home: &Home) -> Self {
        let mut command = home.command(&["stdio", "loaf"]);
        command.env("HOME", home.folder());
        let mut server = Self { process: LineProcess::start(command, read), requests: 0 };
        server.call("rpc.handshake", json!({"client_name": CLIENT_NAME})).await;
        server
    }

    /// Sends a request and returns its id, or `None` if the process has ended.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Option<u64> {
        self.requests += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params});
        self.process.try_write(&request).await.then_some(self.requests)
    }

    /// Sends a request and returns the response.
    pub(crate) async fn response(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await.expect("the process reads");
        self.process.frames.find(&format!("response to {method}"), |line| line["id"] == id).await
    }

    /// Sends a request and returns its result. Panics if the response is an error.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let response = self.response(method, params).await;
        response.get("result").unwrap_or_else(|| panic!("{method} failed: {response}")).clone()
    }

    /// Creates a session and returns its id at this door.
    pub(crate) async fn create(&mut self) -> String {
        text(&self.call("session.create", json!({})).await["session_id"])
    }

    /// Resumes a saved chat in a new session, and returns the id of the session.
    pub(crate) async fn resume(&mut self, chat: &str) -> String {
        let session = self.create().await;
        let params = json!({"session_id": session, "raw_command": format!("/history {chat}")});
        let result = self.call("command.execute", params).await;
        assert_eq!(result["output"]["resumed"], chat, "{result}");
        session
    }
}

/// A front end in one session.
pub(crate) struct Loaf {
    pub(crate) server: LoafProcess,
    session: String,
}

impl Loaf {
    pub(crate) async fn start(home: &Home) -> Self {
        let mut server = LoafProcess::start(home).await;
        let session = server.create().await;
        Self { server, session }
    }

    pub(crate) async fn join(home: &Home, chat: &str) -> Self {
        let mut server = LoafProcess::start(home).await;
        let session = server.resume(chat).await;
        Self { server, session }
    }

    pub(crate) async fn close_session(&mut self) {
        self.server.call("session.close", json!({"session_id": self.session})).await;
    }
}

#[async_trait]
impl Client for Loaf {
    async fn send(&mut self, text: &str) {
        let sent = self.server.call("session.send", json!({"session_id": self.session, "text": text})).await;
        assert_eq!(sent["accepted"], true, "{sent}");
    }

    async fn stop(&mut self) {
        let stopped = self.server.call("session.interrupt", json!({"session_id": self.session})).await;
        assert_eq!(stopped["interrupted"], true, "{stopped}");
    }

    async fn steer(&mut self, text: &str) {
        let steered =
            self.server.call("session.steer", json!({"session_id": self.session, "text": text})).await;
        assert_eq!(steered["accepted"], true, "{steered}");
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.server.process.frames
    }
}
