//! A server that does with each request what a test says, byte for byte, and keeps what it was sent.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Barrier, Mutex};

use serde_json::Value;

/// What is done with one request.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// A stream of these events, to its end.
    Answer(String),
    /// A stream of these events, then the connection is cut.
    Cut(String),
    /// The same, but only when somebody else has come to the barrier.
    CutLater(String, Arc<Barrier>),
    /// A stream of these events, then nothing more, and no end.
    Hang(String),
    /// No stream: a status, with this line in the head.
    Refuse(u16, String),
    /// No stream: a status, with a head and a body of this type.
    Body(u16, &'static str, &'static str),
}

/// A server on loopback. Its threads end when their connections do.
pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Says that the other side has left a stream that hangs.
    left: Receiver<()>,
}

/// A request: its head in small letters but for what follows a colon, and its body.
#[derive(Clone)]
struct Asked {
    head: Vec<(String, String)>,
    body: Value,
}

/// How many news of those who left may wait.
const LEFT: usize = 16;

impl Server {
    /// Serves the deeds, one request after another. Beyond the last, connections are closed.
    pub(crate) fn start(deeds: Vec<Deed>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (leaving, left) = sync_channel(LEFT);
        let keep = Arc::clone(&asked);
        std::thread::spawn(move || {
            let mut deeds = deeds.into_iter();
            for connection in listener.incoming().flatten() {
                let Some(deed) = deeds.next() else { return };
                let (keep, leaving) = (Arc::clone(&keep), leaving.clone());
                // One request for each connection: we say so in the answer.
                std::thread::spawn(move || serve(connection, deed, &keep, &leaving));
            }
        });
        Self { url, asked, left }
    }

    /// The bodies of all requests so far.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.asked.lock().unwrap().iter().map(|asked| asked.body.clone()).collect()
    }

    /// What each request said in the line `name` of its head.
    pub(crate) fn heads(&self, name: &str) -> Vec<Option<String>> {
        let asked = self.asked.lock().unwrap();
        let line = |asked: &Asked| {
            let mut lines = asked.head.iter().filter(|(known, _)| known == name);
            lines.next().map(|(_, value)| value.clone())
        };
        asked.iter().map(line).collect()
    }

    /// Waits until the other side has left a stream that hangs.
    pub(crate) fn wait_until_left(&self) {
        self.left.recv_timeout(parlor_testkit::PATIENCE).expect("the stream is left");
    }
}

fn serve(connection: TcpStream, deed: Deed, keep: &Mutex<Vec<Asked>>, leaving: &SyncSender<()>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let (mut length, mut head) = (0, Vec::new());
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
            head.push((name, value));
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    keep.lock().unwrap().push(Asked { head, body: serde_json::from_slice(&body).unwrap_or_default() });
    let mut out = connection;
    if let Deed::Refuse(status, line) = &deed {
        let body = r#"{"error":{"message":"no"}}"#;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} No\r\n{line}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        return out.write_all((head + body).as_bytes()).unwrap();
    }
    if let Deed::Body(status, kind, body) = &deed {
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
    match deed {
        Deed::Answer(events) => {
            send(&events).unwrap();
            out.write_all(b"0\r\n\r\n").unwrap();
        }
        Deed::Refuse(..) | Deed::Body(..) => {}
        Deed::Cut(events) => send(&events).unwrap(),
        Deed::CutLater(events, barrier) => {
            send(&events).unwrap();
            barrier.wait();
        }
        Deed::Hang(events) => {
            send(&events).unwrap();
            // Nothing more comes: this returns when the other side is gone.
            let _ = reader.read(&mut [0]);
            let _ = leaving.send(());
        }
    }
}
