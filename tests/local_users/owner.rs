//! What the owner has without a token, and what `allow_local = "token"` takes away.

use crate::http::{REQUESTS, ask};
use crate::server::Server;
use crate::users::{OWNER, ROOT, as_user};

/// Everybody needs the token.
pub(crate) const TOKEN_FOR_ALL: &str = "[serve]\nallow_local = \"token\"\n";

#[test]
fn the_owner_needs_no_token_and_neither_does_root() {
    let Some(server) = Server::start("") else { return };
    for user in [OWNER, ROOT] {
        let answer = as_user(user, || ask(server.http, "GET /api/supr/token", "", ""));
        assert!(answer.status == 200 && answer.body.contains(&server.token()), "{answer:?}");
        let answer = as_user(user, || ask(server.http, "GET /api/sessions", "", ""));
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let evaluated = server.parlor(OWNER, &["supex", "eval", "6 * 7"]);
    assert_eq!(String::from_utf8_lossy(&evaluated.stdout), "42\n", "{evaluated:?}");
}

#[test]
fn where_the_settings_say_so_the_owner_needs_the_token_too() {
    let Some(server) = Server::start(TOKEN_FOR_ALL) else { return };
    for user in [OWNER, ROOT] {
        for line in REQUESTS {
            let answer = as_user(user, || ask(server.http, line, "", ""));
            assert_eq!(answer.status, 401, "{line}: {answer:?}");
        }
    }
    let bearer = format!("Authorization: Bearer {}\r\n", server.token());
    let answer = as_user(OWNER, || ask(server.http, "GET /api/sessions", &bearer, ""));
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn the_owners_commands_find_the_token_by_themselves() {
    let Some(server) = Server::start(TOKEN_FOR_ALL) else { return };
    let evaluated = server.parlor(OWNER, &["supex", "eval", "6 * 7"]);
    assert_eq!(String::from_utf8_lossy(&evaluated.stdout), "42\n", "{evaluated:?}");
}
