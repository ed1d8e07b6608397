//! When the server stops or is killed, the processes that it started end too.

use rustix::process::Signal;

use crate::proc_info::{running_groups, signal, wait_until};
use crate::server::{Server, exec};

/// Starts processes of several kinds and returns their process groups.
async fn start_processes(server: &mut Server) -> Vec<u32> {
    let ignores_signals = "trap '' TERM HUP INT; sleep 300 & sleep 300";
    vec![
        server.start_with_pid("plain", "exec sleep 300", false).await,
        server.start_with_pid("with children", "sleep 300 & sleep 300 & wait", false).await,
        server.start_with_pid("ignores signals", ignores_signals, false).await,
        server.start_with_pid("terminal", "sleep 300 & cat", true).await,
        server.start_with_pid("terminal that ignores signals", ignores_signals, true).await,
    ]
}

#[tokio::test]
async fn a_signal_stops_the_server_after_all_its_processes() {
    for sent in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut server = Server::start().await;
        let groups = start_processes(&mut server).await;
        assert_eq!(running_groups(&groups), groups);
        signal(server.pid(), sent);
        let status = server.wait_for_exit().await;
        assert!(running_groups(&groups).is_empty(), "{sent:?}, groups {groups:?}");
        assert_eq!(status.code(), Some(0), "{sent:?}");
    }
}

#[tokio::test]
async fn the_direct_children_of_a_killed_server_are_killed_too() {
    let mut server = Server::start().await;
    let children = [
        server.start_with_pid("pipes", "exec sleep 300", false).await,
        server.start_with_pid("terminal", "exec sleep 300", true).await,
        server.start_with_pid("shell", "while :; do read line; done", true).await,
    ];
    signal(server.pid(), Signal::KILL);
    server.wait_for_exit().await;
    wait_until("the children have ended", || running_groups(&children).is_empty()).await;
}

#[tokio::test]
async fn the_server_stops_when_the_client_closes_its_stdout() {
    let mut server = Server::start().await;
    let mut groups = start_processes(&mut server).await;
    groups.push(server.start_with_pid("silent", "read go; yes", true).await);
    server.close_stdout();
    server.request("command/exec", exec("loud", "exec yes", false)).await;
    let status = server.wait_for_exit().await;
    assert!(running_groups(&groups).is_empty(), "of the groups {groups:?}");
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn the_server_stops_when_stdin_is_closed_even_if_the_client_does_not_read() {
    let mut server = Server::start().await;
    let groups = [server.start_with_pid("many short lines", "while :; do echo x; done", false).await];
    // More requests than replies fit into the queues, so that the server has not read the end of input when it stops
    // reading. All requests fit into the pipe, so that the client can write them even then.
    server.widen_stdin(1 << 20);
    for _ in 0..3000 {
        server.request("no/such", serde_json::Value::Null).await;
    }
    server.close_stdin();
    let status = server.wait_without_reading().await;
    assert!(running_groups(&groups).is_empty(), "of the groups {groups:?}");
    assert_eq!(status.code(), Some(0));
}
