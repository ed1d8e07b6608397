//! `parlor serve` behind real proxies, nginx and Caddy, with exactly the settings and blocks of `docs/proxy.md`.
#![expect(clippy::disallowed_methods, reason = "these tests start programs as a shell would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod programs;

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use parlor_testkit::STEP_TIMEOUT;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use self::programs::{CADDY, NAME, NGINX, Parlor, Proxy, ProxyKind, TOKEN};

/// How the page begins, also if parlor was built without it.
const PAGE_BEGIN: &str = "<!doctype html>";

/// A browser, as far as these tests need one. It trusts every certificate.
struct Browser {
    client: Client,
    origin: String,
    cookie: Option<String>,
}

impl Browser {
    fn new(proxy: &Proxy) -> Self {
        let client = Client::builder()
            .no_proxy()
            .resolve(NAME, proxy.address)
            .danger_accept_invalid_certs(true)
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(60))
            .build()
            .unwrap();
        Self { client, origin: format!("https://{NAME}:{}", proxy.address.port()), cookie: None }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.origin));
        if let Some(cookie) = &self.cookie {
            request = request.header("Cookie", cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(body.to_owned()).send().await.unwrap()
    }

    async fn status(&self, path: &str, headers: &[(&str, &str)]) -> u16 {
        self.send("GET", path, headers, "").await.status().as_u16()
    }

    /// Keeps the cookie of an answer, and returns its attributes.
    fn keep_cookie(&mut self, answer: &Response) -> String {
        let given = answer.headers().get("set-cookie").expect("a cookie").to_str().unwrap();
        let (pair, attributes) = given.split_once("; ").unwrap();
        self.cookie = Some(pair.to_owned());
        attributes.to_owned()
    }

    /// Opens a socket as the page does, and returns it with the extensions that the server has agreed to.
    async fn open_socket(&self, origin: &str, extensions: &str) -> Result<(Socket, String), u16> {
        let mut headers = vec![
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("Origin", origin),
        ];
        let token = format!("token.{TOKEN}");
        headers.push(("Sec-WebSocket-Protocol", &token));
        if !extensions.is_empty() {
            headers.push(("Sec-WebSocket-Extensions", extensions));
        }
        let answer = self.send("GET", "/supr/ws?session_id=proxied", &headers, "").await;
        if answer.status() != 101 {
            return Err(answer.status().as_u16());
        }
        let agreed = answer.headers().get("sec-websocket-extensions");
        let agreed = agreed.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        let upgraded = answer.upgrade().await.unwrap();
        Ok((WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await, agreed))
    }
}

type Socket = WebSocketStream<reqwest::Upgraded>;

async fn frame(socket: &mut Socket) -> Value {
    let message = tokio::time::timeout(STEP_TIMEOUT, socket.next()).await.expect("a frame comes");
    serde_json::from_str(message.unwrap().unwrap().to_text().unwrap()).unwrap()
}

#[tokio::test]
async fn the_page_works_behind_nginx() {
    works_behind(NGINX).await;
}

#[tokio::test]
async fn the_page_works_behind_caddy() {
    works_behind(CADDY).await;
}

async fn works_behind(kind: ProxyKind) {
    let parlor = Parlor::start();
    let proxy = Proxy::start(kind, parlor.http);
    let mut browser = Browser::new(&proxy);
    let origin = browser.origin.clone();
    let page = browser.send("GET", "/", &[], "").await;
    assert!(page.status() == 200 && page.text().await.unwrap().contains(PAGE_BEGIN));
    // Without the token nobody gets in, whatever they claim.
    for claimed in [
        &[][..],
        &[("X-Forwarded-For", "127.0.0.1")],
        &[("X-Real-IP", "127.0.0.1")],
        &[("Origin", origin.as_str()), ("Sec-Fetch-Site", "same-origin")],
    ] {
        assert_eq!(browser.status("/api/pico/token", claimed).await, 401, "{claimed:?}");
    }
    // The page asks for the token, and the browser gets a cookie.
    let page = [("Origin", origin.as_str()), ("Sec-Fetch-Site", "same-origin")];
    let wrong = browser.send("POST", "/api/supr/claim", &page, r#"{"token":"guess"}"#).await;
    assert_eq!((wrong.status().as_u16(), wrong.headers().get("set-cookie")), (401, None));
    let body = json!({ "token": TOKEN }).to_string();
    let signed_in = browser.send("POST", "/api/supr/claim", &page, &body).await;
    assert_eq!(signed_in.status(), 200);
    let attributes = browser.keep_cookie(&signed_in);
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000; Secure");
    let answer: Value = serde_json::from_str(&signed_in.text().await.unwrap()).unwrap();
    assert_eq!(answer["ws_url"], format!("{}/supr/ws", origin.replace("https:", "wss:")));
    // The front end of SuprClaw asks for this first.
    assert_eq!(browser.status("/api/pico/token", &page).await, 200);
    let foreign = [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")];
    assert_eq!(browser.status("/api/pico/token", &foreign).await, 401);
    // A conversation.
    let (mut socket, agreed) = browser.open_socket(&origin, "").await.unwrap();
    assert_eq!(agreed, "");
    assert_eq!(frame(&mut socket).await["type"], "agent.list");
    let message = json!({ "type": "message.send", "payload": { "content": "/say through a proxy" } });
    socket.send(Message::text(message.to_string())).await.unwrap();
    let answer = loop {
        let frame = frame(&mut socket).await;
        if frame["event_type"] == "message.completed" {
            break frame;
        }
    };
    assert_eq!(answer["data"]["text"], "through a proxy");
    let (_, agreed) =
        browser.open_socket(&origin, "permessage-deflate; client_max_window_bits").await.unwrap();
    assert!(agreed.starts_with("permessage-deflate"), "{agreed}");
    // A name that is not listed is not this server.
    let other = browser.send("GET", "/", &[("Host", "evil.example"), ("X-Forwarded-Host", NAME)], "").await;
    assert!(!other.text().await.unwrap().contains(PAGE_BEGIN));
    // The form of front ends that have none.
    browser.cookie = None;
    assert_eq!(browser.status("/login", &[]).await, 200);
    let form = browser.send("POST", "/login", &page, &format!("token={TOKEN}")).await;
    assert_eq!((form.status().as_u16(), form.headers()["location"].to_str().unwrap()), (303, "/"));
    browser.keep_cookie(&form);
    assert_eq!(browser.status("/api/pico/token", &page).await, 200);
    // All browsers are signed out, from the command line.
    parlor.run(&["token", "--sign-out"]);
    assert_eq!(browser.status("/api/pico/token", &page).await, 401);
    // The log names the client of the proxy, and no secret.
    let log = parlor.stop();
    assert!(log.contains("refused") && !log.contains(TOKEN), "{log}");
}
