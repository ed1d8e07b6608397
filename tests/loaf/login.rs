//! Logins through the door: the order of their events, and that they block no other request.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{Home, Server, text};
use crate::token_issuer::{TokenIssuer, token};

/// Reads up to the response to a request, and returns the events before it and the response.
async fn until_response(server: &mut Server, id: u64) -> (Vec<Value>, Value) {
    let mut events = Vec::new();
    loop {
        let line = server.line().await;
        if line["id"] == json!(id) {
            return (events, line);
        }
        events.push(line["params"].clone());
    }
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// The value of a query parameter of a URL.
fn parameter(url: &str, name: &str) -> String {
    let url = url::Url::parse(url).unwrap();
    url.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned()).unwrap()
}

/// Requests the callback URL, as a browser does after a login, and returns the response.
async fn request_callback(redirect: &str, query: &str) -> String {
    let url = url::Url::parse(redirect).unwrap();
    let address = (url.host_str().unwrap(), url.port().unwrap());
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET {}?{query} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
        url.path(),
        url.authority()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response).await;
    response
}

fn account() -> Value {
    token(&json!({"sub": "acc_1", "email": "a@example.org", "name": "A"}))
}

#[tokio::test]
async fn a_device_login_sends_its_events_in_order_and_blocks_no_other_request() {
    let issuer = TokenIssuer::start(|form, earlier_requests| {
        assert!(form.contains("device_code=dc"), "{form}");
        if earlier_requests < 1 { (400, json!({"error": "authorization_pending"})) } else { (200, account()) }
    })
    .await;
    let home = Home::with(&issuer.settings());
    let mut server = home.server().await;
    let login = server.send_request("auth.connect.openai", json!({"mode": "device_code"})).await;
    assert_eq!(server.call("system.ping", Value::Null).await["ok"], true);
    let (events, answer) = until_response(&mut server, login).await;
    let order = [
        "auth.flow.started",
        "auth.flow.url",
        "auth.flow.device_code",
        "auth.flow.completed",
        "state.changed",
    ];
    assert_eq!(types(&events), order);
    let expected = json!({"provider": "openai", "login_method": "device_code", "account_id": "acc_1"});
    assert_eq!((&answer["result"], &events[3]["payload"]), (&expected, &expected));
    assert_eq!(events[2]["payload"]["user_code"], "ABCD-EFGH");
    assert_eq!(events[1]["payload"]["url"], events[2]["payload"]["verification_url"]);
    let changed = &events[4]["payload"];
    assert_eq!(
        (&changed["reason"], &changed["snapshot"]["auth"]["hasOpenAiToken"]),
        (&json!("auth_openai_connected"), &json!(true))
    );
    // With a login the server tries to fetch the limits, which this issuer does not have.
    assert_eq!(server.call("limits.get", json!({})).await["openai"]["ok"], false);
    let out = server.call("auth.logout", json!({"provider": "openai"})).await;
    assert_eq!(out["logged_out"], true);
    assert_eq!(server.call("auth.status", json!({})).await["has_openai_token"], false);
}

