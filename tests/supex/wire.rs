//! A TCP connection to the real program, as a transcript's peer.
//!
//! `#! args repl` and `>again repl` connect to the REPL, all others to the bridge.

use std::net::SocketAddr;

use parlor_testkit::{Case, Peer};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::server::{self, Server};

pub(crate) struct Wire {
    server: Server,
    writer: Option<OwnedWriteHalf>,
    reader: BufReader<OwnedReadHalf>,
}

impl Wire {
    pub(crate) fn start(case: &Case) -> Result<Self, String> {
        let mut command = server::command(&case.home);
        command.current_dir(&case.tmp);
        for (name, value) in &case.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let server = Server::spawn(command, &case.home)?;
        let (writer, reader) = connect(address(&server, &case.args))?;
        Ok(Self { server, writer: Some(writer), reader })
    }
}

fn address(server: &Server, args: &[String]) -> SocketAddr {
    if args.iter().any(|arg| arg == "repl") { server.repl } else { server.supex }
}

fn connect(address: SocketAddr) -> Result<(OwnedWriteHalf, BufReader<OwnedReadHalf>), String> {
    let connect = || {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        TcpStream::from_std(stream)
    };
    let (reader, writer) = connect().map_err(|error: std::io::Error| error.to_string())?.into_split();
    Ok((writer, BufReader::new(reader)))
}

impl Peer for Wire {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let writer = self.writer.as_mut().ok_or("sent after the input was closed")?;
        writer.write_all(bytes).await.map_err(|error| format!("cannot send: {error}"))
    }

    async fn close(&mut self) -> Result<(), String> {
        // Dropping the write half closes this direction of the connection.
        self.writer = None;
        Ok(())
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        if self.reader.read_until(b'\n', &mut line).await.unwrap_or(0) == 0 {
            return None;
        }
        line.pop_if(|last| *last == b'\n');
        Some(line)
    }

    async fn reconnect(&mut self, args: &[String]) -> Result<(), String> {
        let (writer, reader) = connect(address(&self.server, args))?;
        (self.writer, self.reader) = (Some(writer), reader);
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Stops the server, which must exit with success and remove its `serve.json`.
impl Drop for Wire {
    fn drop(&mut self) {
        let status = self.server.stop();
        let file_exists = self.server.home.join("serve.json").exists();
        if !std::thread::panicking() {
            assert!(status.success() && !file_exists, "{status}, serve.json exists: {file_exists}");
        }
    }
}
