//! `localhost` is two addresses. Whoever listens at one of them on a port of ours is sent what was meant for us, and
//! its page is of our origin.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use crate::http::ask;
use crate::server::{Place, Server, await_that};
use crate::supex::{doors, talk};
use crate::users::{OWNER, STRANGER, as_user};

/// Both loopback addresses, each with the other one.
const EACH: [(IpAddr, IpAddr); 2] = [
    (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)),
];

#[test]
fn nobody_else_can_listen_at_the_other_loopback_address() {
    for (ip, other) in EACH {
        let Some(server) = Server::listening(ip, "") else { return };
        for door in [server.http, server.bridge, server.repl] {
            assert_eq!(door.ip(), ip);
            let to = SocketAddr::new(other, door.port());
            let squatted = as_user(STRANGER, || TcpListener::bind(to)).map_err(|error| error.kind());
            assert!(matches!(squatted, Err(ErrorKind::AddrInUse)), "{to}: {squatted:?}");
        }
    }
}

#[test]
fn the_other_loopback_address_is_served_alike() {
    for (ip, other) in EACH {
        let Some(server) = Server::listening(ip, "") else { return };
        let http = SocketAddr::new(other, server.http.port());
        for host in [http.to_string(), format!("localhost:{}", http.port())] {
            let headers = format!("Origin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n");
            let status = |user| {
                as_user(user, || {
                    crate::http::ask_host(http, &host, "GET /api/supr/token", &headers, "").status
                })
            };
            assert_eq!((status(OWNER), status(STRANGER)), (200, 401), "{host}");
        }
        for (method, door) in doors(&server) {
            let to = SocketAddr::new(other, door.port());
            let marker = server.marker(&format!("{}-{method}", to.is_ipv6()).replace('/', "-"));
            let answers = as_user(STRANGER, || talk(to, method, None, &marker));
            assert_eq!(answers[0]["error"]["code"], -32001, "{to}: {answers:?}");
            assert!(!marker.exists());
            let answers = as_user(OWNER, || talk(to, method, None, &marker));
            assert!(answers.len() == 2 && marker.exists(), "{to}: {answers:?}");
        }
        assert_eq!(as_user(OWNER, || ask(server.http, "GET /health", "", "").status), 200);
    }
}

/// A socket of another user that listens at `ip`, on a port that is free at `other`.
fn squat(ip: IpAddr, other: IpAddr) -> TcpListener {
    await_that("a port that is free at both addresses", || {
        let squatter = as_user(STRANGER, || TcpListener::bind((ip, 0)).unwrap());
        let port = squatter.local_addr().unwrap().port();
        TcpListener::bind((other, port)).is_ok().then_some(squatter)
    })
}

/// What `parlor serve` says before it ends. It is an error if it serves.
fn refusal(place: &Place, args: &[&str]) -> String {
    let mut child = place.serve(args);
    let status = await_that("the end of the server", || {
        let status = child.try_wait().unwrap();
        if status.is_none() && place.home.join("serve.json").exists() {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it serves beside another user: {args:?}");
        }
        status
    });
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!status.success(), "{said}");
    said
}

#[test]
fn a_server_does_not_start_beside_another_user_who_listens_at_the_other_loopback_address() {
    let Some(place) = Place::new("") else { return };
    for (ip, other) in EACH {
        for flag in ["--listen", "--supex", "--supex-repl"] {
            let (taken, said) = await_that("a port of which only one address is taken", || {
                let squatter = squat(other, ip);
                let taken = squatter.local_addr().unwrap();
                let wanted = SocketAddr::new(ip, taken.port()).to_string();
                let anywhere = SocketAddr::new(ip, 0).to_string();
                let mut args = vec![flag, wanted.as_str()];
                for other in ["--listen", "--supex", "--supex-repl"] {
                    if other != flag {
                        args.extend([other, anywhere.as_str()]);
                    }
                }
                let said = refusal(&place, &args);
                // A client of another test may have got the port in the meantime.
                (!said.contains(&format!("{wanted} is in use"))).then_some((taken, said))
            });
            assert!(said.contains(&format!("{taken} is in use")), "{said}");
            assert!(said.contains(&format!("{flag} ADDR")), "{said}");
        }
    }
}
