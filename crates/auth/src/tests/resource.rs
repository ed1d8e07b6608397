//! Logins to a server that says itself how to log in.

use std::sync::OnceLock;

use super::browser::{authorize_query, visit_callback};
use super::*;
use crate::{AccessError, ResourceDeps, ResourceLogin, ResourceServer, Secret};

/// A server that is its own authorization server, and what each of its documents says.
struct FakeServer {
    provider: FakeProvider,
    time: Arc<FakeTime>,
    redactor: Redactor,
    folder: tempfile::TempDir,
}

/// Changes a document before it is sent. Gets its path and its content.
type Change = fn(&str, &mut Value);

impl FakeServer {
    async fn new(change: Change) -> Self {
        let own: Arc<OnceLock<String>> = Arc::default();
        let known = Arc::clone(&own);
        let provider = FakeProvider::new(move |request, _| {
            let own = own.get().unwrap();
            let mut document = match request.path.as_str() {
                "/mcp" if request.authorization.is_none() => {
                    let metadata = format!("{own}/.well-known/oauth-protected-resource/mcp");
                    let mut challenge = json!({"resource_metadata": metadata, "scope": "files:read"});
                    change("challenge", &mut challenge);
                    let parts = challenge.as_object().unwrap().iter();
                    let parts: Vec<String> = parts.map(|(name, value)| format!("{name}={value}")).collect();
                    return Reply::Challenge(format!("Bearer {}", parts.join(", ")));
                }
                "/.well-known/oauth-protected-resource/mcp" => json!({
                    "resource": format!("{own}/mcp"),
                    "authorization_servers": [own],
                    "scopes_supported": ["all"],
                }),
                "/.well-known/oauth-authorization-server" => json!({
                    "issuer": own,
                    "authorization_endpoint": format!("{own}/authorize"),
                    "token_endpoint": format!("{own}/token"),
                    "registration_endpoint": format!("{own}/register"),
                    "code_challenge_methods_supported": ["S256"],
                    "scopes_supported": ["offline_access"],
                    "authorization_response_iss_parameter_supported": true,
                }),
                "/register" => json!({"client_id": "registered", "client_secret": "not-asked-for"}),
                "/token" => return granted(u32::from(request.body.contains("grant_type=refresh_token")) + 1),
                _ => return Reply::Text(404, String::new()),
            };
            change(&request.path, &mut document);
            if document.is_null() { Reply::Text(404, String::new()) } else { Reply::Json(200, document) }
        })
        .await;
        known.set(provider.address.clone()).unwrap();
        let (time, redactor) = (Arc::new(FakeTime::default()), Redactor::new());
        Self { provider, time, redactor, folder: tempfile::tempdir().unwrap() }
    }

    fn login(&self, change: impl FnOnce(&mut ResourceServer)) -> ResourceLogin {
        let url = format!("{}/mcp", self.provider.address);
        let mut server = ResourceServer { name: "files".to_owned(), url, ..ResourceServer::default() };
        change(&mut server);
        let deps = ResourceDeps {
            store: SecretStore::open(self.folder.path()).unwrap(),
            clock: Arc::clone(&self.time) as _,
            redactor: self.redactor.clone(),
            admits_peer: Arc::new(|_| true),
        };
        ResourceLogin::new(server, deps)
    }

    /// Logs in, with a browser that answers with the code and `iss`.
    async fn log_in(&self, login: &ResourceLogin, iss: &str) -> Vec<LoginProgress> {
        let mut flow = login.start().await.unwrap();
        let query = authorize_query(&mut flow).await;
        let answer = format!("code=the-code&state={}&iss={iss}", query["state"]);
        visit_callback(&query["redirect_uri"], &answer).await;
        all_progress(flow).await
    }

    fn request(&self, path: &str) -> ReceivedRequest {
        self.provider.requests().into_iter().rfind(|request| request.path == path).unwrap()
    }
}

fn unchanged(_: &str, _: &mut Value) {}

