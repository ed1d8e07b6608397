//! Complete logins against a fake provider whose replies the test scripts. `tests/auth` runs logins against an
//! independent OAuth server.

mod bounds;
mod browser;
mod device;
mod device_code_exchange;
mod logout;
mod page;
mod refresh;
mod resource;

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
use crate::time::{Sleep, SleepFuture, Time};
use crate::{
    LoginDeps, LoginError, LoginManager, LoginPreference, LoginProgress, LoginRequest, PendingLogin,
    ProviderDraft, Redactor, SecretStore,
};

/// A request that the fake provider received.
#[derive(Clone, Debug)]
struct ReceivedRequest {
    path: String,
    authorization: Option<String>,
    body: String,
}

impl ReceivedRequest {
    /// A member of the URL-encoded body.
    fn form(&self, name: &str) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.body.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }
}

/// A reply of the fake provider.
enum Reply {
    Json(u16, Value),
    Text(u16, String),
    /// A redirect to this URL.
    Redirect(String),
    /// 401 with this challenge.
    Challenge(String),
    /// No reply: the request hangs.
    Never,
}

/// Chooses the reply to a request. The number counts the requests before it.
type Script = Arc<dyn Fn(&ReceivedRequest, usize) -> Reply + Send + Sync>;

/// An OAuth provider on this machine.
struct FakeProvider {
    address: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl FakeProvider {
    /// A provider that replies as `script` says.
    async fn new(script: impl Fn(&ReceivedRequest, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (script, record): (Script, _) = (Arc::new(script), Arc::clone(&requests));
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
        Self { address, requests }
    }

    /// The requests that arrived so far.
    fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// A configuration with all endpoints on this provider.
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
    record: Arc<Mutex<Vec<ReceivedRequest>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let authorization = head.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let request = ReceivedRequest { path: head.uri.path().to_owned(), authorization, body };
    let before = {
        let mut record = record.lock().unwrap();
        record.push(request.clone());
        record.len() - 1
    };
    let (status, kind, text, header) = match script(&request, before) {
        Reply::Json(status, value) => (status, "application/json", value.to_string(), None),
        Reply::Text(status, text) => (status, "text/plain", text, None),
        Reply::Redirect(to) => (307, "text/plain", String::new(), Some(("location", to))),
        Reply::Challenge(text) => (401, "text/plain", String::new(), Some(("www-authenticate", text))),
        Reply::Never => std::future::pending().await,
    };
    let response = Response::builder().status(status).header("content-type", kind);
    let response = header.into_iter().fold(response, |response, (name, value)| response.header(name, value));
    Ok(response.body(Full::new(Bytes::from(text))).unwrap())
}

/// A token response whose tokens end with `number`.
fn granted(number: u32) -> Reply {
    Reply::Json(
        200,
        json!({
            "access_token": format!("access-token-{number}"),
            "refresh_token": format!("refresh-token-{number}"),
            "token_type": "Bearer",
            "expires_in": 3600,
        }),
    )
}

fn refused(status: u16, code: &str) -> Reply {
    Reply::Json(status, json!({"error": code, "error_description": format!("because of {code}")}))
}

/// A clock that advances only when a login sleeps or the test says so.
#[derive(Default)]
struct FakeTime {
    now: Mutex<i64>,
    sleeps: Mutex<Vec<u64>>,
}

impl FakeTime {
    fn advance(&self, time: Duration) {
        *self.now.lock().unwrap() += i64::try_from(time.as_millis()).unwrap();
    }

    /// The length of each sleep so far, in seconds.
    fn sleeps(&self) -> Vec<u64> {
        self.sleeps.lock().unwrap().clone()
    }
}

impl Clock for FakeTime {
    fn now(&self) -> Timestamp {
        Timestamp(*self.now.lock().unwrap())
    }
}

/// A timer that advances the [`FakeTime`] instead of sleeping.
struct FakeTimer(Arc<FakeTime>);

impl Sleep for FakeTimer {
    fn sleep(&self, duration: Duration) -> SleepFuture {
        self.0.advance(duration);
        self.0.sleeps.lock().unwrap().push(duration.as_secs());
        Box::pin(tokio::task::yield_now())
    }
}

/// A login manager with a state folder of its own.
struct Fixture {
    logins: LoginManager,
    time: Arc<FakeTime>,
    redactor: Redactor,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new(draft: ProviderDraft) -> Self {
        Self::with(draft, Http::new(), tempfile::tempdir().unwrap())
    }

    fn with(draft: ProviderDraft, http: Http, folder: tempfile::TempDir) -> Self {
        let (time, redactor) = (Arc::new(FakeTime::default()), Redactor::new());
        let logins = Self::open(draft, http, folder.path(), &time, &redactor);
        Self { logins, time, redactor, folder }
    }

    /// A login manager for an existing state folder, like that of another process.
    fn open(
        draft: ProviderDraft,
        http: Http,
        folder: &std::path::Path,
        time: &Arc<FakeTime>,
        redactor: &Redactor,
    ) -> LoginManager {
        let deps = LoginDeps {
            providers: vec![draft.check("x").unwrap()],
            store: SecretStore::open(folder).unwrap(),
            clock: Arc::clone(time) as _,
            redactor: redactor.clone(),
            admits_peer: Arc::new(|_| true),
        };
        let timer = Arc::new(FakeTimer(Arc::clone(time)));
        LoginManager::with(deps, |time| Time { timer, ..time }, http)
    }

    fn start(&self, preference: LoginPreference) -> PendingLogin {
        self.logins.start("x", LoginRequest { preference, ..LoginRequest::default() }).unwrap()
    }

    /// Logs in and returns all progress.
    async fn log_in(&self, preference: LoginPreference) -> Vec<LoginProgress> {
        all_progress(self.start(preference)).await
    }
}

async fn all_progress(mut flow: PendingLogin) -> Vec<LoginProgress> {
    let mut all = Vec::new();
    while let Some(progress) = flow.next().await {
        all.push(progress);
    }
    all
}

/// The error of a failed login.
fn failure(progress: &[LoginProgress]) -> LoginError {
    match progress.last() {
        Some(LoginProgress::Failed(error)) => error.clone(),
        other => panic!("the login did not fail: {other:?}"),
    }
}
