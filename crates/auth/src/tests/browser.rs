//! The browser flow.

use std::collections::HashMap;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;

use super::*;
use crate::{LoginFlow, MAX_FLOWS};

/// The query parameters of the URL that the user must open.
pub(super) async fn authorize_query(flow: &mut PendingLogin) -> HashMap<String, String> {
    assert_eq!(flow.next().await, Some(LoginProgress::Started));
    let Some(LoginProgress::Url { flow: LoginFlow::Browser, url }) = flow.next().await else {
        panic!("no URL")
    };
    Url::parse(&url).unwrap().query_pairs().into_owned().collect()
}

/// Requests the callback URL, as a redirected browser does.
pub(super) async fn visit_callback(redirect: &str, query: &str) -> String {
    let url = Url::parse(redirect).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", url.port().unwrap())).await.unwrap();
    let request = format!("GET {}?{query} HTTP/1.1\r\nHost: {}\r\n\r\n", url.path(), url.authority());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_browser_login_exchanges_the_code_and_stores_the_tokens() {
    let provider = FakeProvider::new(|_, _| granted(1)).await;
    let draft = ProviderDraft {
        authorize_params: vec![("audience".to_owned(), "a b".to_owned())],
        redirect_host: "localhost".to_owned(),
        redirect_path: "/auth/callback".to_owned(),
        ..provider.draft()
    };
    let fixture = Fixture::new(draft);
    let request = LoginRequest {
        preference: LoginPreference::Only(LoginFlow::Browser),
        authorize_params: vec![("originator".to_owned(), "test".to_owned())],
    };
    let mut flow = fixture.logins.start("x", request).unwrap();
    let query = authorize_query(&mut flow).await;
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", "us"),
        ("scope", "read write"),
        ("code_challenge_method", "S256"),
        ("audience", "a b"),
        ("originator", "test"),
    ] {
        assert_eq!(query[name], value, "{name}");
    }
    assert!(query["state"].len() >= 43 && query["code_challenge"].len() == 43);
    let redirect = &query["redirect_uri"];
    assert!(redirect.starts_with("http://localhost:") && redirect.ends_with("/auth/callback"), "{redirect}");

    let page = visit_callback(redirect, &format!("code=the-code&state={}", query["state"])).await;
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    let Some(LoginProgress::Completed(login)) = flow.next().await else { panic!("not completed") };
    assert_eq!((login.provider.as_str(), login.flow, login.account), ("x", LoginFlow::Browser, None));
    assert_eq!(flow.next().await, None);

    let exchange = &provider.requests()[0];
    assert_eq!(exchange.path, "/token");
    for (name, value) in [
        ("grant_type", "authorization_code"),
        ("code", "the-code"),
        ("client_id", "us"),
        ("redirect_uri", redirect),
    ] {
        assert_eq!(exchange.form(name).as_deref(), Some(value), "{name}");
    }
    // The verifier, 64 random bytes, matches the challenge.
    let verifier = oauth2::PkceCodeVerifier::new(exchange.form("code_verifier").unwrap());
    assert_eq!(verifier.secret().len(), 86);
    assert_eq!(
        oauth2::PkceCodeChallenge::from_code_verifier_sha256(&verifier).as_str(),
        query["code_challenge"]
    );
    assert_eq!(fixture.logins.access_token("x").await.unwrap().expose(), "access-token-1");
}

#[tokio::test]
async fn a_client_with_a_secret_authenticates_with_basic() {
    let provider = FakeProvider::new(|_, _| granted(1)).await;
    let folder = tempfile::tempdir().unwrap();
    let redactor = Redactor::new();
    let config = provider.draft().check("x").unwrap().with_client_secret(crate::Secret::new("client/secret"));
    let logins = LoginManager::new(LoginDeps {
        providers: vec![config],
        store: SecretStore::open(folder.path()).unwrap(),
        clock: Arc::new(FakeTime::default()),
        redactor: redactor.clone(),
        admits_peer: Arc::new(|_| true),
    });
    let mut flow = logins.start("x", LoginRequest::default()).unwrap();
    let query = authorize_query(&mut flow).await;
    visit_callback(&query["redirect_uri"], &format!("code=c&state={}", query["state"])).await;
    assert!(matches!(flow.next().await, Some(LoginProgress::Completed(_))));
    let authorization = provider.requests()[0].authorization.clone().unwrap();
    let expected = base64_simd::STANDARD.encode_to_string("us:client%2Fsecret");
    assert_eq!(authorization, format!("Basic {expected}"));
    assert!(redactor.redact(&authorization).contains(crate::REDACTED), "{}", redactor.redact(&authorization));
    assert_eq!(redactor.redact("client/secret"), crate::REDACTED);
}

