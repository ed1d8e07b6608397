//! Logout and the status of logins.

use super::*;
use crate::{LoginFlow, LoginState, SecretName};

async fn logged_in(
    revoke: u16,
    draft: impl FnOnce(&FakeProvider) -> ProviderDraft,
) -> (FakeProvider, Fixture) {
    let provider = FakeProvider::new(move |request, _| match request.path.as_str() {
        "/device" => Reply::Json(
            200,
            json!({"device_code": "d", "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60}),
        ),
        "/revoke" => Reply::Text(revoke, String::new()),
        _ => granted(0),
    })
    .await;
    let fixture = Fixture::new(draft(&provider));
    fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    (provider, fixture)
}

#[tokio::test]
async fn the_future_of_a_logout_is_send() {
    let (_provider, fixture) = logged_in(200, FakeProvider::draft).await;
    let logins = fixture.logins.clone();
    let done = tokio::spawn(async move { logins.logout("x").await }).await.unwrap();
    assert!(done.unwrap().existed);
}

#[tokio::test]
async fn a_logout_revokes_and_deletes_the_login() {
    let (provider, fixture) = logged_in(200, FakeProvider::draft).await;
    let status = &fixture.logins.statuses().await.unwrap()[0];
    assert_eq!(fixture.logins.status("x").await.as_ref(), Some(status));
    assert_eq!(fixture.logins.status("y").await, None);
    assert_eq!((&status.state, status.renewable, status.configured), (&LoginState::LoggedIn, true, true));
    assert_eq!(status.expires_at, Some(Timestamp(3_600_000)));
    assert!(status.location.ends_with("secrets/login-x"), "{}", status.location);

    let done = fixture.logins.logout("x").await.unwrap();
    assert_eq!((done.existed, done.revoked), (true, Ok(true)));
    let request = provider.requests().pop().unwrap();
    assert_eq!(
        (request.path.as_str(), request.form("token").as_deref()),
        ("/revoke", Some("refresh-token-0"))
    );
    assert_eq!(fixture.logins.statuses().await.unwrap()[0].state, LoginState::LoggedOut);
    assert!(!fixture.logins.logout("x").await.unwrap().existed);
}

#[tokio::test]
async fn a_failed_revocation_does_not_keep_the_login() {
    let (_provider, fixture) = logged_in(500, FakeProvider::draft).await;
    let done = fixture.logins.logout("x").await.unwrap();
    assert_eq!((done.existed, done.revoked), (true, Err("status 500".to_owned())));
    assert_eq!(fixture.logins.statuses().await.unwrap()[0].state, LoginState::LoggedOut);

    let (provider, fixture) =
        logged_in(200, |provider| ProviderDraft { revoke_url: String::new(), ..provider.draft() }).await;
    assert_eq!(fixture.logins.logout("x").await.unwrap().revoked, Ok(false));
    assert!(provider.requests().iter().all(|request| request.path != "/revoke"));
}

#[tokio::test]
async fn a_login_to_a_removed_provider_is_listed_and_can_be_deleted() {
    let (provider, fixture) = logged_in(200, FakeProvider::draft).await;
    let store = SecretStore::open(fixture.folder.path()).unwrap();
    let text = store.read(&SecretName::login("x").unwrap()).unwrap().unwrap();
    store.write(&SecretName::login("old").unwrap(), &text).unwrap();
    store.write(&SecretName::key("exa").unwrap(), &text).unwrap();
    let statuses = fixture.logins.statuses().await.unwrap();
    let listed: Vec<_> =
        statuses.iter().map(|status| (status.provider.as_str(), status.configured)).collect();
    assert_eq!(listed, [("old", false), ("x", true)]);
    let before = provider.requests().len();
    assert!(fixture.logins.logout("old").await.unwrap().existed);
    assert_eq!(provider.requests().len(), before);
    assert!(fixture.logins.logout("../x").await.is_err());
}

#[tokio::test]
async fn an_expired_login_without_a_refresh_token_ends() {
    let provider = FakeProvider::new(|request, _| match request.path.as_str() {
        "/device" => Reply::Json(
            200,
            json!({"device_code": "d", "user_code": "u", "verification_uri": "https://x.org", "expires_in": 60}),
        ),
        _ => Reply::Json(200, json!({"access_token": "only-this-one", "token_type": "bearer", "expires_in": 60})),
    })
    .await;
    let fixture = Fixture::new(provider.draft());
    fixture.log_in(LoginPreference::Only(LoginFlow::Device)).await;
    assert_eq!(fixture.logins.access_token("x").await.unwrap().expose(), "only-this-one");
    fixture.time.advance(Duration::from_secs(60));
    assert_eq!(fixture.logins.statuses().await.unwrap()[0].state, LoginState::Expired);
    assert!(fixture.logins.access_token("x").await.unwrap_err().to_string().contains("run: parlor login x"));
    assert!(matches!(fixture.logins.statuses().await.unwrap()[0].state, LoginState::Ended(_)));
}

#[tokio::test]
async fn without_its_client_secret_a_login_can_only_be_deleted() {
    let (provider, fixture) = logged_in(200, FakeProvider::draft).await;
    let asked = provider.requests().len();
    let config = provider.draft().check("x").unwrap().without_client_secret("X_SECRET is not set");
    let logins = LoginManager::new(LoginDeps {
        providers: vec![config],
        store: SecretStore::open(fixture.folder.path()).unwrap(),
        clock: Arc::clone(&fixture.time) as _,
        redactor: Redactor::new(),
        admits_peer: Arc::new(|_| true),
    });
    assert_eq!(logins.start("x", LoginRequest::default()).unwrap_err().to_string(), "X_SECRET is not set");
    assert_eq!(logins.access_token("x").await.unwrap().expose(), "access-token-0");
    fixture.time.advance(Duration::from_secs(3600));
    assert_eq!(logins.access_token("x").await.unwrap_err().to_string(), "X_SECRET is not set");
    let done = logins.logout("x").await.unwrap();
    assert_eq!((done.existed, done.revoked), (true, Err("X_SECRET is not set".to_owned())));
    assert_eq!(provider.requests().len(), asked, "the provider gets no request");
}
