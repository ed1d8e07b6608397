//! Clients that leave an answer lying.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::support::{LARGE_TEXT_BYTES, Server, TOKEN};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long between two looks at the budget.
const LOOK: Duration = Duration::from_millis(5);

/// Asks for the large session, and reads the status of the answer.
async fn ask(server: &Server) -> TcpStream {
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let request = format!(
        "GET /api/sessions/large HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    client.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    client
}

#[tokio::test]
async fn who_takes_nothing_of_an_answer_is_hung_up_on() {
    let server = Server::with(|wanted| wanted.settings.limits.write_wait = Duration::from_millis(200)).await;
    let mut client = ask(&server).await;
    assert!(server.memory.used() > 0, "it is counted");
    timeout(PATIENCE, async {
        while server.memory.used() > 0 {
            sleep(LOOK).await;
        }
    })
    .await
    .expect("it is given up");
    let mut rest = Vec::new();
    // A reset is an end too.
    let _ = timeout(PATIENCE, client.read_to_end(&mut rest)).await.expect("the connection ends");
    assert!(rest.len() < LARGE_TEXT_BYTES, "all of it came");
}

#[tokio::test]
async fn who_reads_gets_all_of_it() {
    let server = Server::start().await;
    let mut client = ask(&server).await;
    let mut rest = vec![0; LARGE_TEXT_BYTES];
    timeout(PATIENCE, client.read_exact(&mut rest)).await.expect("it is sent").unwrap();
    assert_eq!(server.memory.used(), 0);
}
