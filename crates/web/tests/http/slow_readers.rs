//! Clients that read a large response slowly, or not at all.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::time::Duration;

use parlor_vocab::NamedFile;
use parlor_web::MAX_SESSION_TEXT_BYTES;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::server::{Server, TOKEN};
use crate::sessions::{append, user_message};

/// How long the text of the session `large` is: more than the buffers of sockets hold, and with its JSON no more than
/// one response has.
const LARGE_TEXT_BYTES: usize = MAX_SESSION_TEXT_BYTES - 1024;

/// Far longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time between two checks of the budget.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Sends a request, and reads the status of the response.
async fn request(server: &Server, path: &str) -> TcpStream {
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    client.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    client
}

/// Requests a large session, and reads the status of the response.
async fn request_large_session(server: &Server) -> TcpStream {
    append(&*server.log, &server.clock, "large", [user_message("x".repeat(LARGE_TEXT_BYTES))]).await;
    request(server, "/api/sessions/large").await
}

/// Whether the server, which is in this process, has a file of this name open.
fn is_open(name: &str) -> bool {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut files = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    files.any(|path| path.ends_with(name))
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let server =
        Server::with(|options| options.settings.limits.write_wait = Duration::from_millis(200)).await;
    let mut client = request_large_session(&server).await;
    assert!(server.memory.used() > 0, "the response counts towards the budget");
    timeout(PATIENCE, async {
        while server.memory.used() > 0 {
            sleep(CHECK_INTERVAL).await;
        }
    })
    .await
    .expect("the response is given up");
    let mut rest = Vec::new();
    // The connection may be reset.
    let _ = timeout(PATIENCE, client.read_to_end(&mut rest)).await.expect("the connection closes");
    assert!(rest.len() < LARGE_TEXT_BYTES, "the whole response arrived");
}

#[tokio::test]
async fn a_client_that_reads_gets_the_whole_response() {
    let server = Server::start().await;
    let mut client = request_large_session(&server).await;
    let mut rest = vec![0; LARGE_TEXT_BYTES];
    timeout(PATIENCE, client.read_exact(&mut rest)).await.expect("the response is sent").unwrap();
    assert_eq!(server.memory.used(), 0);
}

#[tokio::test]
async fn a_client_that_downloads_a_file_and_reads_nothing_is_disconnected() {
    let server =
        Server::with(|options| options.settings.limits.write_wait = Duration::from_millis(200)).await;
    let file = NamedFile { name: "large".to_owned(), bytes: vec![b'x'; 2 * LARGE_TEXT_BYTES] };
    let stored = server.sessions.store_media(vec![file]).await.unwrap();
    let id = stored.first().unwrap().id.to_string();
    let mut client = request(&server, &format!("/api/media/{id}")).await;
    assert!(is_open(&id), "the server reads the file piece by piece");
    timeout(PATIENCE, async {
        while is_open(&id) {
            sleep(CHECK_INTERVAL).await;
        }
    })
    .await
    .expect("the download is given up");
    let mut rest = Vec::new();
    // The connection may be reset.
    let _ = timeout(PATIENCE, client.read_to_end(&mut rest)).await.expect("the connection closes");
    assert!(rest.len() < 2 * LARGE_TEXT_BYTES, "the whole file arrived");
}
