//! A client that sends and closes at once leaves an orphaned socket, which the kernel reports as owned by root.
//!
//! The test of the supex doors suspends the server meanwhile, so that it always finds the orphaned socket and never the
//! open one.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use rustix::net::sockopt::set_socket_linger;

use crate::http::{request, send_request, touch};
use crate::server::{Server, wait_for};
use crate::supex::{doors, evaluate_at_once, try_evaluate};
use crate::users::{OTHER_USER, OWNER, as_user};

/// How a socket is closed.
#[derive(Clone, Copy, Debug)]
enum Closing {
    /// With FIN: the sent bytes still arrive.
    Orderly,
    /// With RST: the connection is gone at both ends.
    Reset,
}

/// Sends `bytes` as another user and closes the socket. Returns the port of the sender.
fn send_and_close(to: SocketAddr, bytes: &[u8], closing: Closing) -> u16 {
    as_user(OTHER_USER, || {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(bytes).unwrap();
        if matches!(closing, Closing::Reset) {
            set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
        }
        stream.local_addr().unwrap().port()
    })
}

/// Waits until the server has closed its end of the connection from the port `client`.
fn wait_until_closed(server: SocketAddr, client: u16) {
    let (server_end, client_end) = (format!(":{:04X}", server.port()), format!(":{client:04X}"));
    wait_for("the end of a connection", || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let is_open = table.lines().any(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let ends = [columns.next(), columns.next()];
            ends[0].is_some_and(|end| end.ends_with(&server_end))
                && ends[1].is_some_and(|end| end.ends_with(&client_end))
        });
        (!is_open).then_some(())
    });
}

/// Sends `bytes` and closes, in both ways. `after` makes the server do something for its owner, which it does after all
/// that it received before.
fn attack(server: &Server, to: SocketAddr, bytes: &[u8], after: impl Fn()) {
    for closing in [Closing::Orderly, Closing::Reset] {
        let port = server.while_suspended(|| send_and_close(to, bytes, closing));
        wait_until_closed(to, port);
        after();
    }
}

#[test]
fn a_request_whose_sender_has_closed_the_socket_is_refused() {
    let Some(server) = Server::start("") else { return };
    let (before, marker) = (server.token(), server.marker("orphan"));
    let run = request(server.http, "POST /api/processes", "", &touch(&marker));
    let rotate = request(server.http, "POST /api/supr/token", "", "");
    // A server that sees the end of the connection right after the request does not answer; a server that sees it a
    // little later does. With so many tries both happen.
    for closing in [Closing::Orderly, Closing::Reset].repeat(25) {
        for request in [&run, &rotate] {
            wait_until_closed(server.http, send_and_close(server.http, request.as_bytes(), closing));
        }
    }
    let listed = as_user(OWNER, || send_request(server.http, "GET /api/processes", "", ""));
    assert_eq!((listed.status, listed.body.trim()), (200, "[]"));
    let set_up = as_user(OWNER, || send_request(server.http, "POST /api/supr/setup", "", ""));
    assert!(set_up.body.contains(&before), "{set_up:?}");
    assert!(!marker.exists());
}

#[test]
fn code_whose_sender_has_closed_the_socket_is_not_evaluated() {
    let Some(server) = Server::start("") else { return };
    for (method, door) in doors(&server) {
        let [marker, ended] = ["orphan", "ended"].map(|name| server.marker(name));
        // One Ruby worker evaluates everything in order.
        attack(&server, door, &evaluate_at_once(method, &marker), || {
            let answers = as_user(OWNER, || try_evaluate(door, method, None, &ended));
            assert!(answers.len() == 2 && ended.exists(), "{answers:?}");
        });
        assert!(!marker.exists(), "{method}");
    }
}
