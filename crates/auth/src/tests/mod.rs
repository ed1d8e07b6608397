//! Whole logins against a small provider that says what a test wants it to say. `tests/auth` has the
//! same against one that others wrote.

mod bounds;
mod browser;
mod device;
mod logout;
mod page;
mod refresh;
mod variant;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parlor_vocab::{Clock, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::http::Http;
use crate::time::{Pause, Time, Waiting};
use crate::{
    LoginDeps, LoginError, LoginManager, LoginPreference, LoginProgress, LoginRequest, PendingLogin,
    ProviderDraft, Redactor, SecretStore,
};

/// A request that arrived.
#[derive(Clone, Debug)]
struct SessionUpdate {
    path: String,
    authorization: Option<String>,
    body: String,
}

impl SessionUpdate {
    /// A member of the form that was sent.
    fn form(&self, name: &str) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.body.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }
}

/// What is answered.
enum Say {
    Json(u16, Value),
    Text(u16, String),
    /// To another place.
    Redirect(String),
    /// Never.
    Nothing,
}

/// What a request is answered with; how many came before is told.
type Script = Arc<dyn Fn(&SessionUpdate, usize) -> Say + Send + Sync>;

/// A provider on this machine.
struct Peer {
    address: String,
    seen: Arc<Mutex<Vec<SessionUpdate>>>,
}

impl Peer {
    /// One that answers as `script` says.
    async fn new(script: impl Fn(&SessionUpdate, usize) -> Say + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (script, record): (Script, _) = (Arc::new(script), Arc::clone(&seen));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, record) = (Arc::clone(&script), Arc::clone(&record));
                tokio::spawn(async move {
                    let service =
                        service_fn(|request| answer(request, Arc::clone(&script), Arc::clone(&record)));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<SessionUpdate> {
        self.seen.lock().unwrap().clone()
    }

    /// A provider with all endpoints here.
    fn draft(&self) -> ProviderDraft {
        let at = |path: &str| format!("{}{path}", self.address);
        ProviderDraft {
            client_id: "us".to_owned(),
            authorize_url: at("/authorize"),
            token_url: at("/token"),
            revoke_url: at("/revoke"),
            device_url: at("/device"),
            scopes: vec!["read".to_owned(), "write".to_owned()],
            ..ProviderDraft::default()
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    script: Script,
    record: Arc<Mutex<Vec<SessionUpdate>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let authorization = head.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let seen = SessionUpdate { path: head.uri.path().to_owned(), authorization, body };
    let before = {
        let mut record = record.lock().unwrap();
        record.push(seen.clone());
        record.len() - 1
    };
    let (status, kind, text, location) = match script(&seen, before) {
        Say::Json(status, value) => (status, "application/json", value.to_string(), None),
        Say::Text(status, text) => (status, "text/plain", text, None),
        Say::Redirect(to) => (307, "text/plain", String::new(), Some(to)),
        Say::Nothing => std::future::pending().await,
    };
    let response = Response::builder().status(status).header("content-type", kind);
    let response = location.into_iter().fold(response, |response, to| response.header("location", to));
    Ok(response.body(Full::new(Bytes::from(text))).unwrap())
}

/// Tokens that end with `number`, as a provider gives them.
fn granted(number: u32) -> Say {
    Say::Json(
        200,
        json!({
            "access_token": format!("access-token-{number}"),
            "refresh_token": format!("refresh-token-{number}"),
            "token_type": "Bearer",
            "expires_in": 3600,
        }),
    )
}

fn refused(status: u16, code: &str) -> Say {
    Say::Json(status, json!({"error": code, "error_description": format!("because of {code}")}))
}

/// Time that passes only where somebody waits for it, or where a test says so.
#[derive(Default)]
struct Invented {
    now: Mutex<i64>,
    pauses: Mutex<Vec<u64>>,
}

impl Invented {
    fn pass(&self, time: Duration) {
        *self.now.lock().unwrap() += i64::try_from(time.as_millis()).unwrap();
    }

    /// How many seconds were waited for, wait by wait.
    fn pauses(&self) -> Vec<u64> {
        self.pauses.lock().unwrap().clone()
    }
}

impl Clock for Invented {
    fn now(&self) -> Timestamp {
        Timestamp(*self.now.lock().unwrap())
    }
}

/// The same time, for whoever waits.
struct Passing(Arc<Invented>);

impl Pause for Passing {
    fn pause(&self, for_this_long: Duration) -> Waiting {
        self.0.pass(for_this_long);
        self.0.pauses.lock().unwrap().push(for_this_long.as_secs());
        Box::pin(tokio::task::yield_now())
    }
}

/// Logins with a state folder of their own.
struct House {
    logins: LoginManager,
    time: Arc<Invented>,
    redactor: Redactor,
    folder: tempfile::TempDir,
}

impl House {
    fn new(draft: ProviderDraft) -> Self {
        Self::with(draft, Http::new(), tempfile::tempdir().unwrap())
    }

    fn with(draft: ProviderDraft, http: Http, folder: tempfile::TempDir) -> Self {
        let (time, redactor) = (Arc::new(Invented::default()), Redactor::new());
        let logins = Self::open(draft, http, folder.path(), &time, &redactor);
        Self { logins, time, redactor, folder }
    }

    /// The logins of a state folder, as another process would open them.
    fn open(
        draft: ProviderDraft,
        http: Http,
        folder: &std::path::Path,
        time: &Arc<Invented>,
        redactor: &Redactor,
    ) -> LoginManager {
        let means = LoginDeps {
            providers: vec![draft.check("x").unwrap()],
            store: SecretStore::open(folder).unwrap(),
            clock: Arc::clone(time) as _,
            redactor: redactor.clone(),
            admits_peer: Arc::new(|_| true),
        };
        let timer = Arc::new(Passing(Arc::clone(time)));
        LoginManager::with(means, |time| Time { timer, ..time }, http)
    }

    fn start(&self, way: LoginPreference) -> PendingLogin {
        self.logins.start("x", LoginRequest { way, ..LoginRequest::default() }).unwrap()
    }

    /// Logs in, and says all that there was to tell.
    async fn log_in(&self, way: LoginPreference) -> Vec<LoginProgress> {
        all(self.start(way)).await
    }
}

async fn all(mut flow: PendingLogin) -> Vec<LoginProgress> {
    let mut told = Vec::new();
    while let Some(progress) = flow.next().await {
        told.push(progress);
    }
    told
}

/// Why a login failed.
fn failure(told: &[LoginProgress]) -> LoginError {
    match told.last() {
        Some(LoginProgress::Failed(error)) => error.clone(),
        other => panic!("it did not fail: {other:?}"),
    }
}
