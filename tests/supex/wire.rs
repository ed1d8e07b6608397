//! A connection over TCP to the real program, as a transcript's peer.
//!
//! `#! args repl` and `>again repl` connect to the console, all else to the bridge.

use std::net::SocketAddr;

use parlor_testkit::{Case, Peer};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::server::{self, Server};

pub(crate) struct Wire {
    server: Server,
    to: Option<OwnedWriteHalf>,
    from: BufReader<OwnedReadHalf>,
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
        let (to, from) = connect(address(&server, &case.args))?;
        Ok(Self { server, to: Some(to), from })
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
    let (from, to) = connect().map_err(|error: std::io::Error| error.to_string())?.into_split();
    Ok((to, BufReader::new(from)))
}

impl Peer for Wire {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let to = self.to.as_mut().ok_or("the sending side is closed already")?;
        to.write_all(bytes).await.map_err(|error| format!("cannot send: {error}"))
    }

    async fn close(&mut self) -> Result<(), String> {
        // A write half that is dropped closes its direction.
        self.to = None;
        Ok(())
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        if self.from.read_until(b'\n', &mut line).await.unwrap_or(0) == 0 {
            return None;
        }
        line.pop_if(|last| *last == b'\n');
        Some(line)
    }

    async fn again(&mut self, args: &[String]) -> Result<(), String> {
        let (to, from) = connect(address(&self.server, args))?;
        (self.to, self.from) = (Some(to), from);
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The server outlives its connections, and ends in order when it is asked to.
impl Drop for Wire {
    fn drop(&mut self) {
        let status = self.server.end();
        let is_there = self.server.home.join("serve.json").exists();
        if !std::thread::panicking() {
            assert!(status.success() && !is_there, "{status}, serve.json is there: {is_there}");
        }
    }
}
