//! The device flow whose poll returns an authorization code.

use super::*;
use crate::{LoginFlow, SLOW_DOWN_STEP};

const DEVICE_FLOW: LoginPreference = LoginPreference::Only(LoginFlow::Device);

fn draft(provider: &FakeProvider) -> ProviderDraft {
    ProviderDraft {
        device_yields_code: true,
        device_url: format!("{}/usercode", provider.address),
        device_token_url: format!("{}/poll", provider.address),
        device_verification_url: "https://example.org/enter".to_owned(),
        device_redirect_url: "https://example.org/done".to_owned(),
        ..provider.draft()
    }
}

/// A provider that replies to polls, counted from 1, as `polls` says.
async fn device_provider(
    code: Value,
    polls: impl Fn(usize) -> Reply + Send + Sync + 'static,
) -> FakeProvider {
    FakeProvider::new(move |request, before| match request.path.as_str() {
        "/usercode" => Reply::Json(200, code.clone()),
        "/poll" => polls(before),
        _ => granted(1),
    })
    .await
}

fn entered() -> Reply {
    Reply::Json(
        200,
        json!({"authorization_code": "the-code", "code_verifier": "the-verifier", "code_challenge": "?"}),
    )
}

#[tokio::test]
async fn a_code_that_was_entered_is_exchanged() {
    let code = json!({"device_auth_id": "the-device", "usercode": "AB12", "interval": "2", "expires_in": 60});
    let provider = device_provider(code, |poll| match poll {
        1 => Reply::Text(403, String::new()),
        2 => Reply::Json(404, json!({})),
        3 => Reply::Text(429, String::new()),
        _ => entered(),
    })
    .await;
    let fixture = Fixture::new(draft(&provider));
    let progress = fixture.log_in(DEVICE_FLOW).await;
    assert_eq!(
        progress[1],
        LoginProgress::Url { flow: LoginFlow::Device, url: "https://example.org/enter".to_owned() }
    );
    let LoginProgress::DeviceCode(code) = &progress[2] else { panic!("no code: {progress:?}") };
    assert_eq!((code.user_code.as_str(), code.interval_seconds, code.expires_in_seconds), ("AB12", 2, 60));
    assert!(matches!(progress[3..], [LoginProgress::Completed(_)]), "{progress:?}");
    assert_eq!(fixture.time.sleeps(), [2, 2, 2 + SLOW_DOWN_STEP.as_secs()]);
    let requests = provider.requests();
    assert_eq!(serde_json::from_str::<Value>(&requests[0].body).unwrap()["client_id"], "us");
    assert_eq!(requests[1].body, r#"{"device_auth_id":"the-device","user_code":"AB12"}"#);
    let exchange = requests.last().unwrap();
    for (name, value) in [
        ("code", "the-code"),
        ("code_verifier", "the-verifier"),
        ("redirect_uri", "https://example.org/done"),
    ] {
        assert_eq!(exchange.form(name).as_deref(), Some(value), "{name}");
    }
}

#[tokio::test]
async fn missing_members_have_defaults_and_codes_expire() {
    let provider = device_provider(json!({"device_auth_id": "d", "user_code": "AB12"}), |_| {
        Reply::Text(403, String::new())
    })
    .await;
    let fixture = Fixture::new(draft(&provider));
    let progress = fixture.log_in(DEVICE_FLOW).await;
    let LoginProgress::DeviceCode(code) = &progress[2] else { panic!("no code: {progress:?}") };
    assert_eq!((code.interval_seconds, code.expires_in_seconds), (5, 900));
    assert_eq!(failure(&progress), LoginError::CodeExpired);
    assert_eq!(fixture.time.sleeps().iter().sum::<u64>(), 905);
}

#[tokio::test]
async fn errors_are_reported_with_their_status() {
    let provider = FakeProvider::new(|_, _| Reply::Text(404, String::new())).await;
    assert_eq!(
        failure(&Fixture::new(draft(&provider)).log_in(DEVICE_FLOW).await),
        LoginError::DeviceUnsupported
    );

    let provider =
        FakeProvider::new(|_, _| Reply::Json(400, json!({"error": {"message": "who are you"}}))).await;
    let error = failure(&Fixture::new(draft(&provider)).log_in(DEVICE_FLOW).await);
    assert_eq!(error, LoginError::DeviceRequest { status: Some(400), reason: "who are you".to_owned() });

    let provider = FakeProvider::new(|_, _| Reply::Json(200, json!({"user_code": "x"}))).await;
    let error = failure(&Fixture::new(draft(&provider)).log_in(DEVICE_FLOW).await);
    assert!(matches!(error, LoginError::DeviceRequest { status: Some(200), .. }), "{error:?}");

    let code = json!({"device_auth_id": "the-device-id", "user_code": "AB12"});
    let provider =
        device_provider(code, |_| Reply::Json(400, json!({"error": "the-device-id is gone"}))).await;
    let error = failure(&Fixture::new(draft(&provider)).log_in(DEVICE_FLOW).await);
    assert_eq!(error, LoginError::DevicePoll { status: Some(400), reason: "[secret] is gone".to_owned() });

    let code = json!({"device_auth_id": "d", "user_code": "AB12"});
    let provider = device_provider(code, |_| Reply::Json(200, json!({"authorization_code": "c"}))).await;
    let error = failure(&Fixture::new(draft(&provider)).log_in(DEVICE_FLOW).await);
    assert!(matches!(error, LoginError::DevicePoll { status: Some(200), .. }), "{error:?}");
}
