//! Whoever sends and closes at once leaves a socket that belongs to nobody, and that the kernel reports as root's.
//!
//! Where a door serves what comes from such a socket, the server is stopped meanwhile, so that it finds the orphan and
//! never the living socket.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use rustix::net::sockopt::set_socket_linger;

use crate::http::{ask, request, touch};
use crate::server::{Server, await_that};
use crate::supex::{doors, evaluate_at_once, talk};
use crate::users::{OWNER, STRANGER, as_user};

/// How a socket is closed.
#[derive(Clone, Copy, Debug)]
enum Closing {
    /// As usual: what was sent still arrives.
    Orderly,
    /// With a reset, which takes the connection away at both ends.
    Reset,
}

/// Sends `bytes` as another user and closes. Returns the port that it came from.
fn send_and_close(to: SocketAddr, bytes: &[u8], closing: Closing) -> u16 {
    as_user(STRANGER, || {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(bytes).unwrap();
        if matches!(closing, Closing::Reset) {
            set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
        }
        stream.local_addr().unwrap().port()
    })
}

/// Waits until the server has closed its end of the connection from that port.
fn until_over(server: SocketAddr, client: u16) {
    let (ours, theirs) = (format!(":{:04X}", server.port()), format!(":{client:04X}"));
    await_that("the end of a connection", || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let is_open = table.lines().any(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let ends = [columns.next(), columns.next()];
            ends[0].is_some_and(|end| end.ends_with(&ours))
                && ends[1].is_some_and(|end| end.ends_with(&theirs))
        });
        (!is_open).then_some(())
    });
}

/// Attacks in both ways. `after` is something that the server does for its owner behind what it was sent before.
fn attack(server: &Server, to: SocketAddr, bytes: &[u8], after: impl Fn()) {
    for closing in [Closing::Orderly, Closing::Reset] {
        let port = server.while_stopped(|| send_and_close(to, bytes, closing));
        until_over(to, port);
        after();
    }
}

#[test]
fn a_request_whose_sender_is_gone_is_not_trusted() {
    let Some(server) = Server::start("") else { return };
    let (before, marker) = (server.token(), server.marker("orphan"));
    let run = request(server.http, "POST /api/processes", "", &touch(&marker));
    let rotate = request(server.http, "POST /api/supr/token", "", "");
    // A server that finds the end of the connection right behind a request does not answer it; one that finds it a
    // little later does. Among so many there are both.
    for closing in [Closing::Orderly, Closing::Reset].repeat(25) {
        for order in [&run, &rotate] {
            until_over(server.http, send_and_close(server.http, order.as_bytes(), closing));
        }
    }
    let listed = as_user(OWNER, || ask(server.http, "GET /api/processes", "", ""));
    assert_eq!((listed.status, listed.body.trim()), (200, "[]"));
    let set_up = as_user(OWNER, || ask(server.http, "POST /api/supr/setup", "", ""));
    assert!(set_up.body.contains(&before), "{set_up:?}");
    assert!(!marker.exists());
}

#[test]
fn code_whose_sender_is_gone_is_not_evaluated() {
    let Some(server) = Server::start("") else { return };
    for (method, door) in doors(&server) {
        let [marker, ended] = ["orphan", "ended"].map(|name| server.marker(name));
        // One Ruby evaluates everything in its order.
        attack(&server, door, &evaluate_at_once(method, &marker), || {
            let answers = as_user(OWNER, || talk(door, method, None, &ended));
            assert!(answers.len() == 2 && ended.exists(), "{answers:?}");
        });
        assert!(!marker.exists(), "{method}");
    }
}
