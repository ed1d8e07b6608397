//! A server that does with each request what a test says, byte for byte, and keeps what it was sent.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// What is done with one request.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// A stream of these events, to its end.
    Answer(String),
    /// A stream of these events, then the connection is cut.
    Cut(String),
    /// A stream of these events, then nothing more, and no end.
    Hang(String),
}

/// A server on loopback. Its threads end when their connections do.
pub(crate) struct Server {
    pub(crate) url: String,
    bodies: Arc<Mutex<Vec<Value>>>,
    /// Says that the other side has left a stream that hangs.
    left: Receiver<()>,
}

/// How many news of those who left may wait.
const LEFT: usize = 16;

impl Server {
    /// Serves the deeds, one request after another. Beyond the last, connections are closed.
    pub(crate) fn start(deeds: Vec<Deed>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let (leaving, left) = sync_channel(LEFT);
        let keep = Arc::clone(&bodies);
        std::thread::spawn(move || {
            let mut deeds = deeds.into_iter();
            for connection in listener.incoming().flatten() {
                let Some(deed) = deeds.next() else { return };
                let (keep, leaving) = (Arc::clone(&keep), leaving.clone());
                // One request for each connection: we say so in the answer.
                std::thread::spawn(move || serve(connection, deed, &keep, &leaving));
            }
        });
        Self { url, bodies, left }
    }

    /// The bodies of all requests so far.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.bodies.lock().unwrap().clone()
    }

    /// Waits until the other side has left a stream that hangs.
    pub(crate) fn wait_until_left(&self) {
        self.left.recv_timeout(parlor_testkit::PATIENCE).expect("the stream is left");
    }
}

fn serve(connection: TcpStream, deed: Deed, keep: &Mutex<Vec<Value>>, leaving: &SyncSender<()>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    keep.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
    let mut out = connection;
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
        Deed::Cut(events) => send(&events).unwrap(),
        Deed::Hang(events) => {
            send(&events).unwrap();
            // Nothing more comes: this returns when the other side is gone.
            let _ = reader.read(&mut [0]);
            let _ = leaving.send(());
        }
    }
}
