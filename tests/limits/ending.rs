//! The server ends, well or badly, and so does all that it started.

use rustix::process::Signal;

use crate::server::{Server, exec};
use crate::system::{left_of, signal, until};

/// Starts processes of all kinds. Returns their groups.
async fn company(server: &mut Server) -> Vec<u32> {
    let stubborn = "trap '' TERM HUP INT; sleep 300 & sleep 300";
    vec![
        server.start_known("plain", "exec sleep 300", false).await,
        server.start_known("family", "sleep 300 & sleep 300 & wait", false).await,
        server.start_known("stubborn", stubborn, false).await,
        server.start_known("terminal", "sleep 300 & cat", true).await,
        server.start_known("stubborn terminal", stubborn, true).await,
    ]
}

#[tokio::test]
async fn a_server_that_is_asked_to_end_ends_everything_first() {
    for asked in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut server = Server::start().await;
        let groups = company(&mut server).await;
        assert_eq!(left_of(&groups), groups);
        signal(server.pid(), asked);
        let status = server.end().await;
        assert!(left_of(&groups).is_empty(), "{asked:?}, groups {groups:?}");
        assert_eq!(status.code(), Some(0), "{asked:?}");
    }
}

#[tokio::test]
async fn a_killed_server_takes_its_direct_children_along() {
    let mut server = Server::start().await;
    let children = [
        server.start_known("pipes", "exec sleep 300", false).await,
        server.start_known("terminal", "exec sleep 300", true).await,
        server.start_known("shell", "while :; do read line; done", true).await,
    ];
    signal(server.pid(), Signal::KILL);
    server.end().await;
    until("the children are gone", || left_of(&children).is_empty()).await;
}

#[tokio::test]
async fn a_client_that_closes_its_reading_side_has_left() {
    let mut server = Server::start().await;
    let mut groups = company(&mut server).await;
    groups.push(server.start_known("silent", "read go; yes", true).await);
    server.close_stdout();
    server.request("command/exec", exec("loud", "exec yes", false)).await;
    let status = server.end().await;
    assert!(left_of(&groups).is_empty(), "of the groups {groups:?}");
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_client_that_hangs_up_and_does_not_read_is_not_waited_for() {
    let mut server = Server::start().await;
    let groups = [server.start_known("drop by drop", "while :; do echo x; done", false).await];
    // More requests than there is room for replies: the end of input is behind those not looked at. All of them fit
    // into the pipe, as the server may stop reading at any of them.
    server.widen_stdin(1 << 20);
    for _ in 0..3000 {
        server.request("no/such", serde_json::Value::Null).await;
    }
    server.close_stdin();
    let status = server.end_unread().await;
    assert!(left_of(&groups).is_empty(), "of the groups {groups:?}");
    assert_eq!(status.code(), Some(0));
}
