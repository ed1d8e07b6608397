//! A parent of `parlor stdio synaps`.

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::client::Client;
use crate::frames::{Frames, Shown, text};
use crate::home::Home;
use crate::line_process::LineProcess;

/// What a frame shows. The dialect cannot say what other clients send.
fn read(frame: &Value) -> Option<Shown> {
    match frame["type"].as_str()? {
        "message_update" if frame["event"]["type"] == "text_delta" => {
            Some(Shown::Text(text(&frame["event"]["delta"])))
        }
        "agent_end" => Some(Shown::End),
        _ => None,
    }
}

pub(crate) struct Synaps {
    pub(crate) process: LineProcess,
    pub(crate) session: String,
    commands: u64,
}

impl Synaps {
    pub(crate) async fn start(home: &Home, args: &[&str]) -> Self {
        let mut process = LineProcess::start(home.command(&[&["stdio", "synaps"], args].concat()), read);
        let ready = process.frames.until("ready", |frame| frame["type"] == "ready").await;
        Self { process, session: text(&ready["session_id"]), commands: 0 }
    }

    /// Sends a command and returns its id.
    pub(crate) async fn command(&mut self, mut command: Value) -> String {
        self.commands += 1;
        let id = self.commands.to_string();
        command["id"] = Value::from(id.as_str());
        self.process.write(&command).await;
        id
    }
}

#[async_trait]
impl Client for Synaps {
    async fn send(&mut self, text: &str) {
        self.command(json!({"type": "prompt", "message": text})).await;
    }

    async fn stop(&mut self) {
        let id = self.command(json!({"type": "abort"})).await;
        let response =
            self.process.frames.find("response to abort", |frame| frame["id"] == id.as_str()).await;
        assert_eq!(response["ok"], true, "{response}");
    }

    async fn steer(&mut self, text: &str) {
        let id = self.command(json!({"type": "prompt", "message": text, "steer": true})).await;
        let response =
            self.process.frames.find("response to a steer", |frame| frame["id"] == id.as_str()).await;
        assert_eq!(response["ok"], true, "{response}");
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.process.frames
    }

    async fn sees_message(&mut self, _text: &str) {}
}
