//! The device flow that yields an authorization code.

use super::*;
use crate::{LoginFlow, SLOW_DOWN_STEP};

const WAY: LoginPreference = LoginPreference::Only(LoginFlow::Device);

fn draft(peer: &Peer) -> ProviderDraft {
    ProviderDraft {
        device_yields_code: true,
        device_url: format!("{}/usercode", peer.address),
        device_token_url: format!("{}/poll", peer.address),
        device_verification_url: "https://example.org/enter".to_owned(),
        device_redirect_url: "https://example.org/done".to_owned(),
        ..peer.draft()
    }
}

/// A provider whose polls, counted from 1, are answered so.
async fn provider(code: Value, polls: impl Fn(usize) -> Say + Send + Sync + 'static) -> Peer {
    Peer::new(move |seen, before| match seen.path.as_str() {
        "/usercode" => Say::Json(200, code.clone()),
        "/poll" => polls(before),
        _ => granted(1),
    })
    .await
}

fn entered() -> Say {
    Say::Json(
        200,
        json!({"authorization_code": "the-code", "code_verifier": "the-verifier", "code_challenge": "?"}),
    )
}

#[tokio::test]
async fn a_code_that_was_entered_is_exchanged() {
    let code = json!({"device_auth_id": "the-device", "usercode": "AB12", "interval": "2", "expires_in": 60});
    let peer = provider(code, |poll| match poll {
        1 => Say::Text(403, String::new()),
        2 => Say::Json(404, json!({})),
        3 => Say::Text(429, String::new()),
        _ => entered(),
    })
    .await;
    let house = House::new(draft(&peer));
    let told = house.log_in(WAY).await;
    assert_eq!(
        told[1],
        LoginProgress::Url { way: LoginFlow::Device, url: "https://example.org/enter".to_owned() }
    );
    let LoginProgress::DeviceCode(code) = &told[2] else { panic!("no code: {told:?}") };
    assert_eq!((code.user_code.as_str(), code.interval_seconds, code.expires_in_seconds), ("AB12", 2, 60));
    assert!(matches!(told[3..], [LoginProgress::Completed(_)]), "{told:?}");
    assert_eq!(house.time.pauses(), [2, 2, 2 + SLOW_DOWN_STEP.as_secs()]);
    let seen = peer.seen();
    assert_eq!(serde_json::from_str::<Value>(&seen[0].body).unwrap()["client_id"], "us");
    assert_eq!(seen[1].body, r#"{"device_auth_id":"the-device","user_code":"AB12"}"#);
    let exchange = seen.last().unwrap();
    for (name, value) in [
        ("code", "the-code"),
        ("code_verifier", "the-verifier"),
        ("redirect_uri", "https://example.org/done"),
    ] {
        assert_eq!(exchange.form(name).as_deref(), Some(value), "{name}");
    }
}

#[tokio::test]
async fn what_the_provider_does_not_say_is_as_usual_and_codes_expire() {
    let peer =
        provider(json!({"device_auth_id": "d", "user_code": "AB12"}), |_| Say::Text(403, String::new()))
            .await;
    let house = House::new(draft(&peer));
    let told = house.log_in(WAY).await;
    let LoginProgress::DeviceCode(code) = &told[2] else { panic!("no code: {told:?}") };
    assert_eq!((code.interval_seconds, code.expires_in_seconds), (5, 900));
    assert_eq!(failure(&told), LoginError::CodeExpired);
    assert_eq!(house.time.pauses().iter().sum::<u64>(), 905);
}

#[tokio::test]
async fn what_goes_wrong_is_told_with_its_status() {
    let peer = Peer::new(|_, _| Say::Text(404, String::new())).await;
    assert_eq!(failure(&House::new(draft(&peer)).log_in(WAY).await), LoginError::DeviceUnsupported);

    let peer = Peer::new(|_, _| Say::Json(400, json!({"error": {"message": "who are you"}}))).await;
    let error = failure(&House::new(draft(&peer)).log_in(WAY).await);
    assert_eq!(error, LoginError::DeviceRequest { status: Some(400), reason: "who are you".to_owned() });

    let peer = Peer::new(|_, _| Say::Json(200, json!({"user_code": "x"}))).await;
    let error = failure(&House::new(draft(&peer)).log_in(WAY).await);
    assert!(matches!(error, LoginError::DeviceRequest { status: Some(200), .. }), "{error:?}");

    let code = json!({"device_auth_id": "the-device-id", "user_code": "AB12"});
    let peer = provider(code, |_| Say::Json(400, json!({"error": "the-device-id is gone"}))).await;
    let error = failure(&House::new(draft(&peer)).log_in(WAY).await);
    assert_eq!(error, LoginError::DevicePoll { status: Some(400), reason: "[secret] is gone".to_owned() });

    let code = json!({"device_auth_id": "d", "user_code": "AB12"});
    let peer = provider(code, |_| Say::Json(200, json!({"authorization_code": "c"}))).await;
    let error = failure(&House::new(draft(&peer)).log_in(WAY).await);
    assert!(matches!(error, LoginError::DevicePoll { status: Some(200), .. }), "{error:?}");
}
