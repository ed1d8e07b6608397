//! The body of a request: all of it, or none if it is too large.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::http::header::{EXPECT, HeaderMap};
use futures_util::StreamExt;
use tokio::time::timeout;

/// The largest body of a request.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// How long a body may take to arrive.
pub const BODY_WAIT: Duration = Duration::from_secs(10);

/// How long a client that sends too much may go on after it was told so.
pub const UNREAD_WAIT: Duration = Duration::from_secs(2);

/// Why there is no body.
pub(crate) enum BodyError {
    /// It has more than [`MAX_BODY_BYTES`], or says so. The rest, if it is sent without being asked for.
    TooLarge(Option<Rest>),
    /// It broke off.
    Broken,
}

/// What is left of a body that is too large.
pub(crate) struct Rest(BodyDataStream);

impl Rest {
    /// Reads what the client sends until it has seen its answer: one that is closed with something unread
    /// is reset, and the answer with it.
    pub(crate) async fn drain(mut self) {
        let _ = timeout(UNREAD_WAIT, async { while let Some(Ok(_)) = self.0.next().await {} }).await;
    }
}

/// Reads a body. One that says that it is too large is not waited for.
pub(crate) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, BodyError> {
    let is_large = body.size_hint().lower() > MAX_BODY_BYTES as u64;
    let mut pieces = body.into_data_stream();
    if is_large {
        // Whoever waits to be told to go on is not told.
        return Err(BodyError::TooLarge((!headers.contains_key(EXPECT)).then_some(Rest(pieces))));
    }
    let mut all = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| BodyError::Broken)?;
        if all.len() + piece.len() > MAX_BODY_BYTES {
            return Err(BodyError::TooLarge(Some(Rest(pieces))));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.into())
}
