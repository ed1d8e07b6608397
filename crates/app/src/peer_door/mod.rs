//! The peer door of this process: it serves its sessions to other processes of the same log, and reaches theirs.
//!
//! Processes that share a state folder meet at Unix sockets. Nodes that share a log in a database meet over TCP, where both
//! sides prove that they know the cluster's secret. The address is announced with this process's leases on its sessions, so
//! whoever finds a session in use knows where to ask. No process is started for this, and a process that cannot open its
//! socket works alone.

mod cluster_secret;
mod connection;
mod connections;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use parlor_doors::peer::PeerMachine;
use parlor_engine::{PeerClient, Sessions};
use parlor_log::{Announcement, SystemClock, TimeOrderedIds};
use parlor_transport::{
    ClusterKey, FrameMemory, NodeServer, SOCKET_FOLDER, SocketServer, remove_dead_sockets,
};
use parlor_vocab::IdSource;
use tokio_util::sync::CancellationToken;

use self::connections::{Network, PeerConnections};
use crate::event_log::OpenLog;
use crate::settings::Config;

pub(crate) use self::cluster_secret::configured_secret;

/// The end of a socket's name.
const SOCKET_SUFFIX: &str = ".peer";

/// How an announced address of a socket begins. The name of the socket in the state folder follows, because another process
/// may know the folder by another path.
const SOCKET_PREFIX: &str = "unix:";

/// How an announced address of a node begins. The IP address and the port follow.
const NODE_PREFIX: &str = "tcp:";

/// The version of this program.
const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Who may use the sessions of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reachable {
    /// A server: others reach it at the address of the settings.
    AsServer,
    /// Another process that stays: it shares the machine with a server, and takes a free port beside it.
    BesideServer,
    /// A command that ends soon: it reaches others, but they do not reach it.
    No,
}

/// The peer door of this process, before it is served.
pub(crate) struct PeerDoor {
    network: Network,
    server: Option<DoorServer>,
    /// Whether the settings allow processes to join each other's sessions.
    joins_sessions: bool,
}

enum DoorServer {
    Socket(SocketServer),
    Node(NodeServer, SocketAddr),
}

impl PeerDoor {
    /// Opens the door to those who share `log`: a socket in the state folder `home`, or a TCP port. Without `[sessions] join`
    /// there is none. Fails if the settings of the cluster are not safe, or its port is taken.
    pub(crate) async fn open(
        home: &Path,
        config: &Config,
        log: &OpenLog,
        reachable: Reachable,
    ) -> anyhow::Result<Self> {
        let joins_sessions = config.joins_sessions;
        let (network, server) = match log {
            OpenLog::Sqlite(_) => {
                let folder = home.join(SOCKET_FOLDER);
                let opens = joins_sessions && reachable != Reachable::No;
                let server = opens.then(|| bind_socket(&folder)).flatten();
                (Network::Sockets { folder }, server)
            }
            OpenLog::Postgres(log) => {
                let key = cluster_secret::key(&config.cluster, log).await?;
                let server = match joins_sessions {
                    true => bind_node(config.cluster.listen(), &key, reachable).await?,
                    false => None,
                };
                (Network::Nodes { key }, server)
            }
        };
        Ok(Self { network, server, joins_sessions })
    }

    /// What this process tells others of itself.
    pub(crate) fn announcement(&self) -> Announcement {
        let address = match &self.server {
            Some(DoorServer::Socket(server)) => {
                let name = server.path().file_name().and_then(|name| name.to_str());
                name.map(|name| format!("{SOCKET_PREFIX}{name}"))
            }
            Some(DoorServer::Node(_, address)) => Some(format!("{NODE_PREFIX}{address}")),
            None => None,
        };
        Announcement { version: Some(PROGRAM_VERSION.to_owned()), address }
    }

    /// Lets `sessions` reach the sessions of other processes, if the settings allow that.
    pub(crate) fn connect(&self, sessions: Sessions) -> Sessions {
        if !self.joins_sessions {
            return sessions;
        }
        let own_address = self.announcement().address;
        sessions.with_peers(Arc::new(PeerConnections::new(self.network.clone(), own_address)))
    }

    /// Serves the sessions of this process to others, until `sessions` is dropped.
    pub(crate) fn serve(self, sessions: &Arc<Sessions>) {
        if let Network::Sockets { folder } = self.network {
            tokio::spawn(async move { remove_dead_sockets(&folder, SOCKET_SUFFIX).await });
        }
        // Weak, so that the listener alone does not keep the log open; each connection does, until it ends.
        let sessions = Arc::downgrade(sessions);
        let make = move || {
            let sessions = sessions.upgrade()?;
            let machine = PeerMachine::new(Instant::now(), PROGRAM_VERSION, std::process::id());
            Some((machine, PeerClient::new(sessions)))
        };
        let (memory, stop) = (FrameMemory::default(), CancellationToken::new());
        match self.server {
            Some(DoorServer::Socket(server)) => drop(tokio::spawn(server.serve(memory, make, stop))),
            Some(DoorServer::Node(server, _)) => drop(tokio::spawn(server.serve(memory, make, stop))),
            None => {}
        }
    }
}

/// A new socket in `folder`. If that fails, says so on stderr; sessions of this process can then be used by it alone.
fn bind_socket(folder: &Path) -> Option<DoorServer> {
    let number = TimeOrderedIds::new(Arc::new(SystemClock)).next();
    match SocketServer::bind(folder, &format!("{number}{SOCKET_SUFFIX}")) {
        Ok(server) => Some(DoorServer::Socket(server)),
        Err(error) => {
            let folder = folder.display();
            eprintln!(
                "parlor: no socket in {folder}: {error}; other processes cannot join sessions of this one"
            );
            None
        }
    }
}

/// The port at which other nodes reach this process.
async fn bind_node(
    mut address: SocketAddr,
    key: &ClusterKey,
    reachable: Reachable,
) -> anyhow::Result<Option<DoorServer>> {
    match reachable {
        Reachable::AsServer => {}
        Reachable::BesideServer => address.set_port(0),
        Reachable::No => return Ok(None),
    }
    let server = NodeServer::bind(address, key.clone()).await;
    let server = server.with_context(|| format!("cannot listen at {address} ([cluster] listen)"))?;
    let address = server.address().context("the peer door has no address")?;
    Ok(Some(DoorServer::Node(server, address)))
}
