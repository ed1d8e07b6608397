//! Clients behind a proxy that the settings trust, and behind one that they do not.

use parlor_transport::{AllowLocal, Rate};
use parlor_web::ProxyNetwork;

use crate::client::{Answer, bearer};
use crate::server::{Options, Server, TOKEN};

/// The headers of a proxy that speaks https for `chat.example` and replaces `Host`, as nginx does by itself.
const HTTPS: &str = "Host: 127.0.0.1:1\nX-Forwarded-Host: chat.example\nX-Forwarded-Proto: https\nX-Forwarded-For: 203.0.113.9";

fn trust_this_machine(options: &mut Options) {
    options.settings.trusted_proxies = vec![ProxyNetwork::parse("127.0.0.1").expect("an address")];
    options.settings.allow_hosts = vec!["chat.example".to_owned()];
}

async fn claim(server: &Server, headers: &str) -> Answer {
    let body = format!(r#"{{"token":"{TOKEN}"}}"#);
    // This helper adds a `Host` of its own.
    let headers = headers.replace("Host: 127.0.0.1:1\n", "");
    server.request_with_body(&format!("POST /api/supr/claim\n{headers}"), &body).await
}

fn cookie(answer: &Answer) -> String {
    let given = answer.header("set-cookie").expect("the response sets a cookie");
    format!("Cookie: {}", given.split("; ").next().expect("a name and a value"))
}

#[tokio::test]
async fn a_client_of_a_trusted_proxy_signs_in_once_and_may_change_its_address() {
    let server = Server::with(trust_this_machine).await;
    let refused = server.request(&format!("GET /api/sessions\n{HTTPS}")).await;
    assert_eq!(refused.status, 401);
    assert!(refused.body.contains("parlor token") && refused.body.contains("/login"), "{}", refused.body);
    let answer = claim(&server, HTTPS).await;
    assert_eq!(answer.json()["ws_url"], "wss://chat.example:443/supr/ws");
    let given = answer.header("set-cookie").unwrap();
    assert!(given.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000; Secure"), "{given}");
    let (cookie, elsewhere) = (cookie(&answer), HTTPS.replace("203.0.113.9", "198.51.100.7"));
    for headers in [HTTPS, elsewhere.as_str()] {
        let page = format!("{headers}\nOrigin: https://chat.example\nSec-Fetch-Site: same-origin\n{cookie}");
        assert_eq!(server.request(&format!("GET /api/supr/token\n{page}")).await.status, 200, "{headers}");
        let foreign = page.replace("Origin: https://chat.example", "Origin: https://evil.example");
        assert_eq!(server.request(&format!("GET /api/supr/token\n{foreign}")).await.status, 401, "{headers}");
    }
}

#[tokio::test]
async fn without_tls_a_cookie_belongs_to_the_address_of_the_client() {
    let server = Server::with(trust_this_machine).await;
    let http = HTTPS.replace("https", "http");
    let cookie = cookie(&claim(&server, &http).await);
    let sessions = |headers: &str| format!("GET /api/sessions\n{headers}\n{cookie}");
    assert_eq!(server.request(&sessions(&http)).await.status, 200);
    // The client may write what it likes in front of the address that the proxy has appended.
    for before in ["198.51.100.7, 203.0.113.9", "127.0.0.1, 203.0.113.9"] {
        assert_eq!(server.request(&sessions(&http.replace("203.0.113.9", before))).await.status, 200);
    }
    for other in ["198.51.100.7", "203.0.113.9, 198.51.100.7", "127.0.0.1", "unknown"] {
        let answer = server.request(&sessions(&http.replace("203.0.113.9", other))).await;
        assert_eq!(answer.status, 401, "{other}");
    }
    assert_eq!(server.request(&sessions(HTTPS)).await.status, 401);
}

#[tokio::test]
async fn no_client_of_a_proxy_is_the_user_of_this_machine() {
    let server = Server::with(trust_this_machine).await;
    for from in ["127.0.0.1", "::1", "203.0.113.9, 127.0.0.1", "unknown", ""] {
        let headers = format!("X-Forwarded-Proto: https\nX-Forwarded-For: {from}");
        assert_eq!(server.request(&format!("GET /api/sessions\n{headers}")).await.status, 401, "{from}");
    }
    // The user's own programs need no token, although they have the address of the trusted proxy.
    assert_eq!(server.request("GET /api/sessions").await.status, 200);
}

#[tokio::test]
async fn the_headers_of_another_proxy_are_not_believed() {
    let server = Server::with(|options| {
        trust_this_machine(options);
        options.settings.trusted_proxies = vec![ProxyNetwork::parse("192.0.2.0/24").unwrap()];
        options.settings.allow_local = AllowLocal::Token;
    })
    .await;
    // The cookie belongs to the user of the proxy, as for every client on this machine.
    let answer = claim(&server, HTTPS).await;
    let sessions = format!("GET /api/sessions\n{}", cookie(&answer));
    assert_eq!(server.request(&sessions).await.status, 200);
    // `X-Forwarded-Host` does not replace `Host`.
    let evil = format!("GET /healthz\n{HTTPS}").replace("chat.example", "evil.example");
    assert_eq!(server.request(&evil).await.status, 200);
    let https = Server::with(|options| {
        trust_this_machine(options);
        options.settings.allow_local = AllowLocal::Token;
    })
    .await;
    let given = cookie(&claim(&https, HTTPS).await)
        .replace(&format!("parlor-{}", https.address.port()), &format!("parlor-{}", server.address.port()));
    for headers in ["", HTTPS] {
        let answer = server.request(&format!("GET /api/sessions\n{given}\n{headers}")).await;
        assert_eq!(answer.status, 401, "a cookie for every address works only through a trusted proxy");
    }
}

#[tokio::test]
async fn the_host_that_a_trusted_proxy_names_must_be_listed() {
    let server = Server::with(trust_this_machine).await;
    assert_eq!(server.request(&format!("GET /\n{HTTPS}")).await.status, 200);
    let answer = server.request(&format!("GET /\n{HTTPS}").replace("chat.example", "evil.example")).await;
    assert_eq!(answer.status, 403);
    assert!(answer.body.contains("evil.example") && answer.body.contains("allow_hosts"), "{}", answer.body);
    let page = format!("{HTTPS}\n{}\nOrigin: https://chat.example", bearer());
    assert_eq!(server.handshake("/supr/ws", &page).await.status, 101);
}

#[tokio::test]
async fn clients_of_a_trusted_proxy_have_a_request_rate_each() {
    let server = Server::with(|options| {
        trust_this_machine(options);
        options.settings.limits.requests = Rate { per_second: 0.001, burst: 3.0 };
        options.settings.limits.handshakes = Rate { per_second: 0.001, burst: 1.0 };
    })
    .await;
    let elsewhere = HTTPS.replace("203.0.113.9", "198.51.100.7");
    for headers in [HTTPS, elsewhere.as_str()] {
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(server.request(&format!("GET /healthz\n{headers}")).await.status);
        }
        assert_eq!(statuses, [200, 200, 200, 429], "{headers}");
        let handshake = format!("{headers}\n{}", bearer());
        assert_eq!(server.handshake("/supr/ws", &handshake).await.status, 101);
        assert_eq!(server.handshake("/supr/ws", &handshake).await.status, 429);
    }
    // The owner of the machine is not held up by them.
    assert_eq!(server.request("GET /healthz").await.status, 200);
}

#[tokio::test]
async fn the_login_form_gives_a_cookie_for_the_token() {
    let server = Server::with(trust_this_machine).await;
    let headers = HTTPS.replace("Host: 127.0.0.1:1\n", "");
    let form = server.request(&format!("GET /login\n{HTTPS}")).await;
    assert!(form.status == 200 && form.body.contains(r#"<form method="post" action="/login">"#), "{form:?}");
    let policy = form.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("form-action 'self'"), "{policy}");
    for wrong in ["token=", "", "token=guess", "other=1", "token=%ff", &format!("token={TOKEN}x")] {
        let answer = server.request_with_body(&format!("POST /login\n{headers}"), wrong).await;
        assert_eq!((answer.status, answer.header("set-cookie")), (401, None), "{wrong}");
        assert!(answer.body.contains("not the token") && !answer.body.contains("guess"), "{}", answer.body);
    }
    let answer =
        server.request_with_body(&format!("POST /login\n{headers}"), &format!("token={TOKEN}+")).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
    let with_cookie = format!("GET /api/pico/token\n{HTTPS}\n{}", cookie(&answer));
    assert_eq!(server.request(&with_cookie).await.json()["token"], TOKEN);
}

#[tokio::test]
async fn browsers_can_be_signed_out_without_a_new_token() {
    let server = Server::with(trust_this_machine).await;
    let cookie = cookie(&claim(&server, HTTPS).await);
    let headers = format!("{}\n{cookie}", HTTPS.replace("Host: 127.0.0.1:1\n", ""));
    let sessions = format!("GET /api/sessions\n{HTTPS}\n{cookie}");
    let foreign = format!("POST /api/supr/logout\n{headers}\nOrigin: https://evil.example");
    assert_eq!(server.request_with_body(&foreign, r#"{"all":true}"#).await.status, 401);
    let invalid = server.request_with_body(&format!("POST /api/supr/logout\n{headers}"), "[").await;
    assert!(invalid.status == 400 && invalid.body.contains("all"), "{invalid:?}");
    // One browser forgets its cookie.
    let one = server.request_with_body(&format!("POST /api/supr/logout\n{headers}"), "").await;
    assert_eq!(one.status, 204);
    assert!(
        one.header("set-cookie").unwrap().contains("=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0; Secure")
    );
    assert_eq!(server.request(&sessions).await.status, 200, "the cookies of other browsers stay valid");
    let all = server.request_with_body(&format!("POST /api/supr/logout\n{headers}"), r#"{"all":true}"#).await;
    assert_eq!(all.status, 204);
    assert_eq!(server.request(&sessions).await.status, 401);
    assert_eq!(server.request(&format!("GET /api/sessions\n{HTTPS}\n{}", bearer())).await.status, 200);
    let again = self::cookie(&claim(&server, HTTPS).await);
    assert_eq!(server.request(&format!("GET /api/sessions\n{HTTPS}\n{again}")).await.status, 200);
}

/// A page whose name was made to resolve to this machine can write the headers of a proxy, but not `Host`.
#[tokio::test]
async fn the_name_of_the_request_itself_is_checked_too() {
    let server = Server::with(trust_this_machine).await;
    assert_eq!(server.request(&format!("GET /login\n{HTTPS}")).await.status, 200);
    let rebound = format!("GET /login\n{HTTPS}").replace("127.0.0.1:1", "evil.example");
    assert_eq!(server.request(&rebound).await.status, 403);
}
