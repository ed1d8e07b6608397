//! `localhost` is two addresses, 127.0.0.1 and ::1. A user who listens at one of them on parlor's port would receive
//! requests that are meant for parlor, and the page there would have parlor's origin.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use crate::http::send_request;
use crate::server::{Installation, Server, wait_for};
use crate::supex::{doors, try_evaluate};
use crate::users::{OTHER_USER, OWNER, as_user};

/// Pairs of a loopback address and the other one.
const LOOPBACK_ADDRESSES: [(IpAddr, IpAddr); 2] = [
    (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)),
];

#[test]
fn another_user_cannot_listen_at_the_other_loopback_address() {
    for (ip, other) in LOOPBACK_ADDRESSES {
        let Some(server) = Server::listening(ip, "") else { return };
        for door in [server.http, server.bridge, server.repl] {
            assert_eq!(door.ip(), ip);
            let to = SocketAddr::new(other, door.port());
            let bound = as_user(OTHER_USER, || TcpListener::bind(to)).map_err(|error| error.kind());
            assert!(matches!(bound, Err(ErrorKind::AddrInUse)), "{to}: {bound:?}");
        }
    }
}

#[test]
fn the_other_loopback_address_is_served_the_same_way() {
    for (ip, other) in LOOPBACK_ADDRESSES {
        let Some(server) = Server::listening(ip, "") else { return };
        let http = SocketAddr::new(other, server.http.port());
        for host in [http.to_string(), format!("localhost:{}", http.port())] {
            let headers = format!("Origin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n");
            let status = |user| {
                as_user(user, || {
                    crate::http::send_request_to_host(http, &host, "GET /api/supr/token", &headers, "").status
                })
            };
            assert_eq!((status(OWNER), status(OTHER_USER)), (200, 401), "{host}");
        }
        for (method, door) in doors(&server) {
            let to = SocketAddr::new(other, door.port());
            let marker = server.marker(&format!("{}-{method}", to.is_ipv6()).replace('/', "-"));
            let answers = as_user(OTHER_USER, || try_evaluate(to, method, None, &marker));
            assert_eq!(answers[0]["error"]["code"], -32001, "{to}: {answers:?}");
            assert!(!marker.exists());
            let answers = as_user(OWNER, || try_evaluate(to, method, None, &marker));
            assert!(answers.len() == 2 && marker.exists(), "{to}: {answers:?}");
        }
        assert_eq!(as_user(OWNER, || send_request(server.http, "GET /health", "", "").status), 200);
    }
}

/// A socket of another user that listens at `ip`, on a port that is free at `other`.
fn listen_as_other_user(ip: IpAddr, other: IpAddr) -> TcpListener {
    wait_for("a port that is free at both addresses", || {
        let listener = as_user(OTHER_USER, || TcpListener::bind((ip, 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        TcpListener::bind((other, port)).is_ok().then_some(listener)
    })
}

/// Runs `parlor serve`, which must not start, and returns its stderr.
fn start_error(installation: &Installation, args: &[&str]) -> String {
    let mut child = installation.serve(args);
    let status = wait_for("the end of the server", || {
        let status = child.try_wait().unwrap();
        if status.is_none() && installation.home.join("serve.json").exists() {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the server starts although another user listens: {args:?}");
        }
        status
    });
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(!status.success(), "{stderr}");
    stderr
}

#[test]
fn a_server_does_not_start_if_another_user_listens_at_the_other_loopback_address() {
    let Some(installation) = Installation::new("") else { return };
    for (ip, other) in LOOPBACK_ADDRESSES {
        for flag in ["--listen", "--supex", "--supex-repl"] {
            let (taken, stderr) = wait_for("a port of which only one address is taken", || {
                let listener = listen_as_other_user(other, ip);
                let taken = listener.local_addr().unwrap();
                let wanted = SocketAddr::new(ip, taken.port()).to_string();
                let any_port = SocketAddr::new(ip, 0).to_string();
                let mut args = vec![flag, wanted.as_str()];
                for other in ["--listen", "--supex", "--supex-repl"] {
                    if other != flag {
                        args.extend([other, any_port.as_str()]);
                    }
                }
                let stderr = start_error(&installation, &args);
                // A client of another test may use the port by now.
                (!stderr.contains(&format!("{wanted} is in use"))).then_some((taken, stderr))
            });
            assert!(stderr.contains(&format!("{taken} is in use")), "{stderr}");
            assert!(stderr.contains(&format!("{flag} ADDR")), "{stderr}");
        }
    }
}
