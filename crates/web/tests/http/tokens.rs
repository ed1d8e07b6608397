//! The endpoints that return the token, make a new one, set up the channel, and let a browser sign in.

use std::sync::Arc;

use parlor_web::{TokenConfig, TokenStore};

use crate::client::{bearer, close, greeting, ping};
use crate::server::{Server, TOKEN};

/// A server whose settings have no token, so that it makes one.
async fn generated() -> Server {
    Server::with(|options| options.configured = TokenConfig::default()).await
}

#[tokio::test]
async fn the_token_is_returned_under_both_names() {
    let server = generated().await;
    let answer = server.request("GET /api/supr/token").await;
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
    let answered = answer.json();
    assert_eq!(answered["ws_url"], format!("ws://{}/supr/ws", server.address));
    assert_eq!(answered["enabled"], true);
    let token = answered["token"].as_str().unwrap();
    assert!(
        token.len() == 32 && token.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
        "{token}"
    );
    assert_eq!(answered.as_object().unwrap().len(), 3);
    assert_eq!(server.request("GET /api/pico/token").await.json(), answered);
    let secure = server.request("GET /api/supr/token\nX-Forwarded-Proto: https").await.json();
    let url = secure["ws_url"].as_str().unwrap();
    assert!(url.starts_with("wss://") && url.ends_with("/supr/ws"), "{url}");
}

#[tokio::test]
async fn a_new_token_is_valid_at_once_and_open_sockets_stay_open() {
    let server = generated().await;
    let old = server.tokens.now().token.reveal().to_owned();
    let mut open = server.connect("").await;
    greeting(&mut open).await;
    let answered = server.request("POST /api/supr/token\nContent-Length: 0").await.json();
    let new = answered["token"].as_str().unwrap();
    assert!(
        new != old && new.len() == 32 && answered["enabled"] == true && answered.get("changed").is_none()
    );
    let with = |token: &str| format!("Authorization: Bearer {token}");
    server.handshake("/supr/ws", &with(&old)).await.assert_text(401, "unauthorized");
    assert_eq!(server.handshake("/supr/ws", &with(new)).await.status, 101);
    ping(&mut open).await;
}

#[tokio::test]
async fn sockets_that_hold_the_old_token_are_closed_if_asked_for() {
    let server = generated().await;
    let mut sockets = [server.connect("session_id=a").await, server.connect("session_id=b").await];
    for socket in &mut sockets {
        greeting(socket).await;
    }
    server
        .request("POST /api/supr/token?evict=maybe\nContent-Length: 0")
        .await
        .assert_text(400, "evict is 1, true, 0 or false");
    ping(&mut sockets[0]).await;
    let evict = "POST /api/supr/token?evict=true\nContent-Length: 0";
    assert_eq!(server.request(evict).await.json()["token"], server.tokens.now().token.reveal());
    for socket in &mut sockets {
        assert_eq!(close(socket).await, Some((4002, "the token was replaced".to_owned())));
    }
    // Sockets that are opened with the new token stay.
    let mut new = server.connect("session_id=a").await;
    greeting(&mut new).await;
    ping(&mut new).await;
    // Another process evicts, as `parlor token --rotate --evict` does.
    let file = server.folder.path().join("supr.json");
    let command = TokenStore::open(file, TokenConfig::default(), Arc::new(|| [7; 16])).unwrap();
    command.rotate_and_evict().unwrap();
    assert_eq!(close(&mut new).await.map(|(code, _)| code), Some(4002));
}

#[tokio::test]
async fn a_token_that_another_process_makes_is_valid_at_once() {
    let server = generated().await;
    assert_eq!(
        server
            .handshake("/supr/ws", &format!("Authorization: Bearer {}", server.tokens.now().token.reveal()))
            .await
            .status,
        101
    );
    let file = server.folder.path().join("supr.json");
    let command = TokenStore::open(file, TokenConfig::default(), Arc::new(|| [0xab; 16])).unwrap();
    command.rotate().unwrap();
    let new = format!("Authorization: Bearer {}", "ab".repeat(16));
    assert_eq!(server.handshake("/supr/ws", &new).await.status, 101);
}

#[tokio::test]
async fn the_second_setup_changes_nothing() {
    let server = generated().await;
    let origin = format!("http://{}", server.address);
    let set_up = format!("POST /api/supr/setup\nContent-Length: 0\nOrigin: {origin}");
    let first = server.request(&set_up).await.json();
    assert_eq!((&first["changed"], &first["enabled"]), (&true.into(), &true.into()));
    let second = server.request(&set_up.replace("supr", "pico")).await.json();
    assert_eq!((&second["changed"], &second["token"]), (&false.into(), &first["token"]));
    assert_eq!(server.tokens.now().allow_origins, [origin.as_str()]);
    let config = server.request("GET /api/config").await.json();
    assert_eq!(config["channels"]["supr"]["allow_token_query"], false);
    assert_eq!(config["channels"]["supr"]["allow_origins"][0], origin);
    let with = format!("Authorization: Bearer {}", first["token"].as_str().unwrap());
    server.handshake("/supr/ws", &with).await.assert_text(403, "Forbidden");
    assert_eq!(server.handshake("/supr/ws", &format!("{with}\nOrigin: {origin}")).await.status, 101);
}

