//! The names of the sockets in the state folder: one socket `PID.sock` for each server that shares its processes.

use std::io;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::socket_file::{SocketFile, finished_sockets, remove_dead_sockets};

/// The folder of all sockets, in the state folder.
pub const SOCKET_FOLDER: &str = "run";

/// The end of a socket's name.
const SOCKET_SUFFIX: &str = ".sock";

/// Opens the socket of the server with process id `pid`, and replaces a socket that an earlier process with this pid has
/// left. Creates the folder, and the state folder `home` too. Must be called within a tokio runtime.
pub(super) fn open_socket(home: &Path, pid: u32) -> io::Result<(UnixListener, SocketFile)> {
    SocketFile::bind(&home.join(SOCKET_FOLDER), &format!("{pid}{SOCKET_SUFFIX}"))
}

/// The path of the socket of the server with process id `pid`.
pub(super) fn socket_path(home: &Path, pid: u32) -> PathBuf {
    home.join(SOCKET_FOLDER).join(format!("{pid}{SOCKET_SUFFIX}"))
}

/// The sockets of all servers, living or not, sorted by their names.
pub(super) fn socket_paths(home: &Path) -> Vec<PathBuf> {
    finished_sockets(&home.join(SOCKET_FOLDER), SOCKET_SUFFIX)
}

/// Removes the sockets that killed servers have left in the state folder `home`.
pub async fn remove_stale_sockets(home: &Path) {
    remove_dead_sockets(&home.join(SOCKET_FOLDER), SOCKET_SUFFIX).await;
}
