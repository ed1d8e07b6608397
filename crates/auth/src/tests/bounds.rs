//! A provider that is hostile or broken costs one login and nothing else.

use super::*;
use crate::{LOCK_WAIT, LoginFlow, RESPONSE_BYTES, SecretName};

const WAY: LoginPreference = LoginPreference::Only(LoginFlow::Device);

async fn said(script: impl Fn(&SessionUpdate, usize) -> Say + Send + Sync + 'static) -> String {
    let peer = Peer::new(script).await;
    let folder = tempfile::tempdir().unwrap();
    let house = House::with(peer.draft(), Http::waiting(Duration::from_millis(200)), folder);
    failure(&house.log_in(WAY).await).to_string()
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_read_to_its_end() {
    let said = said(|_, _| Say::Text(200, "x".repeat(RESPONSE_BYTES + 1))).await;
    assert!(said.contains(&format!("larger than {RESPONSE_BYTES} bytes")), "{said}");
}

#[tokio::test]
async fn an_answer_of_the_largest_size_is_read() {
    let said = said(|_, _| Say::Text(200, "x".repeat(RESPONSE_BYTES))).await;
    assert!(!said.contains("larger"), "{said}");
}

#[tokio::test]
async fn no_answer_is_waited_for_forever() {
    let said = said(|_, _| Say::Nothing).await;
    assert!(said.contains("did not answer within"), "{said}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let thief = Peer::new(|_, _| granted(1)).await;
    let there = format!("{}/device", thief.address);
    said(move |_, _| Say::Redirect(there.clone())).await;
    assert!(thief.seen().is_empty());
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_said() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let peer = Peer { address: format!("http://{gone}"), seen: Arc::default() };
    let said = failure(&House::new(peer.draft()).log_in(WAY).await).to_string();
    assert!(said.contains("refused"), "{said}");
}

#[tokio::test]
async fn what_a_broken_answer_holds_is_not_repeated() {
    let said = said(|seen, _| match seen.path.as_str() {
        "/device" => Say::Json(
            200,
            json!({"device_code": "d", "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60}),
        ),
        _ => Say::Text(200, r#"{"access_token":"s3cret-token"}"#.to_owned()),
    })
    .await;
    assert!(!said.contains("s3cret"), "{said}");
}

#[tokio::test]
async fn an_error_that_echoes_a_secret_is_without_it() {
    let said = said(|seen, _| match seen.path.as_str() {
        "/device" => Say::Json(
            200,
            json!({"device_code": "the-device-code", "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60}),
        ),
        _ => Say::Json(400, json!({"error": "invalid_grant", "error_description": format!("bad: {}", seen.body)})),
    })
    .await;
    assert!(said.contains("bad: ") && !said.contains("the-device-code"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_login_that_another_process_holds_is_waited_for_and_then_said_to_be_busy() {
    let peer = Peer { address: "http://127.0.0.1:1".to_owned(), seen: Arc::default() };
    let house = House::new(peer.draft());
    let store = SecretStore::open(house.folder.path()).unwrap();
    let held = store.try_lock(&SecretName::login("x").unwrap()).unwrap();
    let begun = tokio::time::Instant::now();
    let said = house.logins.logout("x").await.unwrap_err().to_string();
    assert!(said.contains("held by another process for 45 seconds"), "{said}");
    assert!(begun.elapsed() >= LOCK_WAIT);
    drop(held);
    assert!(!house.logins.logout("x").await.unwrap().existed);
}
