//! An HTTP server that answers each request with the next reply of a script, byte for byte, and records the requests.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Barrier, Mutex};

use serde_json::Value;

/// The reply to one request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// A complete stream of these events.
    Stream(String),
    /// A stream of these events, then the connection is cut.
    CutStream(String),
    /// The same, but the connection is cut only when the test reaches the barrier.
    CutStreamAtBarrier(String, Arc<Barrier>),
    /// A stream of these events that then stays open without data.
    HangingStream(String),
    /// An error status with this header line and a fixed JSON body.
    Status(u16, String),
    /// A status with a body of this content type.
    Body(u16, &'static str, &'static str),
}

/// A server on loopback. Its threads end with their connections.
pub(crate) struct ScriptedServer {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    /// One message for each hanging stream from which the client has disconnected.
    disconnects: Receiver<()>,
}

/// A request: its headers with names in lower case, and its body (null if it is not JSON).
#[derive(Clone)]
struct RecordedRequest {
    headers: Vec<(String, String)>,
    body: Value,
}

/// The capacity of the channel of disconnects.
const MAX_DISCONNECTS: usize = 16;

impl ScriptedServer {
    /// Answers one request after another with these replies. After the last one, connections are refused.
    pub(crate) fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (disconnected, disconnects) = sync_channel(MAX_DISCONNECTS);
        let recorded = Arc::clone(&requests);
        std::thread::spawn(move || {
            let mut replies = replies.into_iter();
            for connection in listener.incoming().flatten() {
                let Some(reply) = replies.next() else { return };
                let (recorded, disconnected) = (Arc::clone(&recorded), disconnected.clone());
                // One request per connection: the replies say `connection: close`.
                std::thread::spawn(move || serve(connection, reply, &recorded, &disconnected));
            }
        });
        Self { url, requests, disconnects }
    }

    /// The bodies of all requests so far.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.requests.lock().unwrap().iter().map(|request| request.body.clone()).collect()
    }

    /// The value of the header `name`, in lower case, in each request so far.
    pub(crate) fn header_values(&self, name: &str) -> Vec<Option<String>> {
        let requests = self.requests.lock().unwrap();
        let value = |request: &RecordedRequest| {
            let header = request.headers.iter().find(|(known, _)| known == name);
            header.map(|(_, value)| value.clone())
        };
        requests.iter().map(value).collect()
    }

    /// Waits until the client has disconnected from a hanging stream.
    pub(crate) fn wait_until_disconnected(&self) {
        self.disconnects.recv_timeout(parlor_testkit::STEP_TIMEOUT).expect("the client disconnects");
    }
}

fn serve(
    connection: TcpStream,
    reply: Reply,
    recorded: &Mutex<Vec<RecordedRequest>>,
    disconnected: &SyncSender<()>,
) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let (mut length, mut headers) = (0, Vec::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            let (name, value) = (name.to_ascii_lowercase(), value.trim().to_owned());
            if name == "content-length" {
                length = value.parse().unwrap();
            }
            headers.push((name, value));
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    recorded.lock().unwrap().push(RecordedRequest { headers, body });
    let mut out = connection;
    if let Reply::Status(status, header) = &reply {
        let body = r#"{"error":{"message":"no"}}"#;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} No\r\n{header}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        return out.write_all((head + body).as_bytes()).unwrap();
    }
    if let Reply::Body(status, kind, body) = &reply {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        return out.write_all((head + body).as_bytes()).unwrap();
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    out.write_all(head.as_bytes()).unwrap();
    let mut send = |text: &str| {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        out.write_all(chunk.as_bytes()).and_then(|()| out.flush())
    };
    match reply {
        Reply::Stream(events) => {
            send(&events).unwrap();
            out.write_all(b"0\r\n\r\n").unwrap();
        }
        Reply::Status(..) | Reply::Body(..) => {}
        Reply::CutStream(events) => send(&events).unwrap(),
        Reply::CutStreamAtBarrier(events, barrier) => {
            send(&events).unwrap();
            barrier.wait();
        }
        Reply::HangingStream(events) => {
            send(&events).unwrap();
            // Returns when the client disconnects.
            let _ = reader.read(&mut [0]);
            let _ = disconnected.send(());
        }
    }
}
