//! Pages of other origins: those that the settings name may use the server like its own page, and no others.

use parlor_transport::AllowLocal;

use crate::client::{Answer, bearer};
use crate::server::{Server, TOKEN};

const APP: &str = "Origin: https://app.example\nSec-Fetch-Site: cross-site";

async fn open_to(origins: &[&str]) -> Server {
    let origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
    Server::with(|options| options.configured.allow_origins = origins).await
}

fn allowed_origin(answer: &Answer) -> Option<&str> {
    assert_eq!(
        answer.header("access-control-allow-origin").is_some(),
        answer.header("access-control-allow-credentials").is_some()
    );
    answer.header("access-control-allow-origin")
}

#[tokio::test]
async fn a_page_of_an_origin_in_the_settings_may_use_the_api() {
    let server = open_to(&["https://app.example"]).await;
    let answer = server.request(&format!("GET /api/pico/token\n{APP}")).await;
    assert_eq!((answer.status, allowed_origin(&answer)), (200, Some("https://app.example")));
    let answer = server.request(&format!("DELETE /api/sessions/c\n{APP}")).await;
    assert_eq!((answer.status, allowed_origin(&answer)), (204, Some("https://app.example")));
    assert_eq!(server.handshake("/supr/ws", &format!("{APP}\n{}", bearer())).await.status, 101);
    for foreign in ["Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site"] {
        let answer = server.request(&format!("GET /api/pico/token\n{foreign}")).await;
        assert_eq!((answer.status, allowed_origin(&answer)), (401, None), "{foreign}");
        // A cache must not give the answer for one origin to another.
        assert_eq!(answer.header("vary"), Some("origin"));
    }
    // The origin replaces neither the token nor the cookie of a client that needs one.
    let proxied = server.request(&format!("GET /api/pico/token\n{APP}\nX-Forwarded-For: 192.0.2.1")).await;
    assert_eq!((proxied.status, allowed_origin(&proxied)), (401, Some("https://app.example")));
}

#[tokio::test]
async fn the_cookie_counts_in_requests_of_an_origin_in_the_settings() {
    let server = Server::with(|options| {
        options.configured.allow_origins = vec!["https://app.example".to_owned()];
        options.settings.allow_local = AllowLocal::Token;
    })
    .await;
    let body = format!(r#"{{"token":"{TOKEN}"}}"#);
    let answer = server.request_with_body(&format!("POST /api/supr/claim\n{APP}"), &body).await;
    assert_eq!(allowed_origin(&answer), Some("https://app.example"));
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap();
    for (headers, status) in [(APP, 200), ("Origin: https://evil.example", 401)] {
        let answer = server.request(&format!("GET /api/sessions\nCookie: {cookie}\n{headers}")).await;
        assert_eq!(answer.status, status, "{headers}");
    }
}

#[tokio::test]
async fn a_browser_may_ask_before_it_sends_a_request_of_an_open_origin() {
    let server = open_to(&["https://app.example"]).await;
    let ask = "OPTIONS /api/sessions/c\nContent-Length: 0\nAccess-Control-Request-Method: PATCH";
    let answer = server.request(&format!("{ask}\n{APP}")).await;
    assert_eq!((answer.status, allowed_origin(&answer)), (204, Some("https://app.example")));
    assert!(answer.header("access-control-allow-methods").unwrap().contains("PATCH"));
    assert_eq!(
        answer.header("access-control-allow-headers"),
        Some("authorization, content-type, last-event-id")
    );
    let answer = server.request(&format!("{ask}\nOrigin: https://evil.example\n{}", bearer())).await;
    assert_eq!((answer.status, allowed_origin(&answer)), (404, None));
    let answer = server.request(&format!("{ask}\nOrigin: https://evil.example")).await;
    assert_eq!((answer.status, allowed_origin(&answer)), (401, None));
}

#[tokio::test]
async fn neither_every_origin_nor_one_that_was_set_up_is_open() {
    for server in [open_to(&["*"]).await, open_to(&[]).await] {
        let set_up = format!("POST /api/supr/setup\nContent-Length: 0\n{APP}\n{}", bearer());
        assert_eq!(server.request(&set_up).await.status, 200);
        assert_eq!(server.handshake("/supr/ws", &format!("{APP}\n{}", bearer())).await.status, 101);
        let answer = server.request(&format!("GET /api/pico/token\n{APP}")).await;
        assert_eq!((answer.status, allowed_origin(&answer)), (401, None));
        assert_eq!(answer.header("vary"), None);
    }
}
