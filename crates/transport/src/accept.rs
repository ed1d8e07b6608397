//! Accepts connections until the server stops, and serves each in a task of its own.

use std::io;
use std::time::Duration;

use parlor_doors::Machine;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::log_limit::LogLimit;
use crate::token_bucket::Rate;

/// How long to wait before accepting again after an accept failed, which mostly happens for lack of file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often the log may report failed accepts, refused connections and foreign protocols; each kind has this rate.
pub const CONNECTION_LOG_RATE: Rate = Rate { per_second: 1.0, burst: 1.0 };

/// How long connections may take to end when the server stops.
pub const STOP_WAIT: Duration = Duration::from_secs(3);

/// A machine that a task can serve, on any thread.
pub trait SendMachine:
    Machine<Request: Send, Reply: Send, Event: Send + Sync, Error: Send> + Send + 'static
{
}

impl<M> SendMachine for M where
    M: Machine<Request: Send, Reply: Send, Event: Send + Sync, Error: Send> + Send + 'static
{
}

/// Accepts connections until `stop` is cancelled. `serve` returns what serves a connection, or `None` to close it at once.
/// All connections have ended when this returns.
pub(crate) async fn accept_connections<S, T>(
    mut accept: impl AsyncFnMut() -> io::Result<S>,
    serve: impl Fn(S) -> Option<T>,
    stop: CancellationToken,
) where
    T: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let accept_errors = LogLimit::new(CONNECTION_LOG_RATE);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept() => accepted,
        };
        match accepted {
            Ok(stream) => {
                if let Some(served) = serve(stream) {
                    connections.spawn(served);
                }
            }
            Err(error) => {
                if let Some(left_out) = accept_errors.allow_line() {
                    tracing::warn!(%error, left_out, "cannot accept a connection");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Stop listening before waiting for the connections.
    drop(accept);
    let all = async { while connections.join_next().await.is_some() {} };
    // Connections that have not ended by then are aborted.
    let _ = timeout(STOP_WAIT, all).await;
}
