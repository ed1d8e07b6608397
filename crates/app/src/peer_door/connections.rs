//! The connections of this process to others: one for each, shared by all sessions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use parlor_engine::{OWNER_WAIT, PeerConnection, Peers};
use parlor_transport::{ClusterKey, connect_node, connect_socket};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::connection::Connection;
use super::{NODE_PREFIX, SOCKET_PREFIX};

/// How the processes that share a log reach each other.
#[derive(Clone)]
pub(super) enum Network {
    /// By Unix sockets in this folder.
    Sockets { folder: PathBuf },
    /// Over TCP, with the cluster's key.
    Nodes { key: ClusterKey },
}

/// Connections by address.
pub(super) struct PeerConnections {
    network: Network,
    /// The address of this process, which it does not connect to.
    own_address: Option<String>,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
}

/// Locked while the connection is opened, so that it is opened once.
type Slot = AsyncMutex<Option<Arc<Connection>>>;

impl PeerConnections {
    /// No connections.
    pub(super) fn new(network: Network, own_address: Option<String>) -> Self {
        Self { network, own_address, slots: Mutex::default() }
    }

    fn slot(&self, address: &str) -> Arc<Slot> {
        // Each change is a single step, so a panic leaves the map consistent.
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // Processes come and go: forget those whose connection has ended.
        slots.retain(|_, slot| {
            let is_in_use = Arc::strong_count(slot) > 1;
            is_in_use || slot.try_lock().is_ok_and(|slot| slot.as_ref().is_some_and(|it| it.is_connected()))
        });
        Arc::clone(slots.entry(address.to_owned()).or_default())
    }

    async fn open(&self, address: &str) -> Result<Connection, String> {
        match &self.network {
            Network::Sockets { folder } => {
                let name = address.strip_prefix(SOCKET_PREFIX).filter(|name| !name.contains('/'));
                let name = name.ok_or_else(|| format!("the address {address:?} is not that of a socket"))?;
                let stream = connect_socket(&folder.join(name)).await.map_err(|error| error.to_string())?;
                let (from, to) = stream.into_split();
                Connection::open(from, to).await
            }
            Network::Nodes { key } => {
                let address = address.strip_prefix(NODE_PREFIX).and_then(|address| address.parse().ok());
                let address = address.ok_or("the other process has no address of a node")?;
                let (from, to) = tokio::io::split(connect_node(address, key).await?);
                Connection::open(from, to).await
            }
        }
    }

    /// The connection to `address`; opened if there is none.
    async fn open_once(&self, address: &str) -> Result<Arc<Connection>, String> {
        let slot = self.slot(address);
        let mut slot = slot.lock().await;
        match &*slot {
            Some(connection) if connection.is_connected() => Ok(Arc::clone(connection)),
            Some(_) | None => {
                let connection = Arc::new(self.open(address).await?);
                *slot = Some(Arc::clone(&connection));
                Ok(connection)
            }
        }
    }
}

#[async_trait]
impl Peers for PeerConnections {
    async fn connect(&self, address: &str) -> Result<Arc<dyn PeerConnection>, String> {
        if self.own_address.as_deref() == Some(address) {
            return Err("it is this process".to_owned());
        }
        // One limit for the attempt of another task and the own one.
        let connection = timeout(OWNER_WAIT, self.open_once(address)).await;
        connection.unwrap_or_else(|_| Err("it does not answer".to_owned())).map(|connection| connection as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_the_attempt_of_another_task_is_limited() {
        let peers = PeerConnections::new(Network::Sockets { folder: PathBuf::from("/no/such/folder") }, None);
        let slot = peers.slot("unix:a");
        let _attempt = slot.lock().await;
        assert_eq!(peers.connect("unix:a").await.err().as_deref(), Some("it does not answer"));
    }
}
