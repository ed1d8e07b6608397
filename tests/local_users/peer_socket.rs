//! What another user can do with the socket through which processes of the owner join each other's sessions.

use std::fs::{Permissions, read_dir, set_permissions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::server::Server;
use crate::users::{OTHER_USER, OWNER, as_user};

const HELLO: &str = "{\"hello\":{\"versions\":[1],\"program\":\"0\",\"pid\":1}}\n";

fn peer_socket(home: &Path) -> PathBuf {
    let mut sockets = read_dir(home.join("run")).unwrap().map(|entry| entry.unwrap().path());
    sockets.find(|path| path.extension().is_some_and(|extension| extension == "peer")).unwrap()
}

/// The first line that the server sends after `hello`; empty if it hangs up without one.
fn say_hello(socket: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    // Fails if the server has hung up already.
    let _ = stream.write_all(HELLO.as_bytes());
    let mut line = String::new();
    match BufReader::new(stream).read_line(&mut line) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(String::new()),
        read => read.map(|_| line),
    }
}

#[test]
fn another_user_cannot_join_sessions() {
    let Some(server) = Server::start("") else { return };
    let socket = peer_socket(&server.home);
    let folder = server.home.join("run");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
    let error = as_user(OTHER_USER, || say_hello(&socket)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    // Even where the modes are wrong, the kernel's word about the user counts.
    set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let answer = as_user(OTHER_USER, || say_hello(&socket)).unwrap();
    assert!(!answer.contains("\"hello\""), "{answer}");
    let answer = as_user(OWNER, || say_hello(&socket)).unwrap();
    assert!(answer.starts_with("{\"hello\""), "{answer}");
}
