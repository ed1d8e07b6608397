//! Logging out, and how it stands with logins.

use super::*;
use crate::{LoginFlow, LoginState, SecretName};

async fn logged_in(revoke: u16, draft: impl FnOnce(&Peer) -> ProviderDraft) -> (Peer, House) {
    let peer = Peer::new(move |seen, _| match seen.path.as_str() {
        "/device" => Say::Json(
            200,
            json!({"device_code": "d", "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60}),
        ),
        "/revoke" => Say::Text(revoke, String::new()),
        _ => granted(0),
    })
    .await;
    let house = House::new(draft(&peer));
    house.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    (peer, house)
}

#[tokio::test]
async fn logging_out_can_be_left_to_another_thread() {
    let (_peer, house) = logged_in(200, Peer::draft).await;
    let logins = house.logins.clone();
    let done = tokio::spawn(async move { logins.logout("x").await }).await.unwrap();
    assert!(done.unwrap().existed);
}

#[tokio::test]
async fn logging_out_revokes_and_forgets() {
    let (peer, house) = logged_in(200, Peer::draft).await;
    let status = &house.logins.statuses().await.unwrap()[0];
    assert_eq!(house.logins.status("x").await.as_ref(), Some(status));
    assert_eq!(house.logins.status("y").await, None);
    assert_eq!((&status.state, status.renewable, status.configured), (&LoginState::LoggedIn, true, true));
    assert_eq!(status.expires_at, Some(Timestamp(3_600_000)));
    assert!(status.place.ends_with("secrets/login-x"), "{}", status.place);

    let done = house.logins.logout("x").await.unwrap();
    assert_eq!((done.existed, done.revoked), (true, Ok(true)));
    let request = peer.seen().pop().unwrap();
    assert_eq!(
        (request.path.as_str(), request.form("token").as_deref()),
        ("/revoke", Some("refresh-token-0"))
    );
    assert_eq!(house.logins.statuses().await.unwrap()[0].state, LoginState::LoggedOut);
    assert!(!house.logins.logout("x").await.unwrap().existed);
}

#[tokio::test]
async fn a_provider_that_does_not_hear_of_it_keeps_nobody_logged_in() {
    let (_peer, house) = logged_in(500, Peer::draft).await;
    let done = house.logins.logout("x").await.unwrap();
    assert_eq!((done.existed, done.revoked), (true, Err("status 500".to_owned())));
    assert_eq!(house.logins.statuses().await.unwrap()[0].state, LoginState::LoggedOut);

    let (peer, house) =
        logged_in(200, |peer| ProviderDraft { revoke_url: String::new(), ..peer.draft() }).await;
    assert_eq!(house.logins.logout("x").await.unwrap().revoked, Ok(false));
    assert!(peer.seen().iter().all(|seen| seen.path != "/revoke"));
}

#[tokio::test]
async fn a_login_to_a_provider_that_is_not_configured_any_more_is_listed_and_forgotten() {
    let (peer, house) = logged_in(200, Peer::draft).await;
    let store = SecretStore::open(house.folder.path()).unwrap();
    let text = store.read(&SecretName::login("x").unwrap()).unwrap().unwrap();
    store.write(&SecretName::login("old").unwrap(), &text).unwrap();
    store.write(&SecretName::key("exa").unwrap(), &text).unwrap();
    let statuses = house.logins.statuses().await.unwrap();
    let listed: Vec<_> =
        statuses.iter().map(|status| (status.provider.as_str(), status.configured)).collect();
    assert_eq!(listed, [("old", false), ("x", true)]);
    let before = peer.seen().len();
    assert!(house.logins.logout("old").await.unwrap().existed);
    assert_eq!(peer.seen().len(), before);
    assert!(house.logins.logout("../x").await.is_err());
}

#[tokio::test]
async fn an_expired_login_without_a_refresh_token_is_over() {
    let peer = Peer::new(|seen, _| match seen.path.as_str() {
        "/device" => Say::Json(
            200,
            json!({"device_code": "d", "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60}),
        ),
        _ => Say::Json(200, json!({"access_token": "only-this-one", "token_type": "bearer", "expires_in": 60})),
    })
    .await;
    let house = House::new(peer.draft());
    house.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert_eq!(house.logins.access("x").await.unwrap().expose(), "only-this-one");
    house.time.pass(Duration::from_secs(60));
    assert_eq!(house.logins.statuses().await.unwrap()[0].state, LoginState::Expired);
    assert!(house.logins.access("x").await.unwrap_err().to_string().contains("run: parlor login x"));
    assert!(matches!(house.logins.statuses().await.unwrap()[0].state, LoginState::Ended(_)));
}

#[tokio::test]
async fn what_lacks_its_client_secret_can_only_be_forgotten() {
    let (peer, house) = logged_in(200, Peer::draft).await;
    let asked = peer.seen().len();
    let provider = peer.draft().check("x").unwrap().without_client_secret("X_SECRET is not set");
    let logins = LoginManager::new(LoginDeps {
        providers: vec![provider],
        store: SecretStore::open(house.folder.path()).unwrap(),
        clock: Arc::clone(&house.time) as _,
        redactor: Redactor::new(),
        admits_peer: Arc::new(|_| true),
    });
    assert_eq!(logins.start("x", LoginRequest::default()).unwrap_err().to_string(), "X_SECRET is not set");
    assert_eq!(logins.access("x").await.unwrap().expose(), "access-token-0");
    house.time.pass(Duration::from_secs(3600));
    assert_eq!(logins.access("x").await.unwrap_err().to_string(), "X_SECRET is not set");
    let done = logins.logout("x").await.unwrap();
    assert_eq!((done.existed, done.revoked), (true, Err("X_SECRET is not set".to_owned())));
    assert_eq!(peer.seen().len(), asked, "the provider is not asked for anything");
}
