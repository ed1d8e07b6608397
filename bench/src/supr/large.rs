//! What is left of large messages.

use std::path::Path;

use super::peer::Server;

/// How many clients say one each, and stay.
pub(super) const MESSAGES: usize = 60;

/// How large each is.
pub(super) const MESSAGE_MIB: usize = 15;

/// What the server has, in MiB.
pub(super) struct Resident {
    pub(super) before: f64,
    pub(super) after: f64,
}

pub(super) async fn measure(parlor: &Path) -> anyhow::Result<Resident> {
    let server = Server::parlor(parlor, crate::PLACE, "[otherwise]\nsteps = []\n")?;
    let before = server.memory_kib()? / 1024.0;
    let (text, mut peers) = ("x".repeat(MESSAGE_MIB << 20), Vec::new());
    for number in 0..MESSAGES {
        let mut peer = server.connect(&format!("?session_id=large-{number}")).await?;
        peer.say(&text).await?;
        while !peer.frame().await?.contains(r#""event_type":"run.completed""#) {}
        // Answered after what the message took was given back.
        peer.send(r#"{"type":"ping","id":"p"}"#).await?;
        while !peer.frame().await?.contains(r#""type":"pong""#) {}
        peers.push(peer);
    }
    Ok(Resident { before, after: server.memory_kib()? / 1024.0 })
}
