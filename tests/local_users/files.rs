//! What another user finds in a state folder that others can look into.

use std::os::unix::fs::MetadataExt;

use crate::server::Server;
use crate::users::{STRANGER, as_user};

#[test]
fn nothing_that_the_server_writes_can_be_read_by_others() {
    let Some(server) = Server::start("") else { return };
    for name in ["serve.json", "serve.lock", "supr.json"] {
        let path = server.home.join(name);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{name}");
        let error = as_user(STRANGER, || std::fs::read(&path)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{name}");
    }
}
