//! Renewal: in time, once, and until the provider says no.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::{AccessError, LoginFlow, LoginState, REFRESH_MARGIN, Secret};

const HOUR: Duration = Duration::from_secs(3600);

/// Logs in to a provider whose renewals, counted from 1, are answered so.
async fn logged_in(renewals: impl Fn(usize) -> Say + Send + Sync + 'static) -> (Peer, House) {
    let count = AtomicUsize::new(0);
    let peer = Peer::new(move |seen, _| match (seen.path.as_str(), seen.form("grant_type").as_deref()) {
        ("/device", _) => Say::Json(
            200,
            json!({"device_code": "d", "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60}),
        ),
        (_, Some("refresh_token")) => renewals(count.fetch_add(1, Ordering::SeqCst) + 1),
        _ => granted(0),
    })
    .await;
    let house = House::new(peer.draft());
    let told = house.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert!(matches!(told.last(), Some(LoginProgress::Completed(_))), "{told:?}");
    (peer, house)
}

fn renewals(peer: &Peer) -> Vec<String> {
    peer.seen().iter().filter_map(|seen| seen.form("refresh_token")).collect()
}

#[tokio::test]
async fn a_token_is_used_until_shortly_before_it_expires() {
    let (peer, house) = logged_in(|_| granted(1)).await;
    assert_eq!(house.logins.access("x").await.unwrap().expose(), "access-token-0");
    house.time.pass(HOUR - REFRESH_MARGIN - Duration::from_secs(1));
    assert_eq!(house.logins.access("x").await.unwrap().expose(), "access-token-0");
    house.time.pass(Duration::from_secs(1));
    assert_eq!(house.logins.access("x").await.unwrap().expose(), "access-token-1");
    assert_eq!(house.logins.access("x").await.unwrap().expose(), "access-token-1");
    assert_eq!(renewals(&peer), ["refresh-token-0"]);
    // The refresh token was changed as well, and the new one is the one that counts.
    house.time.pass(HOUR);
    house.logins.access("x").await.unwrap();
    assert_eq!(renewals(&peer), ["refresh-token-0", "refresh-token-1"]);
}

#[tokio::test]
async fn a_provider_that_keeps_the_refresh_token_need_not_repeat_it() {
    let token =
        || Say::Json(200, json!({"access_token": "second", "token_type": "bearer", "expires_in": 60}));
    let (peer, house) = logged_in(move |_| token()).await;
    for _ in 0..2 {
        house.time.pass(HOUR);
        assert_eq!(house.logins.access("x").await.unwrap().expose(), "second");
    }
    assert_eq!(renewals(&peer), ["refresh-token-0", "refresh-token-0"]);
}

#[tokio::test]
async fn many_who_need_it_renew_once_in_one_process_and_in_several() {
    let (peer, house) = logged_in(|number| granted(u32::try_from(number).unwrap())).await;
    house.time.pass(HOUR);
    let another = House::open(peer.draft(), Http::new(), house.folder.path(), &house.time, &house.redactor);
    let asking = (0..20).map(|number| {
        let logins = if number % 2 == 0 { house.logins.clone() } else { another.clone() };
        tokio::spawn(async move { logins.access("x").await })
    });
    for token in asking.collect::<Vec<_>>() {
        assert_eq!(token.await.unwrap().unwrap().expose(), "access-token-1");
    }
    assert_eq!(renewals(&peer).len(), 1);
}

#[tokio::test]
async fn a_refused_token_is_renewed_once() {
    let (peer, house) = logged_in(|_| granted(1)).await;
    let refused = house.logins.access("x").await.unwrap();
    for _ in 0..2 {
        let token = house.logins.replacement_token("x", &refused).await.unwrap();
        assert_eq!(token.expose(), "access-token-1");
    }
    assert_eq!(renewals(&peer).len(), 1);
}

#[tokio::test]
async fn a_login_that_was_revoked_has_ended_and_says_what_to_do() {
    let (peer, house) = logged_in(|_| refused(400, "invalid_grant")).await;
    house.time.pass(HOUR);
    for _ in 0..2 {
        let said = house.logins.access("x").await.unwrap_err().to_string();
        assert_eq!(said, "the login to x has ended: because of invalid_grant; run: parlor login x");
    }
    assert_eq!(renewals(&peer).len(), 1, "the provider is not asked again");
    let status = &house.logins.statuses().await.unwrap()[0];
    assert_eq!(status.state, LoginState::Ended("because of invalid_grant".to_owned()));
    let kept = std::fs::read_to_string(house.folder.path().join("secrets/login-x")).unwrap();
    assert!(!kept.contains("token-0"), "what is of no use is forgotten: {kept}");
    house.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert_eq!(house.logins.access("x").await.unwrap().expose(), "access-token-0");
}

#[tokio::test]
async fn a_provider_in_trouble_does_not_end_a_login() {
    let healthy = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&healthy);
    let (_peer, house) = logged_in(move |_| {
        if now.load(Ordering::SeqCst) { granted(1) } else { Say::Text(502, "bad gateway".to_owned()) }
    })
    .await;
    // While the old one still works, it is used.
    house.time.pass(HOUR - Duration::from_secs(1));
    assert_eq!(house.logins.access("x").await.unwrap().expose(), "access-token-0");
    house.time.pass(HOUR);
    let error = house.logins.access("x").await.unwrap_err();
    assert!(matches!(error, AccessError::Unavailable { status: Some(502), .. }), "{error:?}");
    healthy.store(true, Ordering::SeqCst);
    assert_eq!(house.logins.access("x").await.unwrap().expose(), "access-token-1");
}

#[tokio::test]
async fn whoever_stops_waiting_loses_no_token() {
    let (peer, house) = logged_in(|_| granted(1)).await;
    house.time.pass(HOUR);
    let asking = tokio::spawn({
        let logins = house.logins.clone();
        async move { logins.access("x").await }
    });
    // Until the provider has the old refresh token, and so may have changed it.
    while renewals(&peer).is_empty() {
        tokio::task::yield_now().await;
    }
    asking.abort();
    assert_eq!(house.logins.access("x").await.unwrap().expose(), "access-token-1");
    assert_eq!(renewals(&peer).len(), 1);
}

#[tokio::test]
async fn what_cannot_be_understood_is_said_and_replaced_by_the_next_login() {
    let (_peer, house) = logged_in(|_| granted(1)).await;
    let file = house.folder.path().join("secrets/login-x");
    std::fs::write(&file, "{\"access_token\":\"half of a s3cret").unwrap();
    let said = house.logins.access("x").await.unwrap_err().to_string();
    assert!(said.contains("parlor login x") && !said.contains("s3cret"), "{said}");
    assert!(matches!(house.logins.statuses().await.unwrap()[0].state, LoginState::Unreadable(_)));
    house.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert_eq!(house.logins.access("x").await.unwrap(), Secret::new("access-token-0"));
}
