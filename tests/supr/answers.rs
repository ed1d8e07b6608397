//! Answers over HTTP that nobody reads, and sessions that are larger than an answer.

use parlor_web::{MAX_EVENTS_BYTES, MAX_SESSION_TEXT_BYTES};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{Client, patiently};
use crate::house::get;
use crate::server::{Server, TOKEN};

const MIB: usize = 1 << 20;

/// The budget of the server here.
const BUDGET: usize = 16 * MIB;

/// What answers that nobody reads may add to what the server has, in KiB: the budget, one answer beyond it, and four that
/// are being made, for which events of 6 MiB are read and copied.
const UNREAD_KIB: u64 = 192 << 10;

/// A server with a session `a` of `messages` inputs of so many bytes, and as many answers.
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

/// Asks for something, and reads no more than the status of the answer.
async fn ask_and_read_nothing(server: &Server, path: &str) -> (TcpStream, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(server.http).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut status).await.unwrap();
    (stream, String::from_utf8_lossy(&status).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_stay_within_the_budget() {
    let server = server_with(3, 6 * MIB).await;
    let before = server.status_kib("VmRSS");
    let paths = ["/api/sessions/a", "/api/sessions/a/events?limit=1000"];
    let asked = (0..32).map(|number| ask_and_read_nothing(&server, paths[number % 2]));
    let answers = patiently(futures_util::future::join_all(asked)).await;
    let took = server.status_kib("VmHWM").saturating_sub(before);
    assert!(took < UNREAD_KIB, "32 unread answers took {took} KiB");
    let given = answers.iter().filter(|(_, status)| status.ends_with("200")).count();
    assert!(
        given > 0 && answers.iter().all(|(_, status)| status.ends_with("200") || status.ends_with("503"))
    );
    // Others go on meanwhile, and what was held is there again once nobody wants it.
    let mut other = Client::connect(server.http, "session_id=other").await;
    other.ping().await;
    assert!(get(&server, "/api/sessions").await.is_array());
    drop(answers);
    let told = patiently(get(&server, "/api/sessions/a")).await;
    assert!(told["messages"].is_array(), "{told:.200}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_larger_than_an_answer_is_told_from_its_end() {
    let server = server_with(3, 3 * MIB).await;
    let told = get(&server, "/api/sessions/a").await;
    assert_eq!(told["truncated"], json!(true));
    let messages = told["messages"].as_array().unwrap();
    let said = |message: &Value| message["content"].as_str().unwrap().chars().take(6).collect::<String>();
    assert_eq!(messages.iter().map(said).collect::<Vec<_>>(), ["/say 2", "2xxxxx"]);
    assert!(told.to_string().len() <= MAX_SESSION_TEXT_BYTES + 1024);
    let small = server_with(1, 1).await;
    let told = get(&small, "/api/sessions/a").await;
    assert_eq!((told.get("truncated"), told["messages"].as_array().unwrap().len()), (None, 2));
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
            Some(place) => before = format!("&before={place}"),
            None => break,
        }
    }
    assert!(shortened > 0 && seen > shortened, "{shortened} of {seen} events are shortened");
}
