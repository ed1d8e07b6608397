//! The memory that the server keeps after large messages.

use std::path::Path;

use super::server::Server;

/// How many clients send one message each, and stay connected.
pub(super) const MESSAGES: usize = 60;

/// The size of each message.
pub(super) const MESSAGE_MIB: usize = 15;

/// The server's resident memory before and after the messages, in MiB.
pub(super) struct Resident {
    pub(super) before: f64,
    pub(super) after: f64,
}

pub(super) async fn measure(parlor: &Path) -> anyhow::Result<Resident> {
    let server = Server::parlor(parlor, crate::DATABASE_FOLDER, "[otherwise]\nsteps = []\n")?;
    let before = server.memory_kib()? / 1024.0;
    let (text, mut clients) = ("x".repeat(MESSAGE_MIB << 20), Vec::new());
    for number in 0..MESSAGES {
        let mut client = server.connect(&format!("?session_id=large-{number}")).await?;
        client.send_message(&text).await?;
        while !client.frame().await?.contains(r#""event_type":"run.completed""#) {}
        // The server answers the ping after it has released the memory of the message.
        client.send(r#"{"type":"ping","id":"p"}"#).await?;
        while !client.frame().await?.contains(r#""type":"pong""#) {}
        clients.push(client);
    }
    Ok(Resident { before, after: server.memory_kib()? / 1024.0 })
}
