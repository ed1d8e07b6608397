//! The HTTP client for providers: it limits time and size, and never follows a redirect, because the target of a
//! redirected token request would get the secrets in it.

use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use oauth2::{AsyncHttpClient, HttpRequest, HttpResponse};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use url::Url;

use crate::provider::is_loopback;

/// How long a request may take, including the response body.
pub const HTTP_WAIT: Duration = Duration::from_secs(30);

/// How long the connection to the provider may take.
pub const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// The largest response body, in bytes.
pub const RESPONSE_BYTES: usize = 256 << 10;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{}", innermost(.0))]
    Failed(#[from] reqwest::Error),
    #[error("it did not answer within {} seconds", .0.as_secs())]
    TimedOut(Duration),
    #[error("its answer is larger than {RESPONSE_BYTES} bytes")]
    TooLarge,
    #[error("its address is not right")]
    InvalidUrl,
    #[error("it cannot answer now (status {0})")]
    Overloaded(u16),
}

/// HTTP clients for all providers.
#[derive(Debug)]
pub(crate) struct Http {
    timeout: Duration,
    /// For loopback URLs, without a proxy.
    local_client: OnceLock<Client>,
    remote_client: OnceLock<Client>,
}

impl Http {
    pub(crate) fn new() -> Self {
        Self::with_timeout(HTTP_WAIT)
    }

    pub(crate) fn with_timeout(timeout: Duration) -> Self {
        Self { timeout, local_client: OnceLock::new(), remote_client: OnceLock::new() }
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let url = Url::parse(&request.uri().to_string()).map_err(|_| HttpError::InvalidUrl)?;
        let client = self.client(is_loopback(&url))?.clone();
        let response = tokio::time::timeout(self.timeout, receive(client, request)).await;
        response.map_err(|_| HttpError::TimedOut(self.timeout))?
    }

    /// Creates the client on first use, because reading the system's certificates takes a while.
    fn client(&self, is_local: bool) -> Result<&Client, HttpError> {
        let cell = if is_local { &self.local_client } else { &self.remote_client };
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let builder = builder();
        let client = if is_local { builder.no_proxy() } else { builder }.build()?;
        Ok(cell.get_or_init(|| client))
    }
}

fn builder() -> ClientBuilder {
    let name = concat!("parlor/", env!("CARGO_PKG_VERSION"));
    Client::builder().redirect(Policy::none()).connect_timeout(CONNECT_WAIT).user_agent(name)
}

async fn receive(client: Client, request: HttpRequest) -> Result<HttpResponse, HttpError> {
    let mut incoming = client.execute(request.try_into()?).await?;
    let mut response = HttpResponse::new(Vec::new());
    *response.status_mut() = incoming.status();
    *response.headers_mut() = incoming.headers().clone();
    while let Some(piece) = incoming.chunk().await? {
        if response.body().len() + piece.len() > RESPONSE_BYTES {
            return Err(HttpError::TooLarge);
        }
        response.body_mut().extend_from_slice(&piece);
    }
    Ok(response)
}

/// The text of the innermost error. The outer errors of reqwest do not name the cause.
fn innermost(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// An adapter for the `oauth2` crate that remembers the status of the last response.
pub(crate) struct HttpCall<'h> {
    http: &'h Http,
    status: AtomicU16,
    /// Whether to turn the responses of an overloaded provider into errors, after which the `oauth2` crate polls
    /// again.
    retries_overload: bool,
}

impl<'h> HttpCall<'h> {
    pub(crate) fn new(http: &'h Http) -> Self {
        Self { http, status: AtomicU16::new(0), retries_overload: false }
    }

    /// A call for polling, which goes on while the provider is overloaded.
    pub(crate) fn retrying(http: &'h Http) -> Self {
        Self { retries_overload: true, ..Self::new(http) }
    }

    /// The status of the last response, if there was one.
    pub(crate) fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }
}

impl<'c> AsyncHttpClient<'c> for HttpCall<'_> {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            self.status.store(0, Ordering::Relaxed);
            let response = self.http.send(request).await?;
            let status = response.status().as_u16();
            self.status.store(status, Ordering::Relaxed);
            if self.retries_overload && matches!(status, 429 | 500..) {
                Err(HttpError::Overloaded(status))
            } else {
                Ok(response)
            }
        })
    }
}
