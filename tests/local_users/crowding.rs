//! Another user who takes all the places that there are, without a token.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use parlor_transport::{MAX_CONNECTIONS, MAX_OTHER_USER_CONNECTIONS};
use parlor_web::{MAX_HTTP_CONNECTIONS, MAX_OTHER_USER_HTTP_CONNECTIONS};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::http::ask;
use crate::server::Server;
use crate::supex::{doors, talk};
use crate::users::{OWNER, STRANGER, as_user};

/// More connections than a door has places for.
const BEYOND: usize = 64;

/// Connections of another user, each of which has said `first`.
fn crowd(to: SocketAddr, count: usize, first: &[u8]) -> Vec<TcpStream> {
    // Some systems give out 1024 descriptors unless they are asked.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    as_user(STRANGER, || {
        let mut streams = Vec::new();
        for _ in 0..count {
            let mut stream = TcpStream::connect(to).unwrap();
            // Who is turned away may be gone already.
            let _ = stream.write_all(first);
            streams.push(stream);
        }
        streams
    })
}

/// How many of them the server still has.
fn still_open(streams: &mut [TcpStream]) -> usize {
    let is_open = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    streams.iter_mut().filter_map(|stream| is_open(stream).then_some(())).count()
}

#[test]
fn half_requests_of_another_user_keep_nobody_else_out() {
    let Some(server) = Server::start("") else { return };
    let half = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n";
    let mut streams = crowd(server.http, MAX_HTTP_CONNECTIONS + BEYOND, half);
    let answer = as_user(OWNER, || ask(server.http, "GET /api/sessions", "", ""));
    assert_eq!(answer.status, 200, "{answer:?}");
    // It was answered while they were there, and not because their time was up.
    let open = still_open(&mut streams);
    assert!((1..=MAX_OTHER_USER_HTTP_CONNECTIONS).contains(&open), "{open}");
}

#[test]
fn silent_connections_of_another_user_leave_places_at_both_supex_doors() {
    let Some(server) = Server::start("") else { return };
    for (method, door) in doors(&server) {
        let mut streams = crowd(door, MAX_CONNECTIONS + BEYOND, b"");
        let marker = server.marker(&method.replace('/', "-"));
        let answers = as_user(OWNER, || talk(door, method, None, &marker));
        assert!(answers.len() == 2 && marker.exists(), "{method}: {answers:?}");
        let open = still_open(&mut streams);
        assert!((1..=MAX_OTHER_USER_CONNECTIONS).contains(&open), "{method}: {open}");
    }
}

#[test]
fn a_console_of_another_user_that_never_says_hello_is_closed_and_one_of_the_owner_is_not() {
    let Some(server) = Server::start("") else { return };
    let connect = |user| as_user(user, || TcpStream::connect(server.repl).unwrap());
    let mut owners = connect(OWNER);
    let mut strangers = connect(STRANGER);
    // A line that is no hello does not make it last longer.
    strangers.write_all(b"{\"method\":\"ping\",\"id\":1}\n").unwrap();
    strangers.set_read_timeout(Some(parlor_testkit::STEP_TIMEOUT)).unwrap();
    let mut said = String::new();
    strangers.read_to_string(&mut said).expect("the console of another user is closed");
    assert_eq!(still_open(std::slice::from_mut(&mut owners)), 1);
}
