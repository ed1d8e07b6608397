//! Hostile or broken providers: only the login fails, and no secret leaks.

use super::*;
use crate::{LOCK_WAIT, LoginFlow, MAX_TOKEN_BYTES, RESPONSE_BYTES, SecretName};

const DEVICE_FLOW: LoginPreference = LoginPreference::Only(LoginFlow::Device);

async fn error_text(script: impl Fn(&ReceivedRequest, usize) -> Reply + Send + Sync + 'static) -> String {
    let provider = FakeProvider::new(script).await;
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::with(provider.draft(), Http::with_timeout(Duration::from_millis(200)), folder);
    failure(&fixture.log_in(DEVICE_FLOW).await).to_string()
}

#[tokio::test]
async fn a_response_above_the_size_limit_is_refused() {
    let text = error_text(|_, _| Reply::Text(200, "x".repeat(RESPONSE_BYTES + 1))).await;
    assert!(text.contains(&format!("larger than {RESPONSE_BYTES} bytes")), "{text}");
}

#[tokio::test]
async fn a_response_of_the_largest_size_is_read() {
    let text = error_text(|_, _| Reply::Text(200, "x".repeat(RESPONSE_BYTES))).await;
    assert!(!text.contains("larger"), "{text}");
}

#[tokio::test]
async fn a_request_without_reply_times_out() {
    let text = error_text(|_, _| Reply::Never).await;
    assert!(text.contains("did not answer within"), "{text}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let thief = FakeProvider::new(|_, _| granted(1)).await;
    let there = format!("{}/device", thief.address);
    error_text(move |_, _| Reply::Redirect(there.clone())).await;
    assert!(thief.requests().is_empty());
}

#[tokio::test]
async fn an_unreachable_provider_is_reported() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let provider = FakeProvider { address: format!("http://{gone}"), requests: Arc::default() };
    let text = failure(&Fixture::new(provider.draft()).log_in(DEVICE_FLOW).await).to_string();
    assert!(text.contains("refused"), "{text}");
}

/// The error of a login to a provider that grants `token`, and the text of the stored login.
async fn granted_token(token: String) -> (Option<String>, bool) {
    let provider = FakeProvider::new(move |request, _| match request.path.as_str() {
        "/device" => Reply::Json(
            200,
            json!({"device_code": "d", "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60}),
        ),
        _ => Reply::Json(200, json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600})),
    })
    .await;
    let fixture = Fixture::new(provider.draft());
    let progress = fixture.log_in(DEVICE_FLOW).await;
    let is_stored = fixture.folder.path().join("secrets/login-x").exists();
    match progress.last() {
        Some(LoginProgress::Completed(_)) => (None, is_stored),
        _ => (Some(failure(&progress).to_string()), is_stored),
    }
}

#[tokio::test]
async fn a_token_that_no_server_would_take_is_not_stored() {
    assert_eq!(granted_token("x".repeat(MAX_TOKEN_BYTES)).await, (None, true));
    let (error, is_stored) = granted_token("x".repeat(MAX_TOKEN_BYTES + 1)).await;
    assert!(error.is_some_and(|text| text.contains("more than 16384 bytes")) && !is_stored);
    for odd in ["token\nof two lines", "token-\u{e9}", "token\u{1b}[m"] {
        let (error, is_stored) = granted_token(odd.to_owned()).await;
        assert!(error.is_some_and(|text| text.contains("OAuth does not allow")) && !is_stored, "{odd:?}");
    }
}

#[tokio::test]
async fn a_device_code_without_end_is_refused() {
    let text = error_text(|_, _| {
        let code = "d".repeat(MAX_TOKEN_BYTES + 1);
        let answer =
            json!({"device_code": code, "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60});
        Reply::Json(200, answer)
    })
    .await;
    assert!(text.contains("more than 16384 bytes"), "{text}");
}

#[tokio::test]
async fn an_error_does_not_repeat_an_invalid_response() {
    let text = error_text(|request, _| match request.path.as_str() {
        "/device" => Reply::Json(
            200,
            json!({"device_code": "d", "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60}),
        ),
        _ => Reply::Text(200, r#"{"access_token":"s3cret-token"}"#.to_owned()),
    })
    .await;
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn secrets_are_removed_from_a_providers_error() {
    let text = error_text(|request, _| match request.path.as_str() {
        "/device" => Reply::Json(
            200,
            json!({"device_code": "the-device-code", "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60}),
        ),
        _ => Reply::Json(400, json!({"error": "invalid_grant", "error_description": format!("bad: {}", request.body)})),
    })
    .await;
    assert!(text.contains("bad: ") && !text.contains("the-device-code"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_another_process_is_waited_for_then_reported_as_busy() {
    let provider = FakeProvider { address: "http://127.0.0.1:1".to_owned(), requests: Arc::default() };
    let fixture = Fixture::new(provider.draft());
    let store = SecretStore::open(fixture.folder.path()).unwrap();
    let held = store.try_lock(&SecretName::login("x").unwrap()).unwrap();
    let started = tokio::time::Instant::now();
    let text = fixture.logins.logout("x").await.unwrap_err().to_string();
    assert!(text.contains("held by another process for 45 seconds"), "{text}");
    assert!(started.elapsed() >= LOCK_WAIT);
    drop(held);
    assert!(!fixture.logins.logout("x").await.unwrap().existed);
}
