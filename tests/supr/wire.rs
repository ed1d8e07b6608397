//! A WebSocket to the real program, as a transcript's peer: each line is one message.
//!
//! `#! args` and `>again` carry the query. A line that is not UTF-8 is sent as a binary message.

use futures_util::{SinkExt, StreamExt};
use parlor_doors::lines::{Line, Lines};
use parlor_testkit::{Case, Peer};
use tokio_tungstenite::tungstenite::Message;

use crate::client::Client;
use crate::server::{self, Server};

pub(crate) struct Wire {
    server: Server,
    /// The query of the current or next connection.
    query: String,
    /// `None` until the transcript first uses the connection, and after `>again`.
    client: Option<Client>,
    lines: Lines,
}

impl Wire {
    pub(crate) fn start(case: &Case) -> Result<Self, String> {
        let mut command = server::command(&case.home);
        command.current_dir(&case.tmp);
        for (name, value) in &case.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let server = Server::spawn(command, &case.home)?;
        let query = case.args.join("&");
        Ok(Self { server, query, client: None, lines: Lines::new(usize::MAX) })
    }

    async fn client(&mut self) -> &mut Client {
        if self.client.is_none() {
            self.client = Some(Client::connect(self.server.http, &self.query).await);
        }
        self.client.as_mut().expect("the client was connected above")
    }
}

impl Peer for Wire {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.lines.push(bytes);
        let mut messages = Vec::new();
        while let Some(Line::Whole(line)) = self.lines.next_line() {
            messages.push(match std::str::from_utf8(line) {
                Ok(text) => Message::text(text),
                Err(_) => Message::binary(line.to_vec()),
            });
        }
        for message in messages {
            let sent = self.client().await.socket.send(message).await;
            sent.map_err(|error| format!("cannot send: {error}"))?;
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<(), String> {
        let closed = self.client().await.socket.send(Message::Close(None)).await;
        closed.map_err(|error| format!("cannot close: {error}"))
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.client().await.socket.next().await {
                Some(Ok(Message::Text(text))) => return Some(text.as_str().as_bytes().to_vec()),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Binary(bytes))) => return Some(bytes.to_vec()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
            }
        }
    }

    async fn reconnect(&mut self, args: &[String]) -> Result<(), String> {
        self.client = None;
        self.query = args.join("&");
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Stops the server, which must exit with success and remove its `serve.json`.
impl Drop for Wire {
    fn drop(&mut self) {
        let status = self.server.stop();
        let file_exists = self.server.home.join("serve.json").exists();
        if !std::thread::panicking() {
            assert!(status.success() && !file_exists, "{status}, serve.json exists: {file_exists}");
        }
    }
}
