//! Checks whether a process that is visible in `/proc` has a socket open.
//!
//! In a container the user id of a socket is not enough. A rootless container's port forwarder runs outside the container as
//! the user who made it, and forwards connections of anybody. That forwarder is not visible in the container's `/proc`; a
//! client inside the container is.

use std::fs::{read_dir, read_link};
use std::path::Path;

/// How many open files of processes are inspected. Each takes a few microseconds, and a container has few.
pub const MAX_INSPECTED_FILES: usize = 50_000;

/// Whether a process in `/proc` has the socket with this inode among its open files. Files that cannot be read are skipped.
pub(super) fn is_open_in_visible_process(inode: u64) -> bool {
    is_open_in(Path::new("/proc"), inode, MAX_INSPECTED_FILES)
}

fn is_open_in(processes: &Path, inode: u64, max_files: usize) -> bool {
    let wanted = format!("socket:[{inode}]");
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let folders = read_dir(processes).into_iter().flatten().flatten();
    folders
        .filter(|folder| folder.file_name().to_str().is_some_and(is_process))
        .filter_map(|folder| read_dir(folder.path().join("fd")).ok())
        .flatten()
        .flatten()
        .take(max_files)
        .any(|file| read_link(file.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_open_socket_is_found_in_proc() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
        assert!(is_open_in_visible_process(inode));
        drop(socket);
        assert!(!is_open_in_visible_process(inode));
    }

    #[test]
    fn the_number_of_inspected_files_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        for (process, socket) in [("1", 7), ("2", 7), ("self", 8)] {
            let files = folder.path().join(process).join("fd");
            std::fs::create_dir_all(&files).unwrap();
            symlink(format!("socket:[{socket}]"), files.join("3")).unwrap();
        }
        assert!(is_open_in(folder.path(), 7, 1) && !is_open_in(folder.path(), 7, 0));
        assert!(!is_open_in(folder.path(), 8, MAX_INSPECTED_FILES), "`self` is not a process folder");
    }
}
