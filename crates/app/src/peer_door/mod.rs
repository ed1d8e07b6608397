//! The peer door of this process: it serves its sessions to other processes of the same state folder, and reaches theirs.
//!
//! The socket's name is announced with this process's leases on its sessions, so whoever finds a session in use knows where
//! to ask. No process is started for this, and a process that cannot open its socket works alone.

mod connection;
mod connections;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parlor_doors::peer::PeerMachine;
use parlor_engine::{PeerClient, Sessions};
use parlor_log::{Announcement, SystemClock, TimeOrderedIds};
use parlor_transport::{FrameMemory, SOCKET_FOLDER, SocketServer, remove_dead_sockets};
use parlor_vocab::IdSource;
use tokio_util::sync::CancellationToken;

use self::connections::PeerConnections;

/// The end of a socket's name.
const SOCKET_SUFFIX: &str = ".peer";

/// How an announced address of a socket begins. The name of the socket in the state folder follows, because another process
/// may know the folder by another path.
const ADDRESS_PREFIX: &str = "unix:";

/// The version of this program.
const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The socket of this process, before it is served.
pub(crate) struct PeerDoor {
    folder: PathBuf,
    server: Option<SocketServer>,
    /// Whether the settings allow processes to join each other's sessions.
    joins_sessions: bool,
}

impl PeerDoor {
    /// Opens a socket in the state folder `home`. If that fails, says so on stderr; sessions of this process can then be
    /// used by it alone. Without `joins_sessions` there is no socket. Must be called within a tokio runtime.
    pub(crate) fn open(home: &Path, joins_sessions: bool) -> Self {
        let folder = home.join(SOCKET_FOLDER);
        if !joins_sessions {
            return Self { folder, server: None, joins_sessions };
        }
        let number = TimeOrderedIds::new(Arc::new(SystemClock)).next();
        let name = format!("{number}{SOCKET_SUFFIX}");
        let server = SocketServer::bind(&folder, &name);
        if let Err(error) = &server {
            let folder = folder.display();
            eprintln!(
                "parlor: no socket in {folder}: {error}; other processes cannot join sessions of this one"
            );
        }
        Self { folder, server: server.ok(), joins_sessions }
    }

    /// What this process tells others of itself.
    pub(crate) fn announcement(&self) -> Announcement {
        let name = self.server.as_ref().and_then(|server| server.path().file_name()?.to_str());
        let address = name.map(|name| format!("{ADDRESS_PREFIX}{name}"));
        Announcement { version: Some(PROGRAM_VERSION.to_owned()), address }
    }

    /// Lets `sessions` reach the sessions of other processes, if the settings allow that.
    pub(crate) fn connect(&self, sessions: Sessions) -> Sessions {
        if !self.joins_sessions {
            return sessions;
        }
        let own_address = self.announcement().address;
        sessions.with_peers(Arc::new(PeerConnections::new(self.folder.clone(), own_address)))
    }

    /// Serves the sessions of this process to others, until `sessions` is dropped.
    pub(crate) fn serve(self, sessions: &Arc<Sessions>) {
        let Self { folder, server, .. } = self;
        tokio::spawn(async move { remove_dead_sockets(&folder, SOCKET_SUFFIX).await });
        let Some(server) = server else { return };
        // Weak, so that the listener alone does not keep the log open; each connection does, until it ends.
        let sessions = Arc::downgrade(sessions);
        tokio::spawn(async move {
            let make = || {
                let sessions = sessions.upgrade()?;
                let machine = PeerMachine::new(Instant::now(), PROGRAM_VERSION, std::process::id());
                Some((machine, PeerClient::new(sessions)))
            };
            server.serve(FrameMemory::default(), make, CancellationToken::new()).await;
        });
    }
}

/// Lets `sessions` reach the sessions of other processes in the state folder `home`, without serving its own.
pub(crate) fn connect(home: &Path, joins_sessions: bool, sessions: Sessions) -> Sessions {
    PeerDoor { folder: home.join(SOCKET_FOLDER), server: None, joins_sessions }.connect(sessions)
}
