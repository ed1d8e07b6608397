//! The cookie of a browser. Browsers send it to every port of a host, so another user who runs a web server on the same
//! machine can read it.

use std::net::SocketAddr;

use crate::http::send_request;
use crate::machine_address::ServerAtMachineAddress;
use crate::owner::TOKEN_FOR_EVERYONE;
use crate::server::Server;
use crate::users::{OTHER_USER, OWNER, as_user};

/// Signs in with the token as `user`, and returns the `Cookie` header that a browser sends from then on.
fn sign_in(user: u32, to: SocketAddr, token: &str) -> String {
    let body = format!(r#"{{"token":"{token}"}}"#);
    let response = as_user(user, || send_request(to, "POST /api/supr/claim", "", &body));
    assert_eq!(response.status, 200, "{response:?}");
    let cookie = response.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict; Max-Age="), "{cookie}");
    format!("Cookie: {}\r\n", cookie.split(';').next().unwrap())
}

#[test]
fn a_cookie_of_the_owner_is_refused_from_another_user() {
    for settings in ["", TOKEN_FOR_EVERYONE] {
        let Some(server) = Server::start(settings) else { return };
        let (to, token) = (server.http, server.token());
        let status =
            |user, cookie: &str| as_user(user, || send_request(to, "GET /api/supr/token", cookie, "").status);
        let of_owner = sign_in(OWNER, to, &token);
        let of_other_user = sign_in(OTHER_USER, to, &token);
        assert_ne!(of_owner, of_other_user);
        assert_eq!((status(OWNER, &of_owner), status(OTHER_USER, &of_other_user)), (200, 200));
        assert_eq!(status(OTHER_USER, &of_owner), 401);
        assert!(server.parlor(OWNER, &["token", "--rotate"]).status.success());
        assert_eq!(status(OTHER_USER, &of_other_user), 401);
    }
}

#[test]
fn a_cookie_of_the_owner_is_refused_from_another_user_at_the_machines_own_address() {
    let Some(server) = ServerAtMachineAddress::start() else { return };
    let token = server.token();
    for address in server.addresses() {
        let of_owner = server.inside(|| sign_in(OWNER, address, &token));
        let status = |user| {
            server.inside(|| {
                as_user(user, || send_request(address, "GET /api/supr/token", &of_owner, "").status)
            })
        };
        assert_eq!((status(OWNER), status(OTHER_USER)), (200, 401), "{address}");
    }
}
