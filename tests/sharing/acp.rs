//! An editor: `parlor stdio acp` with one session.

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::client::Client;
use crate::frames::{Frames, Shown, text};
use crate::home::Home;
use crate::line_process::LineProcess;

/// The name that the editor gives itself.
pub(crate) const CLIENT_NAME: &str = "Editor";

/// What a frame shows. Only the end of an own turn has a frame, which [`Acp::sees_end`] waits for.
fn read(frame: &Value) -> Option<Shown> {
    let update = &frame["params"]["update"];
    match update["sessionUpdate"].as_str()? {
        "user_message_chunk" => Some(Shown::Message(text(&update["content"]["text"]))),
        "agent_message_chunk" => Some(Shown::Text(text(&update["content"]["text"]))),
        _ => None,
    }
}

/// An editor with one open session.
pub(crate) struct Acp {
    pub(crate) process: LineProcess,
    pub(crate) session: String,
    requests: u64,
    /// The prompt whose answer was not looked for yet.
    prompt: Option<u64>,
}

impl Acp {
    /// An editor that has not opened a session.
    pub(crate) async fn connect(home: &Home) -> Self {
        Self::connect_with(home, json!({})).await
    }

    /// The same, with what the editor can do.
    pub(crate) async fn connect_with(home: &Home, capabilities: Value) -> Self {
        let mut command = home.command(&["stdio", "acp"]);
        command.env("HOME", home.folder());
        let process = LineProcess::start(command, read);
        let mut editor = Self { process, session: String::new(), requests: 0, prompt: None };
        let info = json!({"name": "editor", "title": CLIENT_NAME, "version": "1"});
        let initialize =
            json!({"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info});
        editor.call("initialize", initialize).await;
        editor
    }

    pub(crate) async fn start(home: &Home) -> Self {
        let mut editor = Self::connect(home).await;
        let new = editor.call("session/new", json!({"cwd": home.folder(), "mcpServers": []})).await;
        editor.session = text(&new["sessionId"]);
        editor
    }

    /// Opens a session that may be open in another process. The history and a run that is active are shown.
    pub(crate) async fn join(home: &Home, session: &str) -> Self {
        let mut editor = Self::connect(home).await;
        editor.session = session.to_owned();
        let load = json!({"sessionId": session, "cwd": home.folder(), "mcpServers": []});
        editor.call("session/load", load).await;
        editor
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> u64 {
        self.requests += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params});
        self.process.write(&request).await;
        self.requests
    }

    /// Sends a request and returns its result. Panics if the answer is an error.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        let answer = self.answer(id).await;
        answer.get("result").unwrap_or_else(|| panic!("{method} failed: {answer}")).clone()
    }

    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        self.process.frames.find("answer", |frame| frame["id"] == id).await
    }

    /// Prompts and returns why the turn ended.
    pub(crate) async fn turn(&mut self, message: &str) -> String {
        self.send(message).await;
        let id = self.prompt.take().expect("it was just sent");
        text(&self.answer(id).await["result"]["stopReason"])
    }
}

#[async_trait]
impl Client for Acp {
    async fn send(&mut self, text: &str) {
        let prompt = json!([{"type": "text", "text": text}]);
        let params = json!({"sessionId": self.session, "prompt": prompt});
        self.prompt = Some(self.request("session/prompt", params).await);
    }

    async fn stop(&mut self) {
        let cancel =
            json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": self.session}});
        self.process.write(&cancel).await;
    }

    async fn steer(&mut self, text: &str) {
        let prompt = json!([{"type": "text", "text": text}]);
        let steered =
            self.call("_session/steering", json!({"sessionId": self.session, "prompt": prompt})).await;
        assert_eq!(steered["outcome"], "injected", "{steered}");
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.process.frames
    }

    /// The protocol has no frame for the end of another client's run, so there is nothing to wait for then.
    async fn sees_end(&mut self) {
        if let Some(prompt) = self.prompt.take() {
            self.answer(prompt).await;
        }
    }
}
