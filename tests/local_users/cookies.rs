//! The cookie of a browser. Browsers send it to every port of a host, so another user who runs a web server there can
//! get hold of it.

use std::net::SocketAddr;

use crate::http::ask;
use crate::own_address::ServerAtOwnAddress;
use crate::owner::TOKEN_FOR_ALL;
use crate::server::Server;
use crate::users::{OWNER, STRANGER, as_user};

/// Shows the token as `user`, and gives the header that a browser sends from then on.
fn sign_in(user: u32, to: SocketAddr, token: &str) -> String {
    let body = format!(r#"{{"token":"{token}"}}"#);
    let answer = as_user(user, || ask(to, "POST /api/supr/claim", "", &body));
    assert_eq!(answer.status, 200, "{answer:?}");
    let given = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(given.contains("; HttpOnly; SameSite=Strict; Max-Age="), "{given}");
    format!("Cookie: {}\r\n", given.split(';').next().unwrap())
}

#[test]
fn a_cookie_is_worth_nothing_to_another_user() {
    for settings in ["", TOKEN_FOR_ALL] {
        let Some(server) = Server::start(settings) else { return };
        let (to, token) = (server.http, server.token());
        let status = |user, cookie: &str| as_user(user, || ask(to, "GET /api/supr/token", cookie, "").status);
        let of_owner = sign_in(OWNER, to, &token);
        let of_stranger = sign_in(STRANGER, to, &token);
        assert_ne!(of_owner, of_stranger);
        assert_eq!((status(OWNER, &of_owner), status(STRANGER, &of_stranger)), (200, 200));
        assert_eq!(status(STRANGER, &of_owner), 401);
        assert!(server.parlor(OWNER, &["token", "--rotate"]).status.success());
        assert_eq!(status(STRANGER, &of_stranger), 401);
    }
}

#[test]
fn a_cookie_is_worth_nothing_to_another_user_at_the_machines_own_address() {
    let Some(server) = ServerAtOwnAddress::start() else { return };
    let token = server.token();
    for address in server.addresses() {
        let of_owner = server.inside(|| sign_in(OWNER, address, &token));
        let status = |user| {
            server.inside(|| as_user(user, || ask(address, "GET /api/supr/token", &of_owner, "").status))
        };
        assert_eq!((status(OWNER), status(STRANGER)), (200, 401), "{address}");
    }
}
