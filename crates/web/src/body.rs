//! Reads the body of a request, up to a limit.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::http::header::{EXPECT, HeaderMap};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// The largest body of a request, in bytes.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// How long the body of a request may take to arrive.
pub const BODY_WAIT: Duration = Duration::from_secs(10);

/// How long the server goes on reading from a client that sends a body that is too large.
pub const UNREAD_WAIT: Duration = Duration::from_secs(2);

/// Why a body could not be read.
pub(crate) enum BodyError {
    /// It has more bytes than allowed, or its length says so. With the rest of it, unless the client waits for a
    /// `100 Continue` before it sends.
    TooLarge(Option<Rest>),
    /// The connection broke before its end.
    Broken,
}

/// The unread rest of a body that is too large.
pub(crate) struct Rest(BodyDataStream);

impl Rest {
    /// Reads and drops the rest, so that the client gets its answer: closing a TCP connection with unread input resets
    /// it, and the answer is lost.
    pub(crate) async fn drain(mut self) {
        let _ = timeout(UNREAD_WAIT, async { while let Some(Ok(_)) = self.0.next().await {} }).await;
    }
}

/// Reads a body. Fails at once if its length says that it is too large.
pub(crate) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, BodyError> {
    read_up_to(MAX_BODY_BYTES, headers, body).await
}

/// Like [`read`], with another limit.
pub(crate) async fn read_up_to(
    max_bytes: usize,
    headers: &HeaderMap,
    body: Body,
) -> Result<Bytes, BodyError> {
    let is_large = body.size_hint().lower() > max_bytes as u64;
    let mut pieces = body.into_data_stream();
    if is_large {
        // A client that waits for `100 Continue` does not get it, and sends nothing.
        return Err(BodyError::TooLarge((!headers.contains_key(EXPECT)).then_some(Rest(pieces))));
    }
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| BodyError::Broken)?;
        if bytes.len() + piece.len() > max_bytes {
            return Err(BodyError::TooLarge(Some(Rest(pieces))));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.into())
}

/// Reads a body that is a JSON object. Serde would also take an array for a struct.
pub(crate) fn json_object<T: DeserializeOwned>(body: &[u8]) -> Result<T, NotAnObject> {
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(NotAnObject);
    }
    serde_json::from_slice(body).map_err(|_| NotAnObject)
}

/// The body is not a JSON object with the members that the request takes.
#[derive(Debug)]
pub(crate) struct NotAnObject;