#[tokio::test]
async fn a_wrong_state_fails_the_login() {
    let provider = FakeProvider::new(|_, _| granted(1)).await;
    let fixture = Fixture::new(provider.draft());
    let mut flow = fixture.start(LoginPreference::Browser);
    let query = authorize_query(&mut flow).await;
    let page = visit_callback(&query["redirect_uri"], "code=c&state=forged").await;
    assert!(page.starts_with("HTTP/1.1 400 "), "{page}");
    assert_eq!(flow.next().await, Some(LoginProgress::Failed(LoginError::StateMismatch)));
    assert!(provider.requests().is_empty(), "no code is exchanged");
    assert!(fixture.logins.access_token("x").await.unwrap_err().to_string().contains("parlor login x"));
}

#[tokio::test]
async fn a_failed_exchange_is_reported_with_its_status() {
    let provider = FakeProvider::new(|_, _| refused(400, "invalid_grant")).await;
    let fixture = Fixture::new(provider.draft());
    let mut flow = fixture.start(LoginPreference::Browser);
    let query = authorize_query(&mut flow).await;
    visit_callback(&query["redirect_uri"], &format!("code=c&state={}", query["state"])).await;
    let reason = "because of invalid_grant".to_owned();
    assert_eq!(
        all_progress(flow).await,
        [LoginProgress::Failed(LoginError::Exchange { status: Some(400), reason })]
    );
}

#[tokio::test]
async fn cancelling_or_dropping_a_login_closes_its_callback() {
    let provider = FakeProvider::new(|_, _| granted(1)).await;
    let fixture = Fixture::new(provider.draft());
    let mut flow = fixture.start(LoginPreference::Browser);
    let query = authorize_query(&mut flow).await;
    flow.cancel_token().cancel();
    assert_eq!(all_progress(flow).await, [LoginProgress::Cancelled]);
    let port = Url::parse(&query["redirect_uri"]).unwrap().port().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err(), "the port is closed");

    let mut flow = fixture.start(LoginPreference::Browser);
    let port = Url::parse(&authorize_query(&mut flow).await["redirect_uri"]).unwrap().port().unwrap();
    drop(flow);
    while TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_login_times_out() {
    let provider = FakeProvider::new(|_, _| granted(1)).await;
    let wait = Duration::from_millis(20);
    let fixture = Fixture::new(ProviderDraft { login_wait: Some(wait), ..provider.draft() });
    assert_eq!(failure(&fixture.log_in(LoginPreference::Browser).await), LoginError::TimedOut(wait));
}

#[tokio::test]
async fn the_number_of_pending_logins_is_limited() {
    let provider = FakeProvider::new(|_, _| granted(1)).await;
    let fixture = Fixture::new(provider.draft());
    let mut flows: Vec<PendingLogin> =
        (0..MAX_FLOWS).map(|_| fixture.start(LoginPreference::Browser)).collect();
    let refused = fixture.logins.start("x", LoginRequest::default()).unwrap_err();
    assert_eq!(refused, LoginError::TooMany { limit: MAX_FLOWS });
    let ended = flows.pop().unwrap();
    ended.cancel();
    all_progress(ended).await;
    // The permit is released shortly after the last progress.
    while fixture.logins.start("x", LoginRequest::default()).is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_error_for_an_unknown_provider_lists_the_known_ones() {
    let provider = FakeProvider::new(|_, _| granted(1)).await;
    let fixture = Fixture::new(provider.draft());
    let text = fixture.logins.start("y", LoginRequest::default()).unwrap_err().to_string();
    assert!(text.contains("\"y\"; there are: x;"), "{text}");
    assert!(fixture.logins.access_token("y").await.unwrap_err().to_string().contains("there are: x"));
}
