//! The files of messages, as they were stored.

use std::fs::File;
use std::io::Read;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue,
};
use axum::response::Response;
use futures_util::stream;

use crate::answer::{text, typed};
use crate::archive::{ArchiveError, refused};
use crate::id::Id;
use crate::site::Shared;

/// How much of a file is read at once, and is in memory for each answer.
pub const FILE_PIECE_BYTES: usize = 64 * 1024;

/// A stored file.
#[derive(Debug)]
pub struct StoredFile {
    /// What is read from its beginning.
    pub file: File,
    /// How many bytes it has.
    pub size: u64,
    /// Its type, if it is an image that browsers show.
    pub image: Option<&'static str>,
}

pub(crate) async fn media(State(site): State<Shared>, Id(id): Id) -> Response {
    let stored = match site.web.archive.media(&id).await {
        Ok(stored) => stored,
        Err(ArchiveError::Unknown) => return text(StatusCode::NOT_FOUND, "file not found"),
        Err(flaw) => return refused(flaw),
    };
    let kind = stored.image.unwrap_or("application/octet-stream");
    let mut response = typed(StatusCode::OK, kind, pieces(stored.file));
    let mut put = |name: HeaderName, value| {
        response.headers_mut().insert(name, value);
    };
    put(CONTENT_LENGTH, HeaderValue::from(stored.size));
    // Its name is the hash of what is in it.
    put(CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable"));
    put(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    let disposition = if stored.image.is_some() { "inline" } else { "attachment" };
    put(CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
    response
}

/// The file piece by piece, each read when the one before is on its way.
fn pieces(file: File) -> Body {
    Body::from_stream(stream::try_unfold(file, async |mut file| {
        let read = move || -> std::io::Result<Option<(Bytes, File)>> {
            let mut piece = vec![0; FILE_PIECE_BYTES];
            let count = file.read(&mut piece)?;
            piece.truncate(count);
            Ok((count > 0).then(|| (piece.into(), file)))
        };
        tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other)?
    }))
}
