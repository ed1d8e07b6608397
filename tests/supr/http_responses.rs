//! HTTP responses that a client does not read, and sessions that are larger than a response may be.

use parlor_web::{MAX_EVENTS_BYTES, MAX_SESSION_TEXT_BYTES};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{Client, within_timeout};
use crate::http_api::get;
use crate::server::{Server, TOKEN};

const MIB: usize = 1 << 20;

/// The `max_frame_memory` setting of the server in these tests.
const BUDGET: usize = 16 * MIB;

/// How much unread responses may add to the server's memory, in KiB: the budget, one response beyond it, and four
/// responses in the making, for which the server reads and copies events of 6 MiB.
const UNREAD_KIB: u64 = 192 << 10;

/// How many event streams are opened and not read: at 6 MiB each, far more than the budget has memory for.
const STREAMS: usize = 60;

/// A server with a session `a` that has `messages` inputs of about `bytes` bytes each, and as many answers.
async fn server_with(messages: usize, bytes: usize) -> Server {
    let server =
        Server::with(&format!("read_timeout = 3600\n[serve]\nmax_frame_memory = \"{}MiB\"", BUDGET / MIB));
    let mut client = Client::connect(server.http, "session_id=a").await;
    for number in 0..messages {
        let text = format!("/say {number}{}", "x".repeat(bytes));
        client.send(&json!({"type": "message.send", "payload": {"content": text}})).await;
        client.until("run.completed").await;
    }
    server
}

/// Sends a GET request with an additional header, and reads only the status of the response.
async fn get_status_only(server: &Server, path: &str, header: &str) -> (TcpStream, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(server.http).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut status).await.unwrap();
    (stream, String::from_utf8_lossy(&status).into_owned())
}

/// How many sockets and event streams are open.
async fn open_connections(server: &Server) -> usize {
    let (mut stream, _) = get_status_only(server, "/metrics", "Connection: close\r\n").await;
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).await.unwrap();
    metrics.lines().find_map(|line| line.strip_prefix("parlor_connections ")).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_stay_within_the_memory_budget() {
    let server = server_with(3, 6 * MIB).await;
    let before = server.status_kib("VmRSS");
    let paths = ["/api/sessions/a", "/api/sessions/a/events?limit=1000"];
    let requests = (0..32).map(|number| get_status_only(&server, paths[number % 2], ""));
    let responses = within_timeout(futures_util::future::join_all(requests)).await;
    let took = server.status_kib("VmHWM").saturating_sub(before);
    assert!(took < UNREAD_KIB, "32 unread responses took {took} KiB");
    let successes = responses.iter().filter(|(_, status)| status.ends_with("200")).count();
    assert!(
        successes > 0
            && responses.iter().all(|(_, status)| status.ends_with("200") || status.ends_with("503"))
    );
    // The server serves other clients meanwhile, and it frees the memory once the connections are closed.
    let mut other = Client::connect(server.http, "session_id=other").await;
    other.ping().await;
    assert!(get(&server, "/api/sessions").await.is_array());
    drop(responses);
    let session = within_timeout(get(&server, "/api/sessions/a")).await;
    assert!(session["messages"].is_array(), "{session:.200}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_event_streams_stay_within_the_memory_budget() {
    let server = server_with(2, 6 * MIB).await;
    let before = server.status_kib("VmRSS");
    let accept = "Accept: text/event-stream\r\n";
    let requests = (0..STREAMS).map(|_| get_status_only(&server, "/api/sessions/a/events", accept));
    let streams = within_timeout(futures_util::future::join_all(requests)).await;
    // By the time the server ends the first streams, which have got no memory in time, all others have had their turn to
    // take some.
    within_timeout(async { while open_connections(&server).await >= STREAMS {} }).await;
    let took = server.status_kib("VmHWM").saturating_sub(before);
    assert!(took < UNREAD_KIB, "{STREAMS} unread event streams took {took} KiB");
    drop(streams);
    let session = within_timeout(get(&server, "/api/sessions/a")).await;
    assert!(session["messages"].is_array(), "{session:.200}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_larger_than_a_response_is_cut_to_its_newest_messages() {
    let server = server_with(3, 3 * MIB).await;
    let session = get(&server, "/api/sessions/a").await;
    assert_eq!(session["truncated"], json!(true));
    let messages = session["messages"].as_array().unwrap();
    let start = |message: &Value| message["content"].as_str().unwrap().chars().take(6).collect::<String>();
    assert_eq!(messages.iter().map(start).collect::<Vec<_>>(), ["/say 2", "2xxxxx"]);
    assert!(session.to_string().len() <= MAX_SESSION_TEXT_BYTES + 1024);
    let small = server_with(1, 1).await;
    let session = get(&small, "/api/sessions/a").await;
    assert_eq!((session.get("truncated"), session["messages"].as_array().unwrap().len()), (None, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_larger_than_a_page_is_shortened() {
    let server = server_with(1, MAX_EVENTS_BYTES + 4 * MIB).await;
    let mut before = String::new();
    let (mut shortened, mut seen) = (0, 0);
    loop {
        let page = get(&server, &format!("/api/sessions/a/events?limit=1000{before}")).await;
        assert!(page.to_string().len() <= MAX_EVENTS_BYTES + 1024, "{}", page.to_string().len());
        let events = page["events"].as_array().unwrap();
        seen += events.len();
        shortened += events.iter().filter(|event| event["truncated"] == json!(true)).count();
        match page["before"].as_u64() {
            Some(seq) => before = format!("&before={seq}"),
            None => break,
        }
    }
    assert!(shortened > 0 && seen > shortened, "{shortened} of {seen} events are shortened");
}
