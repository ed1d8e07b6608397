//! The memory of an idle connection.

use std::path::Path;

use super::server::Server;

/// How many idle connections there are.
pub(super) const CONNECTIONS: usize = 10_000;

/// How many connections are opened before memory is read for the first time. By then, the server has allocated what it needs
/// only once.
const WARM_UP: usize = 100;

/// The server's memory for each connection, in KiB.
pub(super) async fn measure(parlor: &Path) -> anyhow::Result<f64> {
    let server = Server::parlor(parlor, crate::DATABASE_FOLDER, "[otherwise]\nsteps = []\n")?;
    let mut clients = Vec::new();
    let mut before = 0.0;
    for number in 0..WARM_UP + CONNECTIONS {
        if number == WARM_UP {
            before = server.memory_kib()?;
        }
        let mut client = server.connect(&format!("?session_id=idle-{number}")).await?;
        // After the list of agents, the connection is idle.
        client.frame().await?;
        clients.push(client);
    }
    Ok((server.memory_kib()? - before) / CONNECTIONS as f64)
}
