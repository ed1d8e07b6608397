//! Another user who opens as many connections as possible, without a token.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use parlor_transport::{MAX_CONNECTIONS, MAX_OTHER_USER_CONNECTIONS};
use parlor_web::{MAX_HTTP_CONNECTIONS, MAX_OTHER_USER_HTTP_CONNECTIONS};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::http::send_request;
use crate::server::Server;
use crate::supex::{doors, try_evaluate};
use crate::users::{OTHER_USER, OWNER, THIRD_USER, as_user};

/// How many connections more than the limit of a door the attacker opens.
const EXCESS: usize = 64;

/// Connections of `user`, each of which has sent `first`.
fn open_connections(user: u32, to: SocketAddr, count: usize, first: &[u8]) -> Vec<TcpStream> {
    // On some systems the soft limit is 1024 descriptors.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    as_user(user, || {
        let mut streams = Vec::new();
        for _ in 0..count {
            let mut stream = TcpStream::connect(to).unwrap();
            // The server may have closed the connection already.
            let _ = stream.write_all(first);
            streams.push(stream);
        }
        streams
    })
}

/// How many of the connections the server has not closed.
fn still_open(streams: &mut [TcpStream]) -> usize {
    let is_open = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    streams.iter_mut().filter_map(|stream| is_open(stream).then_some(())).count()
}

#[test]
fn half_requests_of_another_user_do_not_lock_out_the_owner() {
    let Some(server) = Server::start("") else { return };
    let half = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n";
    let mut streams = open_connections(OTHER_USER, server.http, MAX_HTTP_CONNECTIONS + EXCESS, half);
    let response = as_user(OWNER, || send_request(server.http, "GET /api/sessions", "", ""));
    assert_eq!(response.status, 200, "{response:?}");
    // The owner was served while those connections were open, not because they had timed out.
    let open = still_open(&mut streams);
    assert!((1..=MAX_OTHER_USER_HTTP_CONNECTIONS).contains(&open), "{open}");
}

#[test]
fn silent_connections_of_another_user_do_not_lock_out_the_owner_at_the_supex_doors() {
    let Some(server) = Server::start("") else { return };
    for (method, door) in doors(&server) {
        let mut streams = open_connections(OTHER_USER, door, MAX_CONNECTIONS + EXCESS, b"");
        let marker = server.marker(&method.replace('/', "-"));
        let answers = as_user(OWNER, || try_evaluate(door, method, None, &marker));
        assert!(answers.len() == 2 && marker.exists(), "{method}: {answers:?}");
        let open = still_open(&mut streams);
        assert!((1..=MAX_OTHER_USER_CONNECTIONS).contains(&open), "{method}: {open}");
    }
}

/// As a web page in the owner's browser can open them.
#[test]
fn silent_connections_of_the_owner_make_room_at_the_supex_doors() {
    let Some(server) = Server::start("") else { return };
    for (method, door) in doors(&server) {
        let _silent = open_connections(OWNER, door, MAX_CONNECTIONS + EXCESS, b"");
        let marker = server.marker(&format!("own-{}", method.replace('/', "-")));
        let answers = as_user(OWNER, || try_evaluate(door, method, None, &marker));
        assert!(answers.len() == 2 && marker.exists(), "{method}: {answers:?}");
    }
}

/// A proxy in front of the server may run as the third one.
#[test]
fn one_other_user_does_not_lock_out_the_next() {
    let Some(server) = Server::start("") else { return };
    let bearer = format!("Authorization: Bearer {}\r\n", server.token());
    for half in [
        "POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    ] {
        let _streams =
            open_connections(OTHER_USER, server.http, MAX_HTTP_CONNECTIONS + EXCESS, half.as_bytes());
        for user in [THIRD_USER, OTHER_USER] {
            let response = as_user(user, || send_request(server.http, "GET /api/sessions", &bearer, ""));
            assert_eq!(response.status, 200, "{user} {response:?}");
        }
    }
}

#[test]
fn a_repl_connection_without_hello_is_closed_for_another_user_but_not_for_the_owner() {
    let Some(server) = Server::start("") else { return };
    let connect = |user| as_user(user, || TcpStream::connect(server.repl).unwrap());
    let mut of_owner = connect(OWNER);
    let mut of_other_user = connect(OTHER_USER);
    // A line that is not hello does not extend the time.
    of_other_user.write_all(b"{\"method\":\"ping\",\"id\":1}\n").unwrap();
    of_other_user.set_read_timeout(Some(parlor_testkit::STEP_TIMEOUT)).unwrap();
    let mut replies = String::new();
    of_other_user.read_to_string(&mut replies).expect("the connection of the other user is closed");
    assert_eq!(still_open(std::slice::from_mut(&mut of_owner)), 1);
}
