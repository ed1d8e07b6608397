//! Renewal of access tokens.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::{
    AccessError, LoginFlow, LoginState, MAX_LOGIN_SECRETS, MAX_REDACTED, MIN_RENEWAL_INTERVAL, REDACTED,
    REFRESH_MARGIN, Secret,
};

const HOUR: Duration = Duration::from_secs(3600);

/// Logs in to a provider that replies to renewals, counted from 1, as `renewals` says.
async fn logged_in(renewals: impl Fn(usize) -> Reply + Send + Sync + 'static) -> (FakeProvider, Fixture) {
    let count = AtomicUsize::new(0);
    let provider = FakeProvider::new(move |request, _| match (request.path.as_str(), request.form("grant_type").as_deref()) {
        ("/device", _) => Reply::Json(
            200,
            json!({"device_code": "d", "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60}),
        ),
        (_, Some("refresh_token")) => renewals(count.fetch_add(1, Ordering::SeqCst) + 1),
        _ => granted(0),
    })
    .await;
    let fixture = Fixture::new(provider.draft());
    let progress = fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert!(matches!(progress.last(), Some(LoginProgress::Completed(_))), "{progress:?}");
    (provider, fixture)
}

fn renewals(provider: &FakeProvider) -> Vec<String> {
    provider.requests().iter().filter_map(|request| request.form("refresh_token")).collect()
}

#[tokio::test]
async fn a_token_is_used_until_shortly_before_it_expires() {
    let (provider, fixture) = logged_in(|_| granted(1)).await;
    assert_eq!(fixture.logins.access_token("x").await.unwrap().expose(), "access-token-0");
    fixture.time.advance(HOUR - REFRESH_MARGIN - Duration::from_secs(1));
    assert_eq!(fixture.logins.access_token("x").await.unwrap().expose(), "access-token-0");
    fixture.time.advance(Duration::from_secs(1));
    assert_eq!(fixture.logins.access_token("x").await.unwrap().expose(), "access-token-1");
    assert_eq!(fixture.logins.access_token("x").await.unwrap().expose(), "access-token-1");
    assert_eq!(renewals(&provider), ["refresh-token-0"]);
    // The first renewal replaced the refresh token, so the second one sends the new one.
    fixture.time.advance(HOUR);
    fixture.logins.access_token("x").await.unwrap();
    assert_eq!(renewals(&provider), ["refresh-token-0", "refresh-token-1"]);
}

#[tokio::test]
async fn a_renewal_without_a_new_refresh_token_keeps_the_old_one() {
    let token =
        || Reply::Json(200, json!({"access_token": "second", "token_type": "bearer", "expires_in": 60}));
    let (provider, fixture) = logged_in(move |_| token()).await;
    for _ in 0..2 {
        fixture.time.advance(HOUR);
        assert_eq!(fixture.logins.access_token("x").await.unwrap().expose(), "second");
    }
    assert_eq!(renewals(&provider), ["refresh-token-0", "refresh-token-0"]);
}

/// A provider that grants other tokens each time, for no time at all.
fn granted_for_no_time(number: usize) -> Reply {
    let [access, refresh, id] =
        ["access", "refresh", "id"].map(|kind| format!("{kind}-token-number-{number}."));
    Reply::Json(
        200,
        json!({"access_token": access, "refresh_token": refresh, "id_token": id, "token_type": "bearer", "expires_in": 0}),
    )
}

#[tokio::test]
async fn a_login_is_not_renewed_before_each_request() {
    let (provider, fixture) = logged_in(granted_for_no_time).await;
    fixture.time.advance(HOUR);
    let mut token = fixture.logins.access_token("x").await.unwrap();
    for _ in 0..50 {
        assert_eq!(fixture.logins.access_token("x").await.unwrap(), token);
    }
    assert_eq!(renewals(&provider).len(), 1);
    fixture.time.advance(MIN_RENEWAL_INTERVAL);
    token = fixture.logins.access_token("x").await.unwrap();
    assert_eq!(token.expose(), "access-token-number-2.");
    // A token that the provider refuses is replaced at once.
    let replacement = fixture.logins.replacement_token("x", &token).await.unwrap();
    assert_eq!((replacement.expose(), renewals(&provider).len()), ("access-token-number-3.", 3));
}

#[tokio::test]
async fn new_tokens_displace_only_older_tokens_of_their_login() {
    let (_provider, fixture) = logged_in(granted_for_no_time).await;
    fixture.redactor.learn(&Secret::new("sk-key-of-another-provider"));
    let mut token = fixture.logins.access_token("x").await.unwrap();
    for _ in 0..MAX_REDACTED {
        token = fixture.logins.replacement_token("x", &token).await.unwrap();
    }
    let shown = |text: &str| fixture.redactor.redact(text).into_owned();
    assert_eq!(shown("sk-key-of-another-provider"), REDACTED);
    for number in MAX_REDACTED - 5..=MAX_REDACTED {
        assert_eq!(shown(&format!("access-token-number-{number}.")), REDACTED);
        assert_eq!(shown(&format!("refresh-token-number-{number}.")), REDACTED);
    }
    let oldest = format!("access-token-number-{}.", MAX_REDACTED - MAX_LOGIN_SECRETS);
    assert_eq!(shown(&oldest), oldest);
}

#[tokio::test]
async fn concurrent_requests_in_several_processes_renew_once() {
    let (provider, fixture) = logged_in(|number| granted(u32::try_from(number).unwrap())).await;
    fixture.time.advance(HOUR);
    let another =
        Fixture::open(provider.draft(), Http::new(), fixture.folder.path(), &fixture.time, &fixture.redactor);
    let asking = (0..20).map(|number| {
        let logins = if number % 2 == 0 { fixture.logins.clone() } else { another.clone() };
        tokio::spawn(async move { logins.access_token("x").await })
    });
    for token in asking.collect::<Vec<_>>() {
        assert_eq!(token.await.unwrap().unwrap().expose(), "access-token-1");
    }
    assert_eq!(renewals(&provider).len(), 1);
}

#[tokio::test]
async fn a_refused_token_is_renewed_once() {
    let (provider, fixture) = logged_in(|_| granted(1)).await;
    let refused = fixture.logins.access_token("x").await.unwrap();
    for _ in 0..2 {
        let token = fixture.logins.replacement_token("x", &refused).await.unwrap();
        assert_eq!(token.expose(), "access-token-1");
    }
    assert_eq!(renewals(&provider).len(), 1);
}

#[tokio::test]
async fn a_revoked_login_has_ended_and_names_the_fix() {
    let (provider, fixture) = logged_in(|_| refused(400, "invalid_grant")).await;
    fixture.time.advance(HOUR);
    for _ in 0..2 {
        let text = fixture.logins.access_token("x").await.unwrap_err().to_string();
        assert_eq!(text, "the login to x has ended: because of invalid_grant; run: parlor login x");
    }
    assert_eq!(renewals(&provider).len(), 1, "the provider is not asked again");
    let status = &fixture.logins.statuses().await.unwrap()[0];
    assert_eq!(status.state, LoginState::Ended("because of invalid_grant".to_owned()));
    let kept = std::fs::read_to_string(fixture.folder.path().join("secrets/login-x")).unwrap();
    assert!(!kept.contains("token-0"), "the tokens are deleted: {kept}");
    fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert_eq!(fixture.logins.access_token("x").await.unwrap().expose(), "access-token-0");
}

#[tokio::test]
async fn a_provider_that_is_down_does_not_end_a_login() {
    let healthy = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&healthy);
    let (_provider, fixture) = logged_in(move |_| {
        if now.load(Ordering::SeqCst) { granted(1) } else { Reply::Text(502, "bad gateway".to_owned()) }
    })
    .await;
    // The old token is used while it is valid.
    fixture.time.advance(HOUR - Duration::from_secs(1));
    assert_eq!(fixture.logins.access_token("x").await.unwrap().expose(), "access-token-0");
    fixture.time.advance(HOUR);
    let error = fixture.logins.access_token("x").await.unwrap_err();
    assert!(matches!(error, AccessError::Unavailable { status: Some(502), .. }), "{error:?}");
    healthy.store(true, Ordering::SeqCst);
    assert_eq!(fixture.logins.access_token("x").await.unwrap().expose(), "access-token-1");
}

#[tokio::test]
async fn a_dropped_request_does_not_lose_the_renewed_token() {
    let (provider, fixture) = logged_in(|_| granted(1)).await;
    fixture.time.advance(HOUR);
    let asking = tokio::spawn({
        let logins = fixture.logins.clone();
        async move { logins.access_token("x").await }
    });
    // Wait until the provider has received, and maybe invalidated, the old refresh token.
    while renewals(&provider).is_empty() {
        tokio::task::yield_now().await;
    }
    asking.abort();
    assert_eq!(fixture.logins.access_token("x").await.unwrap().expose(), "access-token-1");
    assert_eq!(renewals(&provider).len(), 1);
}

#[tokio::test]
async fn an_unreadable_login_is_reported_and_replaced_by_the_next_one() {
    let (_provider, fixture) = logged_in(|_| granted(1)).await;
    let file = fixture.folder.path().join("secrets/login-x");
    std::fs::write(&file, "{\"access_token\":\"half of a s3cret").unwrap();
    let text = fixture.logins.access_token("x").await.unwrap_err().to_string();
    assert!(text.contains("parlor login x") && !text.contains("s3cret"), "{text}");
    assert!(matches!(fixture.logins.statuses().await.unwrap()[0].state, LoginState::Unreadable(_)));
    fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert_eq!(fixture.logins.access_token("x").await.unwrap(), Secret::new("access-token-0"));
}
