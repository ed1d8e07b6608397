//! A provider on loopback that sends words at a given pace.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How many moments wait to be looked at.
const MOMENTS: usize = 1024;

/// How an answer is sent.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// How long after the request the first word is sent.
    pub(super) before: Duration,
    /// How long after one word the next is.
    pub(super) between: Duration,
    /// How many words there are.
    pub(super) words: u32,
}

/// When a request had arrived, and when its first word was written.
pub(super) struct Moments {
    pub(super) asked: Instant,
    pub(super) first_word: Instant,
}

/// A server. Its threads end with the program.
pub(super) struct Provider {
    pub(super) url: String,
    pub(super) moments: Receiver<Moments>,
}

impl Provider {
    pub(super) fn start(pace: Pace) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let (tell, moments) = sync_channel(MOMENTS);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let tell = tell.clone();
                // Whoever hangs up has enough.
                std::thread::spawn(move || drop(answer(connection, pace, &tell)));
            }
        });
        Ok(Self { url, moments })
    }

    /// Settings with an agent that asks this server.
    pub(super) fn settings(&self) -> String {
        let url = &self.url;
        format!(
            "[agents.main]\nkind = \"model\"\nmodel = \"paced\"\n[models.paced]\nprovider = \"openai\"\n\
             model = \"paced\"\nbase_url = \"{url}\"\n"
        )
    }
}

fn answer(mut connection: TcpStream, pace: Pace, tell: &SyncSender<Moments>) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    read_request(&mut BufReader::new(connection.try_clone()?))?;
    let asked = Instant::now();
    connection.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    let mut send = |data: &str| {
        let event = format!("data: {data}\n\n");
        connection.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
    };
    for number in 0..pace.words {
        let due = asked + pace.before + pace.between * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if number == 0 {
            // A list that is full means that nobody looks.
            let _ = tell.try_send(Moments { asked, first_word: Instant::now() });
        }
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
