//! HTTP requests that the executor's machine makes for a client.

use std::time::Duration;

/// A request to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// The client's name for the request, which no other request of the connection has at the same time.
    pub id: String,
    /// Such as `GET`.
    pub method: String,
    /// An http or https address.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// Empty for none.
    pub body: Vec<u8>,
    /// How long the request and its answer may take in all.
    pub time_limit: Option<Duration>,
    /// Whether redirects are followed.
    pub follows_redirects: bool,
    /// Whether the body of the answer is reported in pieces, after the answer.
    pub is_streamed: bool,
}

/// The answer to an [`HttpRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    /// Such as 200.
    pub status: u16,
    /// Names and values, in their order.
    pub headers: Vec<(String, String)>,
    /// Empty if the body is streamed.
    pub body: Vec<u8>,
}

/// Why an [`HttpRequest`] has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The request itself is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The server cannot be reached, or may not be.
    #[error("http/request failed: {0}")]
    Failed(String),
}
