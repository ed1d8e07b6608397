//! The device flow of RFC 8628.

use super::*;
use crate::{DeviceCode, LoginFlow, MAX_INTERVAL, PROGRESS_QUEUE};

fn code(interval: Value, expires_in: u64) -> Say {
    Say::Json(
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

/// A provider that gives a code and then answers the polls, counted from 1.
async fn provider(
    interval: Value,
    expires_in: u64,
    polls: impl Fn(usize) -> Say + Send + Sync + 'static,
) -> Peer {
    Peer::new(move |seen, before| match seen.path.as_str() {
        "/device" => code(interval.clone(), expires_in),
        _ => polls(before),
    })
    .await
}

#[tokio::test]
async fn a_code_is_shown_and_polled_for_at_the_pace_that_is_asked_for() {
    let peer = provider(json!(3), 600, |poll| match poll {
        1 => refused(400, "authorization_pending"),
        2 => refused(400, "slow_down"),
        3 => refused(400, "authorization_pending"),
        // Overloaded is not an answer: twice the time.
        4 => Say::Text(503, "later".to_owned()),
        _ => granted(7),
    })
    .await;
    let house = House::new(peer.draft());
    let told = house.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    let url = "https://example.org/device".to_owned();
    let shown = DeviceCode {
        verification_url: url.clone(),
        complete_url: Some(format!("{url}?user_code=ABCD-EFGH")),
        user_code: "ABCD-EFGH".to_owned(),
        interval_seconds: 3,
        expires_in_seconds: 600,
    };
    assert_eq!(
        told[..3],
        [
            LoginProgress::Started,
            LoginProgress::Url { way: LoginFlow::Device, url },
            LoginProgress::DeviceCode(shown)
        ]
    );
    assert!(
        matches!(&told[3..], [LoginProgress::Completed(login)] if login.way == LoginFlow::Device),
        "{told:?}"
    );
    assert_eq!(house.time.pauses(), [3, 8, 8, 16]);
    let seen = peer.seen();
    assert_eq!(seen[0].form("scope").as_deref(), Some("read write"));
    assert_eq!(seen[1].form("device_code").as_deref(), Some("the-device-code"));
    assert_eq!(house.redactor.redact("the-device-code"), crate::REDACTED);
}

#[tokio::test]
async fn a_code_that_nobody_enters_expires() {
    let peer = provider(json!(5), 12, |_| refused(400, "authorization_pending")).await;
    let house = House::new(peer.draft());
    assert_eq!(
        failure(&house.log_in(LoginPreference::Only(LoginFlow::Device)).await),
        LoginError::CodeExpired
    );
    assert_eq!(house.time.pauses(), [5, 5, 5]);
    let peer = provider(json!(5), 600, |_| refused(400, "expired_token")).await;
    let house = House::new(peer.draft());
    assert_eq!(
        failure(&house.log_in(LoginPreference::Only(LoginFlow::Device)).await),
        LoginError::CodeExpired
    );
}

#[tokio::test]
async fn no_pace_is_too_fast_or_too_slow() {
    let peer =
        provider(
            json!(0),
            600,
            |poll| if poll < 3 { refused(400, "authorization_pending") } else { granted(1) },
        )
        .await;
    let house = House::new(peer.draft());
    house.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert_eq!(house.time.pauses(), [1, 1]);
    let most = MAX_INTERVAL.as_secs();
    let peer =
        provider(
            json!(10 * most),
            6000,
            |poll| if poll < 2 { refused(400, "slow_down") } else { granted(1) },
        )
        .await;
    let house = House::new(peer.draft());
    house.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert_eq!(house.time.pauses(), [most]);
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let peer = provider(json!(5), 600, |_| refused(400, "access_denied")).await;
    let denied = failure(&House::new(peer.draft()).log_in(LoginPreference::Only(LoginFlow::Device)).await);
    let description = Some("because of access_denied".to_owned());
    assert_eq!(denied, LoginError::Denied { code: "access_denied".to_owned(), description });

    let peer = provider(json!(5), 600, |_| refused(401, "invalid_client")).await;
    let failed = failure(&House::new(peer.draft()).log_in(LoginPreference::Only(LoginFlow::Device)).await);
    assert_eq!(
        failed,
        LoginError::DevicePoll { status: Some(401), reason: "because of invalid_client".to_owned() }
    );

    let peer = Peer::new(|_, _| refused(400, "unauthorized_client")).await;
    let failed = failure(&House::new(peer.draft()).log_in(LoginPreference::Only(LoginFlow::Device)).await);
    let reason = "because of unauthorized_client".to_owned();
    assert_eq!(failed, LoginError::DeviceRequest { status: Some(400), reason });
}

#[tokio::test]
async fn a_provider_without_device_codes_is_asked_in_a_browser_unless_it_must_be_a_code() {
    let peer = Peer::new(|_, _| Say::Text(404, "no".to_owned())).await;
    let house = House::new(peer.draft());
    assert_eq!(
        failure(&house.log_in(LoginPreference::Only(LoginFlow::Device)).await),
        LoginError::DeviceUnsupported
    );
    let mut flow = house.start(LoginPreference::Device);
    assert_eq!(flow.next().await, Some(LoginProgress::Started));
    assert!(
        matches!(flow.next().await, Some(LoginProgress::Url { way: LoginFlow::Browser, url }) if url.contains("/authorize?"))
    );
}

#[tokio::test]
async fn a_way_that_is_not_configured_names_the_setting() {
    let peer = Peer::new(|_, _| granted(1)).await;
    let house = House::new(ProviderDraft { device_url: String::new(), ..peer.draft() });
    let said = failure(&house.log_in(LoginPreference::Only(LoginFlow::Device)).await).to_string();
    assert!(said.contains("x has no device_url"), "{said}");
    let mut flow = house.start(LoginPreference::Device);
    flow.next().await;
    assert!(
        matches!(flow.next().await, Some(LoginProgress::Url { way: LoginFlow::Browser, .. })),
        "a browser will do"
    );
    let house = House::new(ProviderDraft { authorize_url: String::new(), ..peer.draft() });
    let said = failure(&house.log_in(LoginPreference::Only(LoginFlow::Browser)).await).to_string();
    assert!(said.contains("x has no authorize_url"), "{said}");
}

#[tokio::test]
async fn whoever_looks_late_has_missed_nothing() {
    let peer = provider(json!(1), 600, |_| granted(1)).await;
    let house = House::new(peer.draft());
    let flow = house.start(LoginPreference::Only(LoginFlow::Device));
    while house.logins.access("x").await.is_err() {
        tokio::task::yield_now().await;
    }
    let told = all(flow).await;
    assert!(told.len() == 4 && told.len() <= PROGRESS_QUEUE, "{told:?}");
}
