//! The processes of the kill storm: each has one client in every session.

use std::time::Instant;

use serde_json::{Value, json};

use crate::frames::{Frames, Shown};
use crate::home::Home;
use crate::loaf::{self, LoafProcess};
use crate::server::Server;
use crate::supr::{self, Socket, serve};

/// A process with a client in each session.
pub(crate) enum Node {
    Supr {
        server: Server,
        sockets: Vec<Socket>,
    },
    /// With the ids of the sessions at this door.
    Loaf {
        server: LoafProcess,
        sessions: Vec<String>,
    },
}

impl Node {
    /// Starts a server and connects to each chat, after the event that was received last in it.
    pub(crate) async fn supr(home: &Home, chats: &[String], received: &[Vec<String>]) -> Self {
        let server = serve(home);
        let mut sockets = Vec::new();
        for (chat, received) in chats.iter().zip(received) {
            let after = received.last().map_or("", String::as_str);
            sockets.push(
                Socket::connect(server.http, &format!("session_id={chat}&stream=1&after={after}")).await,
            );
        }
        Self::Supr { server, sockets }
    }

    /// Starts a front end and resumes each chat.
    pub(crate) async fn loaf(home: &Home, chats: &[String]) -> Self {
        let mut server = LoafProcess::start(home).await;
        let mut sessions = Vec::new();
        for chat in chats {
            sessions.push(server.resume(chat).await);
        }
        Self::Loaf { server, sessions }
    }

    pub(crate) fn pid(&self) -> u32 {
        match self {
            Self::Supr { server, .. } => server.pid(),
            Self::Loaf { server, .. } => server.process.pid(),
        }
    }

    /// Sends a message into a session. Does not wait for an answer.
    pub(crate) async fn send(&mut self, session: usize, text: &str) {
        match self {
            Self::Supr { sockets, .. } => {
                let payload = json!({"content": text, "key": text});
                assert!(sockets[session].send("message.send", payload).await);
            }
            Self::Loaf { server, sessions } => {
                let params = json!({"session_id": sessions[session], "text": text, "enqueue": true});
                server.request("session.send", params).await.expect("the process reads");
            }
        }
    }

    /// Waits until a message that this node sent is stored: it starts a run, or waits in the queue of its session.
    pub(crate) async fn is_stored(&self, session: usize, text: &str) {
        let is_stored = |frame: &Value| match frame["type"].as_str() {
            Some("run.queued") => frame["payload"]["key"] == text,
            _ => self.shown(session, frame) == Some(Shown::Message(text.to_owned())),
        };
        self.frames(session).find(&format!("acknowledgement of {text:?}"), is_stored).await;
    }

    pub(crate) async fn stop(&mut self, session: usize) {
        match self {
            Self::Supr { sockets, .. } => assert!(sockets[session].send("run.stop", json!({})).await),
            Self::Loaf { server, sessions } => {
                server.call("session.interrupt", json!({"session_id": sessions[session]})).await;
            }
        }
    }

    /// Waits until the message is shown.
    pub(crate) async fn sees_message(&self, session: usize, text: &str) {
        let wanted = Some(Shown::Message(text.to_owned()));
        self.frames(session)
            .find(&format!("message {text:?}"), |frame| self.shown(session, frame) == wanted)
            .await;
    }

    /// Waits until the run that this message started is shown to have ended, and returns when that was.
    pub(crate) async fn sees_end(&self, session: usize, text: &str) -> Instant {
        let mut has_started = false;
        let is_end = |frame: &Value| {
            let shown = self.shown(session, frame);
            has_started |= shown == Some(Shown::Message(text.to_owned()));
            has_started && shown == Some(Shown::End)
        };
        self.frames(session).find_at(&format!("end of {text:?}"), is_end).await.0
    }

    /// Forgets the frames of the last round.
    pub(crate) fn begin_round(&mut self) {
        match self {
            Self::Supr { sockets, .. } => sockets.iter_mut().for_each(|socket| socket.frames.skip_received()),
            Self::Loaf { server, .. } => server.process.frames.skip_received(),
        }
    }

    /// Kills the process with SIGKILL.
    pub(crate) async fn kill(&mut self) {
        match self {
            Self::Supr { server, sockets } => {
                server.kill();
                for socket in sockets {
                    socket.frames.closed().await;
                }
            }
            Self::Loaf { server, .. } => {
                server.process.kill().await;
                server.process.frames.closed().await;
            }
        }
    }

    /// The ids of all events that this connection was sent in a session. Only for supr.
    pub(crate) fn event_ids(&self, session: usize) -> Vec<String> {
        let frames = self.frames(session).all();
        // A refusal is not in the log, and the tests expect none.
        frames.iter().filter_map(|frame| frame["event_id"].as_str().map(str::to_owned)).collect()
    }

    /// The messages that were shown in a session, in order.
    pub(crate) fn messages(&self, session: usize) -> Vec<String> {
        let frames = self.frames(session).all();
        let shown = frames.iter().filter_map(|frame| self.shown(session, frame));
        let text = |shown| match shown {
            Shown::Message(text) => Some(text),
            Shown::Text(_) | Shown::End => None,
        };
        shown.filter_map(text).collect()
    }

    fn frames(&self, session: usize) -> &Frames {
        match self {
            Self::Supr { sockets, .. } => &sockets[session].frames,
            Self::Loaf { server, .. } => &server.process.frames,
        }
    }

    /// What a frame shows of a session.
    fn shown(&self, session: usize, frame: &Value) -> Option<Shown> {
        match self {
            Self::Supr { .. } => supr::read(frame),
            Self::Loaf { sessions, .. } => {
                let is_of_session = frame["params"]["payload"]["session_id"] == sessions[session].as_str();
                loaf::read(frame).filter(|_| is_of_session)
            }
        }
    }
}
