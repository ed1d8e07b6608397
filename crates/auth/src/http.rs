//! Requests to a provider: bounded in time and size, and never redirected, since whoever redirects a
//! token request would get the secrets in it.

use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use oauth2::{AsyncHttpClient, HttpRequest, HttpResponse};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use url::Url;

use crate::provider::is_loopback;

/// How long a request may take, to the last byte of the answer.
pub const HTTP_WAIT: Duration = Duration::from_secs(30);

/// How long it may take to reach the provider.
pub const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// The largest answer that is read.
pub const RESPONSE_BYTES: usize = 256 << 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{}", innermost(.0))]
    Failed(#[from] reqwest::Error),
    #[error("it did not answer within {} seconds", .0.as_secs())]
    Slow(Duration),
    #[error("its answer is larger than {RESPONSE_BYTES} bytes")]
    TooLarge,
    #[error("its address is not right")]
    Address,
    #[error("it cannot answer now (status {0})")]
    Overloaded(u16),
}

/// The way to providers.
#[derive(Debug)]
pub(crate) struct Http {
    wait: Duration,
    /// For this machine: no proxy is asked.
    near: OnceLock<Client>,
    far: OnceLock<Client>,
}

impl Http {
    pub(crate) fn new() -> Self {
        Self::waiting(HTTP_WAIT)
    }

    pub(crate) fn waiting(wait: Duration) -> Self {
        Self { wait, near: OnceLock::new(), far: OnceLock::new() }
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let url = Url::parse(&request.uri().to_string()).map_err(|_| HttpError::Address)?;
        let client = self.client(is_loopback(&url))?.clone();
        let answer = tokio::time::timeout(self.wait, answer(client, request)).await;
        answer.map_err(|_| HttpError::Slow(self.wait))?
    }

    /// Made when it is needed: reading the certificates of the system takes a while.
    fn client(&self, near: bool) -> Result<&Client, HttpError> {
        let place = if near { &self.near } else { &self.far };
        if let Some(client) = place.get() {
            return Ok(client);
        }
        let made = builder();
        let made = if near { made.no_proxy() } else { made }.build()?;
        Ok(place.get_or_init(|| made))
    }
}

fn builder() -> ClientBuilder {
    let name = concat!("parlor/", env!("CARGO_PKG_VERSION"));
    Client::builder().redirect(Policy::none()).connect_timeout(CONNECT_WAIT).user_agent(name)
}

async fn answer(client: Client, request: HttpRequest) -> Result<HttpResponse, HttpError> {
    let mut response = client.execute(request.try_into()?).await?;
    let mut answer = HttpResponse::new(Vec::new());
    *answer.status_mut() = response.status();
    *answer.headers_mut() = response.headers().clone();
    while let Some(piece) = response.chunk().await? {
        if answer.body().len() + piece.len() > RESPONSE_BYTES {
            return Err(HttpError::TooLarge);
        }
        answer.body_mut().extend_from_slice(&piece);
    }
    Ok(answer)
}

/// What is really the matter: the outer errors only say that there was one.
fn innermost(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// One exchange with a provider, which remembers the status of the last answer.
pub(crate) struct Call<'h> {
    http: &'h Http,
    status: AtomicU16,
    /// Whether an overloaded provider counts as one that did not answer, and so will be asked again.
    patient: bool,
}

impl<'h> Call<'h> {
    pub(crate) fn new(http: &'h Http) -> Self {
        Self { http, status: AtomicU16::new(0), patient: false }
    }

    /// One that is repeated until it succeeds.
    pub(crate) fn patient(http: &'h Http) -> Self {
        Self { patient: true, ..Self::new(http) }
    }

    /// The status of the last answer, if there was one.
    pub(crate) fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }
}

impl<'c> AsyncHttpClient<'c> for Call<'_> {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            self.status.store(0, Ordering::Relaxed);
            let answer = self.http.send(request).await?;
            let status = answer.status().as_u16();
            self.status.store(status, Ordering::Relaxed);
            if self.patient && matches!(status, 429 | 500..) {
                Err(HttpError::Overloaded(status))
            } else {
                Ok(answer)
            }
        })
    }
}
