//! The browser flow.

use std::collections::HashMap;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;

use super::*;
use crate::{LoginFlow, MAX_FLOWS};

/// The address that the user is to open, with its query.
async fn opened(flow: &mut PendingLogin) -> HashMap<String, String> {
    assert_eq!(flow.next().await, Some(LoginProgress::Started));
    let Some(LoginProgress::Url { way: LoginFlow::Browser, url }) = flow.next().await else {
        panic!("no address")
    };
    Url::parse(&url).unwrap().query_pairs().into_owned().collect()
}

/// Comes back to the callback, as a browser does.
async fn come_back(redirect: &str, query: &str) -> String {
    let url = Url::parse(redirect).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", url.port().unwrap())).await.unwrap();
    let request = format!("GET {}?{query} HTTP/1.1\r\nHost: {}\r\n\r\n", url.path(), url.authority());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_browser_brings_the_code_and_the_login_is_kept() {
    let peer = Peer::new(|_, _| granted(1)).await;
    let draft = ProviderDraft {
        authorize_params: vec![("audience".to_owned(), "a b".to_owned())],
        redirect_host: "localhost".to_owned(),
        redirect_path: "/auth/callback".to_owned(),
        ..peer.draft()
    };
    let house = House::new(draft);
    let request = LoginRequest {
        way: LoginPreference::Only(LoginFlow::Browser),
        authorize_params: vec![("originator".to_owned(), "test".to_owned())],
    };
    let mut flow = house.logins.start("x", request).unwrap();
    let query = opened(&mut flow).await;
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

    let page = come_back(redirect, &format!("code=the-code&state={}", query["state"])).await;
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    let Some(LoginProgress::Completed(login)) = flow.next().await else { panic!("not completed") };
    assert_eq!((login.provider.as_str(), login.way, login.account), ("x", LoginFlow::Browser, None));
    assert_eq!(flow.next().await, None);

    let exchange = &peer.seen()[0];
    assert_eq!(exchange.path, "/token");
    for (name, value) in [
        ("grant_type", "authorization_code"),
        ("code", "the-code"),
        ("client_id", "us"),
        ("redirect_uri", redirect),
    ] {
        assert_eq!(exchange.form(name).as_deref(), Some(value), "{name}");
    }
    // The verifier fits the challenge, which is 64 random bytes.
    let verifier = oauth2::PkceCodeVerifier::new(exchange.form("code_verifier").unwrap());
    assert_eq!(verifier.secret().len(), 86);
    assert_eq!(
        oauth2::PkceCodeChallenge::from_code_verifier_sha256(&verifier).as_str(),
        query["code_challenge"]
    );
    assert_eq!(house.logins.access("x").await.unwrap().expose(), "access-token-1");
}

#[tokio::test]
async fn a_client_with_a_secret_says_who_it_is() {
    let peer = Peer::new(|_, _| granted(1)).await;
    let folder = tempfile::tempdir().unwrap();
    let redactor = Redactor::new();
    let provider = peer.draft().check("x").unwrap().with_client_secret(crate::Secret::new("client/secret"));
    let logins = LoginManager::new(LoginDeps {
        providers: vec![provider],
        store: SecretStore::open(folder.path()).unwrap(),
        clock: Arc::new(Invented::default()),
        redactor: redactor.clone(),
        admits_peer: Arc::new(|_| true),
    });
    let mut flow = logins.start("x", LoginRequest::default()).unwrap();
    let query = opened(&mut flow).await;
    come_back(&query["redirect_uri"], &format!("code=c&state={}", query["state"])).await;
    assert!(matches!(flow.next().await, Some(LoginProgress::Completed(_))));
    let authorization = peer.seen()[0].authorization.clone().unwrap();
    let expected = base64_simd::STANDARD.encode_to_string("us:client%2Fsecret");
    assert_eq!(authorization, format!("Basic {expected}"));
    assert!(redactor.redact(&authorization).contains(crate::REDACTED), "{}", redactor.redact(&authorization));
    assert_eq!(redactor.redact("client/secret"), crate::REDACTED);
}

#[tokio::test]
async fn a_wrong_state_ends_the_login_and_keeps_what_was_there() {
    let peer = Peer::new(|_, _| granted(1)).await;
    let house = House::new(peer.draft());
    let mut flow = house.start(LoginPreference::Browser);
    let query = opened(&mut flow).await;
    let page = come_back(&query["redirect_uri"], "code=c&state=forged").await;
    assert!(page.starts_with("HTTP/1.1 400 "), "{page}");
    assert_eq!(flow.next().await, Some(LoginProgress::Failed(LoginError::StateMismatch)));
    assert!(peer.seen().is_empty(), "nothing is exchanged");
    assert!(house.logins.access("x").await.unwrap_err().to_string().contains("parlor login x"));
}

#[tokio::test]
async fn a_code_that_is_not_taken_is_reported_with_its_status() {
    let peer = Peer::new(|_, _| refused(400, "invalid_grant")).await;
    let house = House::new(peer.draft());
    let mut flow = house.start(LoginPreference::Browser);
    let query = opened(&mut flow).await;
    come_back(&query["redirect_uri"], &format!("code=c&state={}", query["state"])).await;
    let reason = "because of invalid_grant".to_owned();
    assert_eq!(all(flow).await, [LoginProgress::Failed(LoginError::Exchange { status: Some(400), reason })]);
}

#[tokio::test]
async fn a_login_is_cancelled_by_word_and_by_leaving() {
    let peer = Peer::new(|_, _| granted(1)).await;
    let house = House::new(peer.draft());
    let mut flow = house.start(LoginPreference::Browser);
    let query = opened(&mut flow).await;
    flow.cancel_token().cancel();
    assert_eq!(all(flow).await, [LoginProgress::Cancelled]);
    let port = Url::parse(&query["redirect_uri"]).unwrap().port().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err(), "nobody listens any more");

    let mut flow = house.start(LoginPreference::Browser);
    let port = Url::parse(&opened(&mut flow).await["redirect_uri"]).unwrap().port().unwrap();
    drop(flow);
    while TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_login_ends_when_its_time_is_up() {
    let peer = Peer::new(|_, _| granted(1)).await;
    let wait = Duration::from_millis(20);
    let house = House::new(ProviderDraft { login_wait: Some(wait), ..peer.draft() });
    assert_eq!(failure(&house.log_in(LoginPreference::Browser).await), LoginError::TimedOut(wait));
}

#[tokio::test]
async fn only_so_many_logins_are_under_way() {
    let peer = Peer::new(|_, _| granted(1)).await;
    let house = House::new(peer.draft());
    let mut flows: Vec<PendingLogin> =
        (0..MAX_FLOWS).map(|_| house.start(LoginPreference::Browser)).collect();
    let refused = house.logins.start("x", LoginRequest::default()).unwrap_err();
    assert_eq!(refused, LoginError::TooMany { limit: MAX_FLOWS });
    let ended = flows.pop().unwrap();
    ended.cancel();
    all(ended).await;
    // The place is free a moment after the last word.
    while house.logins.start("x", LoginRequest::default()).is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_provider_that_is_not_configured_is_answered_with_those_that_are() {
    let peer = Peer::new(|_, _| granted(1)).await;
    let house = House::new(peer.draft());
    let said = house.logins.start("y", LoginRequest::default()).unwrap_err().to_string();
    assert!(said.contains("\"y\"; there are: x;"), "{said}");
    assert!(house.logins.access("y").await.unwrap_err().to_string().contains("there are: x"));
}