#[tokio::test]
async fn parlor_registers_logs_in_and_renews_with_the_resource() {
    let server = FakeServer::new(unchanged).await;
    let login = server.login(|_| {});
    assert_eq!(login.access_token().await, Ok(None));
    let mut flow = login.start().await.unwrap();
    let query = authorize_query(&mut flow).await;
    let resource = format!("{}/mcp", server.provider.address);
    for (name, value) in [
        ("client_id", "registered"),
        ("resource", resource.as_str()),
        ("scope", "files:read offline_access"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(query[name], value, "{name}");
    }
    let registered: Value = serde_json::from_str(&server.request("/register").body).unwrap();
    assert_eq!(registered["redirect_uris"], json!([query["redirect_uri"]]));
    assert_eq!(registered["token_endpoint_auth_method"], "none");
    assert_eq!(registered["application_type"], "native");
    assert!(registered.get("resource").is_none());
    let answer = format!("code=the-code&state={}&iss={}", query["state"], server.provider.address);
    visit_callback(&query["redirect_uri"], &answer).await;
    assert!(matches!(all_progress(flow).await.last(), Some(LoginProgress::Completed(_))));
    let exchange = server.request("/token");
    assert_eq!(exchange.form("resource").as_deref(), Some(resource.as_str()));
    assert_eq!(exchange.authorization, None, "a secret that nobody asked for is not sent");
    // Another process uses it.
    let login = server.login(|_| {});
    assert_eq!(login.access_token().await, Ok(Some(Secret::new("access-token-1"))));
    server.time.advance(Duration::from_secs(3600));
    assert_eq!(login.access_token().await, Ok(Some(Secret::new("access-token-2"))));
    let renewal = server.request("/token");
    assert_eq!(renewal.form("resource").as_deref(), Some(resource.as_str()));
    assert_eq!(renewal.form("refresh_token").as_deref(), Some("refresh-token-1"));
    assert!(!server.redactor.redact("refresh-token-2").contains("token-2"));
    // The token of one address is not sent to another.
    let elsewhere = server.login(|server| server.url.push_str("/other"));
    assert_eq!(elsewhere.access_token().await, Ok(None));
    assert_eq!((login.logout().await, login.access_token().await), (Ok(true), Ok(None)));
}

#[tokio::test]
async fn a_configured_client_is_not_registered_and_its_secret_is_sent_as_the_server_wants() {
    for (methods, has_header) in
        [(json!(["client_secret_basic"]), true), (json!(["client_secret_post"]), false)]
    {
        let server = match has_header {
            true => FakeServer::new(|path, document| {
                if path == "/.well-known/oauth-authorization-server" {
                    document["token_endpoint_auth_methods_supported"] = json!(["client_secret_basic"]);
                }
            }),
            false => FakeServer::new(|path, document| {
                if path == "/.well-known/oauth-authorization-server" {
                    document["token_endpoint_auth_methods_supported"] = json!(["client_secret_post"]);
                }
            }),
        };
        let server = server.await;
        let login = server.login(|server| {
            server.client_id = Some("configured".to_owned());
            server.client_secret = Some(Secret::new("configured-secret"));
        });
        let progress = server.log_in(&login, &server.provider.address).await;
        assert!(matches!(progress.last(), Some(LoginProgress::Completed(_))), "{progress:?}");
        let exchange = server.request("/token");
        assert_eq!(exchange.authorization.is_some(), has_header, "{methods}");
        assert_eq!(exchange.form("client_secret").is_some(), !has_header, "{methods}");
        assert!(server.provider.requests().iter().all(|request| request.path != "/register"));
    }
}

#[tokio::test]
async fn documents_that_do_not_fit_together_end_the_login() {
    let cases: [(&str, Change); 10] = [
        ("another resource", |path, document| {
            if path.contains("protected-resource") {
                document["resource"] = "https://other.example/mcp".into();
            }
        }),
        ("another issuer", |path, document| {
            if path.contains("authorization-server") {
                document["issuer"] = "https://other.example".into();
            }
        }),
        ("does not offer PKCE", |path, document| {
            if path.contains("authorization-server") {
                document["code_challenge_methods_supported"] = json!(["plain"]);
            }
        }),
        (
            "lets nobody register; get a client id there and run: parlor mcp login files --client-id ID",
            |path, document| {
                if path.contains("authorization-server") {
                    document.as_object_mut().unwrap().remove("registration_endpoint");
                }
            },
        ),
        ("token_endpoint names an address", |path, document| {
            if path.contains("authorization-server") {
                document["token_endpoint"] = "http://10.0.0.1/token".into();
            }
        }),
        ("names no authorization server", |path, document| {
            if path.contains("protected-resource") {
                document["authorization_servers"] = json!(["http://169.254.169.254/"]);
            }
        }),
        ("resource_metadata names an address", |path, document| {
            if path == "challenge" {
                document["resource_metadata"] = "http://192.168.1.1/metadata".into();
            }
        }),
        ("has no metadata", |path, document| {
            if path.contains("authorization-server") {
                *document = Value::Null;
            }
        }),
        ("metadata is not valid", |path, document| {
            if path.contains("protected-resource") {
                *document = json!([1]);
            }
        }),
        ("wants scopes of more than", |path, document| {
            if path == "challenge" {
                document["scope"] = "x".repeat(5000).into();
            }
        }),
    ];
    for (reason, change) in cases {
        let server = FakeServer::new(change).await;
        let error = server.login(|_| {}).start().await.map(drop).unwrap_err();
        assert!(
            matches!(error, LoginError::Discovery(_)) && error.to_string().contains(reason),
            "{reason}: {error}"
        );
    }
}

#[tokio::test]
async fn an_answer_from_another_issuer_brings_no_token() {
    let server = FakeServer::new(unchanged).await;
    let login = server.login(|_| {});
    let progress = server.log_in(&login, "https://evil.example").await;
    assert_eq!(failure(&progress), LoginError::IssuerMismatch);
    assert!(server.provider.requests().iter().all(|request| request.path != "/token"));
    assert_eq!(login.access_token().await, Ok(None));
}

#[tokio::test]
async fn a_login_that_cannot_be_renewed_has_ended() {
    let server = FakeServer::new(unchanged).await;
    let login = server.login(|_| {});
    server.log_in(&login, &server.provider.address).await;
    let refused = Secret::new("access-token-1");
    assert_eq!(login.replacement_token(&refused).await, Ok(Some(Secret::new("access-token-2"))));
    assert!(matches!(
        server.login(|server| server.name = "x y".to_owned()).access_token().await,
        Err(AccessError::Local(_))
    ));
}
