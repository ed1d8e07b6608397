//! An HTTP server that stands for a provider on the network.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};

/// Answers each request with the body that `respond` makes of the request's body, until the tests end.
pub(crate) fn serve(
    content_type: &'static str,
    respond: impl Fn(&str) -> String + Send + 'static,
) -> SocketAddr {
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
            let response = respond(&String::from_utf8(body).unwrap());
            let head = format!("Content-Type: {content_type}\r\nContent-Length: {}\r\n", response.len());
            let response = format!("HTTP/1.1 200 OK\r\n{head}Connection: close\r\n\r\n{response}");
            reader.into_inner().write_all(response.as_bytes()).unwrap();
        }
    });
    address
}