#[tokio::test]
async fn an_invalid_origin_is_not_stored() {
    let server = generated().await;
    let bearer = format!("Authorization: Bearer {}", server.tokens.now().token.reveal());
    for origin in ["null", &format!("http://{}", "x".repeat(250))] {
        let request = format!("POST /api/supr/setup\nContent-Length: 0\nOrigin: {origin}\n{bearer}");
        assert_eq!(server.request(&request).await.json()["changed"], false, "{origin}");
    }
    assert!(server.tokens.now().allow_origins.is_empty());
}

#[tokio::test]
async fn a_token_in_the_settings_cannot_be_rotated() {
    let server = Server::start().await;
    let answer = server.request("POST /api/supr/token\nContent-Length: 0").await;
    assert_eq!(answer.status, 409);
    assert!(answer.body.contains("parlor.toml"), "{}", answer.body);
    assert_eq!(server.request("GET /api/supr/token").await.json()["token"], TOKEN);
}

#[tokio::test]
async fn the_setup_enables_a_channel_that_is_switched_off() {
    let server = Server::with(|options| options.settings.is_enabled = false).await;
    assert_eq!(server.request("GET /api/supr/token").await.json()["enabled"], false);
    server.handshake("/supr/ws", &bearer()).await.assert_text(404, "404 page not found");
    let set_up = server.request("POST /api/pico/setup\nContent-Length: 0").await;
    assert_eq!(set_up.status, 200, "{}", set_up.body);
    let answered = set_up.json();
    assert_eq!((&answered["enabled"], &answered["changed"]), (&true.into(), &true.into()));
    assert_eq!(server.request("GET /api/supr/token").await.json()["enabled"], true);
    assert_eq!(
        server.request("GET /api/config").await.json()["channels"]["supr"]["enabled"],
        true,
        "the settings that clients see"
    );
    greeting(&mut server.connect("").await).await;
    let again = server.request("POST /api/supr/setup\nContent-Length: 0").await.json();
    assert_eq!((&again["enabled"], &again["changed"]), (&true.into(), &false.into()));
}

#[tokio::test]
async fn the_setup_from_another_origin_does_not_lock_out_the_page_of_the_server() {
    let server = generated().await;
    let bearer = format!("Authorization: Bearer {}", server.tokens.now().token.reveal());
    let set_up = format!("POST /api/supr/setup\nContent-Length: 0\nOrigin: http://elsewhere:1\n{bearer}");
    assert_eq!(server.request(&set_up).await.json()["changed"], true);
    let port = server.address.port();
    for (origin, status) in [
        (format!("http://{}", server.address), 101),
        ("http://elsewhere:1".to_owned(), 101),
        (format!("http://localhost:{port}"), 403),
        ("http://evil.example".to_owned(), 403),
        ("null".to_owned(), 403),
    ] {
        let answer = server.handshake("/supr/ws", &format!("{bearer}\nOrigin: {origin}")).await;
        assert_eq!(answer.status, status, "{origin}");
    }
    // A name that was made to point to this machine is not this server, so its pages are not the server's own.
    let rebound = format!("{bearer}\nHost: evil.example:{port}\nOrigin: http://evil.example:{port}");
    assert_eq!(server.handshake("/supr/ws", &rebound).await.status, 403);
}

#[tokio::test]
async fn a_write_error_in_the_state_folder_is_reported() {
    let server = generated().await;
    let before = server.tokens.now();
    let temporary = server.folder.path().join("supr.json.new");
    // The store cannot remove a folder that has the name of its temporary file.
    std::fs::create_dir(&temporary).unwrap();
    let answer = server.request("POST /api/supr/token\nContent-Length: 0").await;
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains("supr.json"), "{}", answer.body);
    assert_eq!(server.tokens.now(), before);
}

#[tokio::test]
async fn the_one_time_link_returns_the_token_once_to_any_client() {
    let server = Server::start().await;
    let claim = "POST /api/supr/claim\nX-Forwarded-For: 192.0.2.1";
    for body in ["", "{}", "[]"] {
        server
            .request_with_body(claim, body)
            .await
            .assert_text(400, r#"the body is {"code":"…"} or {"token":"…"}"#);
    }
    assert_eq!(server.request_with_body(claim, r#"{"code":"guess"}"#).await.status, 403);
    let code = format!(r#"{{"code":"{}"}}"#, server.one_time_link.code());
    let answer = server.request_with_body(claim, &code).await.json();
    assert_eq!((&answer["token"], &answer["enabled"]), (&TOKEN.into(), &true.into()));
    let again = server.request_with_body(claim, &code).await;
    assert!(again.status == 403 && again.body.contains("parlor token"), "{again:?}");
    // Other requests of that client still need the token.
    assert_eq!(server.request("GET /api/supr/token\nX-Forwarded-For: 192.0.2.1").await.status, 401);
}

#[tokio::test]
async fn other_methods_and_paths_are_not_found() {
    let server = Server::start().await;
    for request in [
        "PUT /api/supr/token",
        "DELETE /api/supr/setup",
        "GET /api/supr/setup",
        "GET /api/supr/other",
        "GET /api/x",
    ] {
        server.request(&format!("{request}\n{}", bearer())).await.assert_text(404, "404 page not found");
    }
}
