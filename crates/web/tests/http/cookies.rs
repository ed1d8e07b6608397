//! The cookie of a browser: who gets it, what it allows, and when it is invalid.

use parlor_transport::AllowLocal;
use parlor_web::TokenConfig;

use crate::client::Answer;
use crate::server::{Server, TOKEN};

/// A server that requires the token from all users of this machine.
async fn strict() -> Server {
    Server::with(|options| {
        options.settings.allow_local = AllowLocal::Token;
        options.configured = TokenConfig::default();
    })
    .await
}

fn token_of(server: &Server) -> String {
    server.tokens.now().token.reveal().to_owned()
}

/// The `Cookie` header that a browser sends after this response.
fn cookie(answer: &Answer) -> String {
    let given = answer.header("set-cookie").expect("the response sets a cookie");
    let (pair, attributes) = given.split_once("; ").expect("the cookie has attributes");
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000");
    format!("Cookie: other=1; {pair}")
}

async fn signed_in(server: &Server) -> String {
    let body = format!(r#"{{"token":"{}"}}"#, token_of(server));
    cookie(&server.request_with_body("POST /api/supr/claim", &body).await)
}

#[tokio::test]
async fn with_allow_local_token_this_machine_needs_the_token_too() {
    let server = strict().await;
    for request in [
        "GET /api/supr/token",
        "GET /api/sessions",
        "POST /api/supr/token\nContent-Length: 0",
        "GET /metrics",
    ] {
        assert_eq!(server.request(request).await.status, 401, "{request}");
    }
    // The page itself needs no token: it asks its user for one.
    assert_eq!(server.request("GET /").await.status, 200);
    let bearer = format!("Authorization: Bearer {}", token_of(&server));
    assert_eq!(server.request(&format!("GET /api/sessions\n{bearer}")).await.status, 200);
}

#[tokio::test]
async fn the_token_and_the_one_time_link_give_a_browser_a_cookie() {
    let server = strict().await;
    let by_token = signed_in(&server).await;
    let body = format!(r#"{{"code":"{}"}}"#, server.one_time_link.code());
    let answer = server.request_with_body("POST /api/supr/claim", &body).await;
    assert_eq!(cookie(&answer), by_token);
    assert_eq!(answer.json()["token"], token_of(&server));
    assert!(!by_token.contains(&token_of(&server)), "the cookie is not the token");
    for request in ["GET /api/supr/token", "GET /api/sessions", "GET /metrics"] {
        assert_eq!(server.request(&format!("{request}\n{by_token}")).await.status, 200, "{request}");
    }
    let own = format!("Origin: http://{}\nSec-Fetch-Site: same-origin", server.address);
    assert_eq!(server.request(&format!("DELETE /api/sessions/c\n{own}\n{by_token}")).await.status, 204);
}

#[tokio::test]
async fn a_client_without_the_token_gets_no_cookie() {
    let server = Server::start().await;
    for body in [r#"{"token":"guess"}"#, r#"{"token":""}"#, &format!(r#"{{"token":"{TOKEN}x"}}"#)] {
        let answer = server.request_with_body("POST /api/supr/claim", body).await;
        assert_eq!((answer.status, answer.header("set-cookie")), (401, None), "{body}");
        assert!(answer.body.contains("parlor token"), "{}", answer.body);
    }
    let answer = server.request_with_body("POST /api/supr/claim", r#"{"code":"guess"}"#).await;
    assert_eq!((answer.status, answer.header("set-cookie")), (403, None));
}

#[tokio::test]
async fn a_cookie_is_invalid_in_requests_of_other_sites() {
    let server = strict().await;
    let cookie = signed_in(&server).await;
    for foreign in [
        "Origin: http://evil.example",
        "Origin: http://localhost:3000",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        for request in ["GET /api/supr/token", "POST /api/supr/token\nContent-Length: 0"] {
            let answer = server.request(&format!("{request}\n{foreign}\n{cookie}")).await;
            assert_eq!(answer.status, 401, "{foreign} {request}");
        }
    }
}

#[tokio::test]
async fn a_new_token_invalidates_every_cookie() {
    let server = strict().await;
    let cookie = signed_in(&server).await;
    let rotated = server.request(&format!("POST /api/supr/token\nContent-Length: 0\n{cookie}")).await;
    assert_eq!(rotated.status, 200);
    assert_eq!(server.request(&format!("GET /api/supr/token\n{cookie}")).await.status, 401);
    let again = signed_in(&server).await;
    assert_eq!(server.request(&format!("GET /api/supr/token\n{again}")).await.status, 200);
}

#[tokio::test]
async fn a_cookie_opens_no_socket_and_is_no_token() {
    let server = strict().await;
    let cookie = signed_in(&server).await;
    server.handshake("/supr/ws", &cookie).await.assert_text(401, "unauthorized");
    let value = cookie.rsplit('=').next().unwrap();
    let bearer = format!("GET /api/supr/token\nAuthorization: Bearer {value}");
    assert_eq!(server.request(&bearer).await.status, 401);
    // A cookie with the name of another port is invalid too.
    let renamed = cookie.replace("parlor-", "parlor-1");
    assert_eq!(server.request(&format!("GET /api/supr/token\n{renamed}")).await.status, 401);
}
