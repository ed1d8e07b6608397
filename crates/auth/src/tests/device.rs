//! The device flow (RFC 8628).

use super::*;
use crate::{DeviceCode, LoginFlow, MAX_INTERVAL, PROGRESS_QUEUE};

fn code(interval: Value, expires_in: u64) -> Reply {
    Reply::Json(
        200,
        json!({
            "device_code": "the-device-code",
            "user_code": "ABCD-EFGH",
            "verification_uri": "https://example.org/device",
            "verification_uri_complete": "https://example.org/device?user_code=ABCD-EFGH",
            "expires_in": expires_in,
            "interval": interval,
        }),
    )
}

/// A provider that issues a device code and replies to polls, counted from 1.
async fn device_provider(
    interval: Value,
    expires_in: u64,
    polls: impl Fn(usize) -> Reply + Send + Sync + 'static,
) -> FakeProvider {
    FakeProvider::new(move |request, before| match request.path.as_str() {
        "/device" => code(interval.clone(), expires_in),
        _ => polls(before),
    })
    .await
}

#[tokio::test]
async fn a_code_is_shown_and_polled_at_the_providers_interval() {
    let provider = device_provider(json!(3), 600, |poll| match poll {
        1 => refused(400, "authorization_pending"),
        2 => refused(400, "slow_down"),
        3 => refused(400, "authorization_pending"),
        // After an overload the interval doubles.
        4 => Reply::Text(503, "later".to_owned()),
        _ => granted(7),
    })
    .await;
    let fixture = Fixture::new(provider.draft());
    let progress = fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    let url = "https://example.org/device".to_owned();
    let shown = DeviceCode {
        verification_url: url.clone(),
        complete_url: Some(format!("{url}?user_code=ABCD-EFGH")),
        user_code: "ABCD-EFGH".to_owned(),
        interval_seconds: 3,
        expires_in_seconds: 600,
    };
    assert_eq!(
        progress[..3],
        [
            LoginProgress::Started,
            LoginProgress::Url { flow: LoginFlow::Device, url },
            LoginProgress::DeviceCode(shown)
        ]
    );
    assert!(
        matches!(&progress[3..], [LoginProgress::Completed(login)] if login.flow == LoginFlow::Device),
        "{progress:?}"
    );
    assert_eq!(fixture.time.sleeps(), [3, 8, 8, 16]);
    let requests = provider.requests();
    assert_eq!(requests[0].form("scope").as_deref(), Some("read write"));
    assert_eq!(requests[1].form("device_code").as_deref(), Some("the-device-code"));
    assert_eq!(fixture.redactor.redact("the-device-code"), crate::REDACTED);
}

#[tokio::test]
async fn only_web_addresses_are_shown() {
    let (good, bad) = ("https://example.org/device", "javascript:alert(1)");
    for (url, complete_url) in [(bad, good), (good, bad)] {
        let code = json!({
            "device_code": "d", "user_code": "u", "expires_in": 60,
            "verification_uri": url, "verification_uri_complete": complete_url,
        });
        let provider = FakeProvider::new(move |_, _| Reply::Json(200, code.clone())).await;
        let fixture = Fixture::new(provider.draft());
        let progress = fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await;
        assert!(!format!("{progress:?}").contains("javascript"), "{progress:?}");
        assert!(matches!(failure(&progress), LoginError::DeviceRequest { .. }), "{progress:?}");
    }
}

#[tokio::test]
async fn a_code_that_is_not_entered_expires() {
    let provider = device_provider(json!(5), 12, |_| refused(400, "authorization_pending")).await;
    let fixture = Fixture::new(provider.draft());
    assert_eq!(
        failure(&fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await),
        LoginError::CodeExpired
    );
    assert_eq!(fixture.time.sleeps(), [5, 5, 5]);
    let provider = device_provider(json!(5), 600, |_| refused(400, "expired_token")).await;
    let fixture = Fixture::new(provider.draft());
    assert_eq!(
        failure(&fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await),
        LoginError::CodeExpired
    );
}

