//! A provider on loopback that sends words at a given pace.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How many [`RequestTimes`], and how many times of words, are kept for the reader.
const QUEUED_TIMES: usize = 1024;

/// The pace at which an answer is sent.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// The time from the request to the first word.
    pub(crate) before: Duration,
    /// The time between two words.
    pub(crate) between: Duration,
    /// The number of words.
    pub(crate) words: u32,
}

/// When a request had arrived, and when its first word was written.
pub(super) struct RequestTimes {
    pub(super) requested: Instant,
    pub(super) first_word: Instant,
}

/// A running provider. Its threads end with the program.
pub(crate) struct Provider {
    pub(super) url: String,
    pub(super) times: Receiver<RequestTimes>,
    /// When each word was written.
    pub(crate) words: Receiver<Instant>,
}

impl Provider {
    pub(crate) fn start(pace: Pace) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let (times_sender, times) = sync_channel(QUEUED_TIMES);
        let (words_sender, words) = sync_channel(QUEUED_TIMES);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (times, words) = (times_sender.clone(), words_sender.clone());
                // An error means that the client has disconnected.
                std::thread::spawn(move || drop(answer(connection, pace, &times, &words)));
            }
        });
        Ok(Self { url, times, words })
    }

    /// Settings with an agent that uses this provider.
    pub(crate) fn settings(&self) -> String {
        let url = &self.url;
        format!(
            "[agents.main]\nkind = \"model\"\nmodel = \"paced\"\n[models.paced]\nprovider = \"openai\"\n\
             model = \"paced\"\nbase_url = \"{url}\"\n"
        )
    }
}

fn answer(
    mut connection: TcpStream,
    pace: Pace,
    times: &SyncSender<RequestTimes>,
    words: &SyncSender<Instant>,
) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    read_request(&mut BufReader::new(connection.try_clone()?))?;
    let requested = Instant::now();
    connection.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    let mut send = |data: &str| {
        let event = format!("data: {data}\n\n");
        connection.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
    };
    for number in 0..pace.words {
        let due = requested + pace.before + pace.between * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // A queue is full if its times are not read in this benchmark.
        let now = Instant::now();
        if number == 0 {
            let _ = times.try_send(RequestTimes { requested, first_word: now });
        }
        let _ = words.try_send(now);
        send(r#"{"choices":[{"index":0,"delta":{"content":"word "}}]}"#)?;
    }
    send(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#)?;
    send("[DONE]")?;
    connection.write_all(b"0\r\n\r\n")
}

fn read_request(reader: &mut impl BufRead) -> std::io::Result<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).map(drop)
}