#[tokio::test]
async fn a_browser_login_completes_with_the_callback() {
    let issuer = TokenIssuer::start(|form, _| {
        assert!(form.contains("code=abc") && form.contains("code_verifier="), "{form}");
        (200, account())
    })
    .await;
    let home = Home::with(&issuer.settings());
    let mut server = home.server().await;
    let params = json!({"mode": "anything else", "originator": "us"});
    let login = server.send_request("auth.connect.openai", params).await;
    let url = text(&server.event("auth.flow.url").await["url"]);
    assert_eq!(
        (parameter(&url, "originator"), parameter(&url, "code_challenge_method")),
        ("us".to_owned(), "S256".to_owned())
    );
    request_callback(
        &parameter(&url, "redirect_uri"),
        &format!("code=abc&state={}", parameter(&url, "state")),
    )
    .await;
    let (events, answer) = until_response(&mut server, login).await;
    assert_eq!(types(&events), ["auth.flow.completed", "state.changed"]);
    assert_eq!(answer["result"]["login_method"], "browser");

    let login = server.send_request("auth.connect.antigravity", json!([1])).await;
    let url = text(&server.event("auth.flow.url").await["url"]);
    request_callback(
        &parameter(&url, "redirect_uri"),
        &format!("code=abc&state={}", parameter(&url, "state")),
    )
    .await;
    let (_, answer) = until_response(&mut server, login).await;
    let expected = json!({"provider": "antigravity", "profile": {"email": "a@example.org", "name": "A"}});
    assert_eq!(answer["result"], expected);
    let status = server.call("auth.status", json!({})).await;
    assert_eq!(status["enabled_providers"], json!(["openai", "antigravity"]));
    server.close_stdin();
    let (lines, _) = server.wait_for_exit().await;
    assert!(lines.iter().all(|line| !line.to_string().contains("s3cret")));
}

#[tokio::test]
async fn a_callback_with_a_wrong_state_fails_the_login() {
    let issuer = TokenIssuer::start(|_, _| (200, account())).await;
    let home = Home::with(&issuer.settings());
    let mut server = home.server().await;
    let login = server.send_request("auth.connect.openai", json!({"mode": "browser"})).await;
    let url = text(&server.event("auth.flow.url").await["url"]);
    let response = request_callback(&parameter(&url, "redirect_uri"), "code=abc&state=nonsense").await;
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    let (events, answer) = until_response(&mut server, login).await;
    assert_eq!(types(&events), ["auth.flow.failed"]);
    let message = "OAuth login failed: state mismatch.";
    assert_eq!(
        (&events[0]["payload"]["message"], &answer["error"]["message"]),
        (&json!(message), &json!(message))
    );
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["data"]["reason"]),
        (&json!(-32603), &json!("login_state_mismatch"))
    );
}

#[tokio::test]
async fn two_browser_logins_use_two_ports_and_can_be_cancelled() {
    let issuer = TokenIssuer::start(|_, _| (200, account())).await;
    let home = Home::with(&issuer.settings());
    let mut server = home.server().await;
    let mut logins = Vec::new();
    let mut ports = Vec::new();
    for _ in 0..2 {
        logins.push(server.send_request("auth.connect.openai", json!({"mode": "browser"})).await);
        let url = text(&server.event("auth.flow.url").await["url"]);
        ports.push(url::Url::parse(&parameter(&url, "redirect_uri")).unwrap().port());
    }
    assert_ne!(ports[0], ports[1]);
    assert_eq!(server.call("auth.cancel", json!({"provider": "openai"})).await["cancelled"], 2);
    for login in logins {
        assert_eq!(server.response(login).await["error"]["message"], "OAuth login cancelled.");
    }
    assert_eq!(server.call("auth.cancel", json!({"provider": "openai"})).await["cancelled"], 0);
}

#[tokio::test]
async fn an_error_of_the_issuer_is_reported_with_its_description() {
    let issuer =
        TokenIssuer::start(|_, _| (400, json!({"error": "access_denied", "error_description": "not today"})))
            .await;
    let home = Home::with(&issuer.settings());
    let mut server = home.server().await;
    let error = server.call_error("auth.connect.openai", json!({"mode": "device_code"})).await;
    assert!(text(&error["message"]).contains("not today"), "{error}");
}

#[tokio::test]
async fn a_pending_login_does_not_keep_the_server_from_stopping() {
    let issuer = TokenIssuer::start(|_, _| (400, json!({"error": "authorization_pending"}))).await;
    let home = Home::with(&issuer.settings());
    let mut server = home.server().await;
    let login = server.send_request("auth.connect.openai", json!({"mode": "browser"})).await;
    server.event("auth.flow.url").await;
    server.close_stdin();
    let (lines, status) = server.wait_for_exit().await;
    assert!(status.success());
    assert!(lines.iter().any(|line| line["id"] == json!(login)), "every request is answered: {lines:?}");
}