#[tokio::test]
async fn the_polling_interval_has_a_minimum_and_a_maximum() {
    let provider = device_provider(json!(0), 600, |poll| {
        if poll < 3 { refused(400, "authorization_pending") } else { granted(1) }
    })
    .await;
    let fixture = Fixture::new(provider.draft());
    fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert_eq!(fixture.time.sleeps(), [1, 1]);
    let most = MAX_INTERVAL.as_secs();
    let provider = device_provider(json!(10 * most), 6000, |poll| {
        if poll < 2 { refused(400, "slow_down") } else { granted(1) }
    })
    .await;
    let fixture = Fixture::new(provider.draft());
    fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert_eq!(fixture.time.sleeps(), [most]);
}

#[tokio::test]
async fn refusals_become_different_errors() {
    let provider = device_provider(json!(5), 600, |_| refused(400, "access_denied")).await;
    let denied =
        failure(&Fixture::new(provider.draft()).log_in(LoginPreference::Only(LoginFlow::Device)).await);
    let description = Some("because of access_denied".to_owned());
    assert_eq!(denied, LoginError::Denied { code: "access_denied".to_owned(), description });

    let provider = device_provider(json!(5), 600, |_| refused(401, "invalid_client")).await;
    let failed =
        failure(&Fixture::new(provider.draft()).log_in(LoginPreference::Only(LoginFlow::Device)).await);
    assert_eq!(
        failed,
        LoginError::DevicePoll { status: Some(401), reason: "because of invalid_client".to_owned() }
    );

    let provider = FakeProvider::new(|_, _| refused(400, "unauthorized_client")).await;
    let failed =
        failure(&Fixture::new(provider.draft()).log_in(LoginPreference::Only(LoginFlow::Device)).await);
    let reason = "because of unauthorized_client".to_owned();
    assert_eq!(failed, LoginError::DeviceRequest { status: Some(400), reason });
}

#[tokio::test]
async fn a_provider_without_device_codes_falls_back_to_the_browser() {
    let provider = FakeProvider::new(|_, _| Reply::Text(404, "no".to_owned())).await;
    let fixture = Fixture::new(provider.draft());
    assert_eq!(
        failure(&fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await),
        LoginError::DeviceUnsupported
    );
    let mut flow = fixture.start(LoginPreference::Device);
    assert_eq!(flow.next().await, Some(LoginProgress::Started));
    assert!(
        matches!(flow.next().await, Some(LoginProgress::Url { flow: LoginFlow::Browser, url }) if url.contains("/authorize?"))
    );
}

#[tokio::test]
async fn a_flow_that_is_not_configured_names_the_setting() {
    let provider = FakeProvider::new(|_, _| granted(1)).await;
    let fixture = Fixture::new(ProviderDraft { device_url: String::new(), ..provider.draft() });
    let text = failure(&fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await).to_string();
    assert!(text.contains("x has no device_url"), "{text}");
    let mut flow = fixture.start(LoginPreference::Device);
    flow.next().await;
    assert!(
        matches!(flow.next().await, Some(LoginProgress::Url { flow: LoginFlow::Browser, .. })),
        "the browser flow is used instead"
    );
    let fixture = Fixture::new(ProviderDraft { authorize_url: String::new(), ..provider.draft() });
    let text = failure(&fixture.log_in(LoginPreference::Only(LoginFlow::Browser)).await).to_string();
    assert!(text.contains("x has no authorize_url"), "{text}");
}

#[tokio::test]
async fn progress_is_queued_for_a_late_reader() {
    let provider = device_provider(json!(1), 600, |_| granted(1)).await;
    let fixture = Fixture::new(provider.draft());
    let flow = fixture.start(LoginPreference::Only(LoginFlow::Device));
    while fixture.logins.access_token("x").await.is_err() {
        tokio::task::yield_now().await;
    }
    let progress = all_progress(flow).await;
    assert!(progress.len() == 4 && progress.len() <= PROGRESS_QUEUE, "{progress:?}");
}
