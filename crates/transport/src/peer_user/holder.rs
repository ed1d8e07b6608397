//! Whether a process that can be seen from here holds a socket.
//!
//! In a container the number of a user says too little. Who forwards ports into it from outside, as rootless containers
//! have it, does so as the user who made the container, on behalf of anybody. That process is not among those that the
//! container can see, and a client inside of it is.

use std::fs::{read_dir, read_link};
use std::path::Path;

/// How many open files of processes are looked at. It takes some microseconds each, and a container has few.
pub const LOOKED_AT_FILES: usize = 50_000;

/// Whether one of the processes in `/proc` has the socket of this number among its open files. What cannot be looked at
/// does not count.
pub(super) fn is_held_here(inode: u64) -> bool {
    is_held_in(Path::new("/proc"), inode, LOOKED_AT_FILES)
}

fn is_held_in(processes: &Path, inode: u64, most: usize) -> bool {
    let wanted = format!("socket:[{inode}]");
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let folders = read_dir(processes).into_iter().flatten().flatten();
    folders
        .filter(|folder| folder.file_name().to_str().is_some_and(is_process))
        .filter_map(|folder| read_dir(folder.path().join("fd")).ok())
        .flatten()
        .flatten()
        .take(most)
        .any(|file| read_link(file.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_open_socket_is_found_among_the_files_of_processes() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
        assert!(is_held_here(inode));
        drop(socket);
        assert!(!is_held_here(inode));
    }

    #[test]
    fn no_more_files_are_looked_at_than_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        for (process, socket) in [("1", 7), ("2", 7), ("self", 8)] {
            let files = folder.path().join(process).join("fd");
            std::fs::create_dir_all(&files).unwrap();
            symlink(format!("socket:[{socket}]"), files.join("3")).unwrap();
        }
        assert!(is_held_in(folder.path(), 7, 1) && !is_held_in(folder.path(), 7, 0));
        assert!(!is_held_in(folder.path(), 8, LOOKED_AT_FILES), "only processes are looked at");
    }
}
