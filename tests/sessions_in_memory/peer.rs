//! The peer door with sessions in memory.

use parlor_doors::peer::PeerMachine;
use parlor_engine::PeerClient;
use tokio::time::Instant;

use super::SessionsInMemory;
use crate::peer_sessions::create_sessions;

impl SessionsInMemory {
    /// The machine and the backend of a connection from another process.
    pub(crate) async fn peer(self) -> (PeerMachine, PeerClient) {
        let folder = &self.child.new_session.folder;
        // The other process has its session open until the test ends.
        std::mem::forget(create_sessions(&self.other_process, folder).await);
        let now = Instant::now().into_std();
        let machine = PeerMachine::new(now, env!("CARGO_PKG_VERSION"), std::process::id());
        (machine, PeerClient::new(self.sessions))
    }
}
