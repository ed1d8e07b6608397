//! A server that answers whatever it is sent: what others would be on the network.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};

/// Answers each request with what `answer` makes of its body, until the tests end.
pub(crate) fn serve(kind: &'static str, answer: impl Fn(&str) -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = answer(&String::from_utf8(body).unwrap());
            let head = format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", answer.len());
            let answer = format!("HTTP/1.1 200 OK\r\n{head}Connection: close\r\n\r\n{answer}");
            reader.into_inner().write_all(answer.as_bytes()).unwrap();
        }
    });
    address
}
