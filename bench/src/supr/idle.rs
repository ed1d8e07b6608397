//! What a connection costs that says nothing.

use std::path::Path;

use super::peer::Server;

/// How many there are.
pub(super) const CONNECTIONS: usize = 10_000;

/// How many there are before memory is looked at for the first time: what is made once is made by then.
const FIRST: usize = 100;

/// KiB for each.
pub(super) async fn measure(parlor: &Path) -> anyhow::Result<f64> {
    let server = Server::parlor(parlor, crate::PLACE, "[otherwise]\nsteps = []\n")?;
    let mut peers = Vec::new();
    let mut before = 0.0;
    for number in 0..FIRST + CONNECTIONS {
        if number == FIRST {
            before = server.memory_kib()?;
        }
        let mut peer = server.connect(&format!("?session_id=idle-{number}")).await?;
        // The list of agents: from here on it is idle.
        peer.frame().await?;
        peers.push(peer);
    }
    Ok((server.memory_kib()? - before) / CONNECTIONS as f64)
}
