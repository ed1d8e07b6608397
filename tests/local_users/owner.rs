//! What the owner may do without a token, and with `allow_local = "token"`.

use crate::http::{REQUESTS, send_request};
use crate::server::Server;
use crate::users::{OWNER, ROOT, as_user};

/// Settings with which every user needs the token.
pub(crate) const TOKEN_FOR_EVERYONE: &str = "[serve]\nallow_local = \"token\"\n";

#[test]
fn the_owner_needs_no_token_and_neither_does_root() {
    let Some(server) = Server::start("") else { return };
    for user in [OWNER, ROOT] {
        let response = as_user(user, || send_request(server.http, "GET /api/supr/token", "", ""));
        assert!(response.status == 200 && response.body.contains(&server.token()), "{response:?}");
        let response = as_user(user, || send_request(server.http, "GET /api/sessions", "", ""));
        assert_eq!(response.status, 200, "{response:?}");
    }
    let evaluated = server.parlor(OWNER, &["supex", "eval", "6 * 7"]);
    assert_eq!(String::from_utf8_lossy(&evaluated.stdout), "42\n", "{evaluated:?}");
}

#[test]
fn with_allow_local_token_the_owner_needs_the_token_too() {
    let Some(server) = Server::start(TOKEN_FOR_EVERYONE) else { return };
    for user in [OWNER, ROOT] {
        for line in REQUESTS {
            let response = as_user(user, || send_request(server.http, line, "", ""));
            assert_eq!(response.status, 401, "{line}: {response:?}");
        }
    }
    let bearer = format!("Authorization: Bearer {}\r\n", server.token());
    let response = as_user(OWNER, || send_request(server.http, "GET /api/sessions", &bearer, ""));
    assert_eq!(response.status, 200, "{response:?}");
}

#[test]
fn commands_of_the_owner_read_the_token_from_the_state_folder() {
    let Some(server) = Server::start(TOKEN_FOR_EVERYONE) else { return };
    let evaluated = server.parlor(OWNER, &["supex", "eval", "6 * 7"]);
    assert_eq!(String::from_utf8_lossy(&evaluated.stdout), "42\n", "{evaluated:?}");
}
