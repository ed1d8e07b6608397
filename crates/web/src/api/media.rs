//! The files that came with messages, as they were stored.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue,
};
use axum::response::Response;
use futures_util::stream;
use parlor_engine::Sessions;
use parlor_tools::image_type;
use parlor_vocab::MediaId;

use super::path_id::PathId;
use super::session_error::SessionApiError;
use crate::response::{text, typed};
use crate::response_memory::ResponseMemory;
use crate::site::Site;

/// How much of a file the server reads at once, and keeps in memory for each answer.
pub const FILE_PIECE_BYTES: usize = 64 * 1024;

/// How much of the start of a file shows whether it is an image.
const IMAGE_HEAD_BYTES: usize = 64;

/// A stored file, opened at its start.
#[derive(Debug)]
struct StoredFile {
    file: File,
    /// Its length in bytes.
    size: u64,
    /// Its media type, if it is an image that browsers show.
    image: Option<&'static str>,
}

pub(crate) async fn media(
    State(site): State<Arc<Site>>,
    Extension(memory): Extension<Arc<ResponseMemory>>,
    PathId(id): PathId,
) -> Response {
    let stored = match open(&site.deps.sessions, &id).await {
        Ok(stored) => stored,
        Err(SessionApiError::Unknown) => return text(StatusCode::NOT_FOUND, "file not found"),
        Err(error) => return error.response(),
    };
    let kind = stored.image.unwrap_or("application/octet-stream");
    let mut response = typed(StatusCode::OK, kind, pieces(stored.file, memory));
    let mut put = |name: HeaderName, value| {
        response.headers_mut().insert(name, value);
    };
    put(CONTENT_LENGTH, HeaderValue::from(stored.size));
    // The id is a hash of the content, so the content of an id never changes.
    put(CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable"));
    put(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    let disposition = if stored.image.is_some() { "inline" } else { "attachment" };
    put(CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
    response
}

async fn open(sessions: &Sessions, id: &str) -> Result<StoredFile, SessionApiError> {
    let id = MediaId::parse(id).map_err(|_| SessionApiError::Unknown)?;
    let (file, size) = sessions.open_media(&id).await.ok_or(SessionApiError::Unknown)?;
    let mut head = [0; IMAGE_HEAD_BYTES];
    let count = file.read_at(&mut head, 0).map_err(|error| SessionApiError::Failed(error.to_string()))?;
    Ok(StoredFile { file, size, image: image_type(head.get(..count).unwrap_or_default()) })
}

/// A file that a client downloads.
struct Download {
    file: File,
    /// Closes the connection if the client reads nothing for too long.
    memory: Arc<ResponseMemory>,
}

impl Drop for Download {
    fn drop(&mut self) {
        self.memory.release();
    }
}

/// The file in pieces. Each is read when the piece before it has been sent.
fn pieces(file: File, memory: Arc<ResponseMemory>) -> Body {
    Body::from_stream(stream::try_unfold(Download { file, memory }, async |mut download| {
        download.memory.on_read();
        let read = move || -> std::io::Result<Option<(Bytes, Download)>> {
            let mut piece = vec![0; FILE_PIECE_BYTES];
            let count = download.file.read(&mut piece)?;
            piece.truncate(count);
            // One piece is no more than each connection may hold without a reservation.
            download.memory.await_reader(count);
            Ok((count > 0).then(|| (piece.into(), download)))
        };
        tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other)?
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::{FutureExt, StreamExt};
    use parlor_transport::FrameMemory;
    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::response_memory::HTTP_WRITE_WAIT;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_a_file_has_stalled_and_a_slow_one_has_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * FILE_PIECE_BYTES as u64).unwrap();
        let memory = ResponseMemory::new(&FrameMemory::default(), HTTP_WRITE_WAIT);
        let mut download = pieces(file, Arc::clone(&memory)).into_data_stream();
        for _ in 0..4 {
            assert_eq!(download.next().await.unwrap().unwrap().len(), FILE_PIECE_BYTES);
            sleep(HTTP_WRITE_WAIT - Duration::from_secs(1)).await;
            assert!(memory.stalled().now_or_never().is_none());
        }
        download.next().await.unwrap().unwrap();
        let begun = Instant::now();
        timeout(2 * HTTP_WRITE_WAIT, memory.stalled()).await.expect("the client has stalled");
        assert_eq!(begun.elapsed(), HTTP_WRITE_WAIT);
        drop(download);
        assert!(memory.stalled().now_or_never().is_none(), "nothing is being sent");
    }
}
