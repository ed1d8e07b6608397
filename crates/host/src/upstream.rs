//! The way to a SketchUp runtime: one call a connection, as it wants it.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use parlor_doors::lines::{Line, Lines};
use parlor_doors::supex::{MAX_REPLY_BYTES, MAX_REQUEST_BYTES, upstream};
use parlor_engine::SketchUp;
use parlor_vocab::{Caller, ModelFailure, Work};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a runtime may take to accept a connection and to answer the `hello`. It looks around four
/// times a second, and not at all while it is busy.
pub const UPSTREAM_HELLO_WAIT: Duration = Duration::from_secs(15);

/// How long a runtime may take for one call.
pub const UPSTREAM_CALL_WAIT: Duration = Duration::from_secs(600);

/// A SketchUp runtime at an address.
pub struct Upstream {
    address: String,
    token: Option<String>,
}

impl Upstream {
    /// The runtime at `address`, a host and a port, that asks for `token`.
    pub fn new(address: String, token: Option<String>) -> Self {
        Self { address, token }
    }

    async fn call_once(&self, caller: &Caller, call: &[u8]) -> Result<String, ModelFailure> {
        let unreachable = |reason: String| ModelFailure::Unreachable { reason };
        let unanswered = |reason: String| ModelFailure::Unanswered { reason };
        let mut wire = timeout(UPSTREAM_HELLO_WAIT, self.greet(caller))
            .await
            .map_err(|_| unreachable(format!("no answer from {} in time", self.address)))??;
        // One write: it would take half a line for a whole one.
        wire.stream.write_all(call).await.map_err(|error| unanswered(error.to_string()))?;
        let line = timeout(UPSTREAM_CALL_WAIT, wire.line())
            .await
            .map_err(|_| unanswered(format!("it took longer than {UPSTREAM_CALL_WAIT:?}")))?;
        upstream::reply(&line.map_err(|error| unanswered(error.to_string()))?)
    }

    async fn greet(&self, caller: &Caller) -> Result<Wire, ModelFailure> {
        let unreachable = |error: io::Error| {
            let reason = format!("{}: {error}", self.address);
            ModelFailure::Unreachable { reason }
        };
        let stream = TcpStream::connect(&self.address).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let mut wire = Wire { stream, lines: Lines::new(MAX_REPLY_BYTES) };
        let hello = upstream::hello(caller, self.token.as_deref(), u64::from(std::process::id()));
        wire.stream.write_all(&hello).await.map_err(unreachable)?;
        let line = wire.line().await.map_err(unreachable)?;
        match upstream::reply(&line) {
            Ok(_) => Ok(wire),
            Err(ModelFailure::Refused { message, .. }) => {
                Err(ModelFailure::Unreachable { reason: format!("it refused the hello: {message}") })
            }
            Err(ModelFailure::Unreachable { reason } | ModelFailure::Unanswered { reason }) => {
                Err(ModelFailure::Unreachable { reason })
            }
        }
    }
}

#[async_trait]
impl SketchUp for Upstream {
    async fn perform(&self, caller: &Caller, work: &Work) -> Result<String, ModelFailure> {
        let Some(call) = upstream::call(work) else {
            let reason = format!("the call is longer than the {MAX_REQUEST_BYTES} bytes that it takes");
            return Err(ModelFailure::Unreachable { reason });
        };
        match self.call_once(caller, &call).await {
            // It has read half of the line and done nothing, so there is no harm in another try.
            Err(failure) if upstream::was_misread(&failure) => self.call_once(caller, &call).await,
            done => done,
        }
    }
}

struct Wire {
    stream: TcpStream,
    lines: Lines,
}

impl Wire {
    async fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; 16 * 1024];
        loop {
            match self.lines.next_line() {
                Some(Line::Whole(line)) => return Ok(line.to_vec()),
                Some(Line::Oversize) => {
                    return Err(io::Error::other(format!(
                        "its reply is longer than {MAX_REPLY_BYTES} bytes"
                    )));
                }
                None => {}
            }
            match self.stream.read(&mut piece).await? {
                0 => return Err(io::Error::other("it closed the connection")),
                count => self.lines.push(piece.get(..count).unwrap_or_default()),
            }
        }
    }
}
