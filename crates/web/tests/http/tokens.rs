//! The endpoints that hand out, make and set up.

use std::sync::Arc;

use parlor_web::{TokenConfig, TokenStore};

use crate::support::{Server, TOKEN, bearer, text};

async fn generated() -> Server {
    Server::with(|wanted| wanted.configured = TokenConfig::default()).await
}

#[tokio::test]
async fn the_token_is_told_under_both_names() {
    let server = generated().await;
    let answer = server.ask("GET /api/supr/token").await;
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
    let said = answer.json();
    assert_eq!(said["ws_url"], format!("ws://{}/supr/ws", server.address));
    assert_eq!(said["enabled"], true);
    let token = said["token"].as_str().unwrap();
    assert!(
        token.len() == 32 && token.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
        "{token}"
    );
    assert_eq!(said.as_object().unwrap().len(), 3);
    assert_eq!(server.ask("GET /api/pico/token").await.json(), said);
    let secure = server.ask("GET /api/supr/token\nX-Forwarded-Proto: https").await.json();
    let url = secure["ws_url"].as_str().unwrap();
    assert!(url.starts_with("wss://") && url.ends_with("/supr/ws"), "{url}");
}

#[tokio::test]
async fn a_new_token_holds_at_once_and_open_sockets_stay() {
    let server = generated().await;
    let old = server.tokens.now().token.reveal().to_owned();
    let mut open = server.connect("").await;
    text(&mut open).await;
    let said = server.ask("POST /api/supr/token\nContent-Length: 0").await.json();
    let new = said["token"].as_str().unwrap();
    assert!(new != old && new.len() == 32 && said["enabled"] == true && said.get("changed").is_none());
    let with = |token: &str| format!("Authorization: Bearer {token}");
    server.shake("/supr/ws", &with(&old)).await.assert_text(401, "unauthorized");
    assert_eq!(server.shake("/supr/ws", &with(new)).await.status, 101);
    futures_util::SinkExt::send(&mut open, tokio_tungstenite::tungstenite::Message::text("here"))
        .await
        .unwrap();
    assert_eq!(text(&mut open).await, "here");
}

#[tokio::test]
async fn a_token_that_another_process_makes_holds_at_once() {
    let server = generated().await;
    assert_eq!(
        server
            .shake("/supr/ws", &format!("Authorization: Bearer {}", server.tokens.now().token.reveal()))
            .await
            .status,
        101
    );
    let file = server.folder.path().join("supr.json");
    let command = TokenStore::open(file, TokenConfig::default(), Arc::new(|| [0xab; 16])).unwrap();
    command.rotate().unwrap();
    let new = format!("Authorization: Bearer {}", "ab".repeat(16));
    assert_eq!(server.shake("/supr/ws", &new).await.status, 101);
}

#[tokio::test]
async fn setting_up_twice_changes_once() {
    let server = generated().await;
    let origin = format!("http://{}", server.address);
    let set_up = format!("POST /api/supr/setup\nContent-Length: 0\nOrigin: {origin}");
    let first = server.ask(&set_up).await.json();
    assert_eq!((&first["changed"], &first["enabled"]), (&true.into(), &true.into()));
    let second = server.ask(&set_up.replace("supr", "pico")).await.json();
    assert_eq!((&second["changed"], &second["token"]), (&false.into(), &first["token"]));
    assert_eq!(server.tokens.now().allow_origins, [origin.as_str()]);
    let config = server.ask("GET /api/config").await.json();
    assert_eq!(config["channels"]["supr"]["allow_token_query"], false);
    assert_eq!(config["channels"]["supr"]["allow_origins"][0], origin);
    let with = format!("Authorization: Bearer {}", first["token"].as_str().unwrap());
    server.shake("/supr/ws", &with).await.assert_text(403, "Forbidden");
    assert_eq!(server.shake("/supr/ws", &format!("{with}\nOrigin: {origin}")).await.status, 101);
}

#[tokio::test]
async fn an_origin_that_cannot_be_one_is_not_stored() {
    let server = generated().await;
    let bearer = format!("Authorization: Bearer {}", server.tokens.now().token.reveal());
    for origin in ["null", &format!("http://{}", "x".repeat(250))] {
        let request = format!("POST /api/supr/setup\nContent-Length: 0\nOrigin: {origin}\n{bearer}");
        assert_eq!(server.ask(&request).await.json()["changed"], false, "{origin}");
    }
    assert!(server.tokens.now().allow_origins.is_empty());
}

#[tokio::test]
async fn a_token_in_the_settings_is_changed_there() {
    let server = Server::start().await;
    let answer = server.ask("POST /api/supr/token\nContent-Length: 0").await;
    assert_eq!(answer.status, 409);
    assert!(answer.body.contains("parlor.toml"), "{}", answer.body);
    assert_eq!(server.ask("GET /api/supr/token").await.json()["token"], TOKEN);
    let off = Server::with(|wanted| wanted.settings.is_enabled = false).await;
    let answer = off.ask("POST /api/supr/setup\nContent-Length: 0").await;
    assert!(answer.status == 409 && answer.body.contains("enabled = true"), "{answer:?}");
    assert_eq!(off.ask("GET /api/supr/token").await.json()["enabled"], false);
}

#[tokio::test]
async fn a_state_folder_that_cannot_be_written_is_told() {
    let server = generated().await;
    let before = server.tokens.now();
    let draft = server.folder.path().join("supr.json.new");
    // A folder in the way of the draft cannot be removed as a file.
    std::fs::create_dir(&draft).unwrap();
    let answer = server.ask("POST /api/supr/token\nContent-Length: 0").await;
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains("supr.json"), "{}", answer.body);
    assert_eq!(server.tokens.now(), before);
}

#[tokio::test]
async fn a_link_tells_the_token_once_wherever_it_is_opened() {
    let server = Server::start().await;
    let claim = "POST /api/supr/claim\nX-Forwarded-For: 192.0.2.1";
    for body in ["", "{}", "[]"] {
        server.tell(claim, body).await.assert_text(400, r#"the body is {"code":"…"} or {"token":"…"}"#);
    }
    assert_eq!(server.tell(claim, r#"{"code":"guess"}"#).await.status, 403);
    let code = format!(r#"{{"code":"{}"}}"#, server.invitation.code());
    let told = server.tell(claim, &code).await.json();
    assert_eq!((&told["token"], &told["enabled"]), (&TOKEN.into(), &true.into()));
    let again = server.tell(claim, &code).await;
    assert!(again.status == 403 && again.body.contains("parlor token"), "{again:?}");
    // Everything else still needs the token from there.
    assert_eq!(server.ask("GET /api/supr/token\nX-Forwarded-For: 192.0.2.1").await.status, 401);
}

#[tokio::test]
async fn other_methods_and_paths_are_not_there() {
    let server = Server::start().await;
    for request in [
        "PUT /api/supr/token",
        "DELETE /api/supr/setup",
        "GET /api/supr/setup",
        "GET /api/supr/other",
        "GET /api/x",
    ] {
        server.ask(&format!("{request}\n{}", bearer())).await.assert_text(404, "404 page not found");
    }
}
