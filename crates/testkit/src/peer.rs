//! What a transcript is played against.

use std::time::Duration;

/// How long a play waits for one step of parlor. It is far above what a loaded machine needs, because a test that waits
/// this long has failed anyway.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Parlor, seen from the client's side of one connection.
///
/// The runner stops waiting for a method after [`STEP_TIMEOUT`] and drops the peer, which must end everything that it
/// started. Errors are texts for people. Implementations may use `async fn`.
pub trait Peer {
    /// Sends bytes, which may be a part of a frame or several of them.
    fn send(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), String>>;

    /// Closes the client's sending side.
    fn close(&mut self) -> impl Future<Output = Result<(), String>>;

    /// The next frame from parlor, without its newline; `None` once parlor has closed its side.
    fn frame(&mut self) -> impl Future<Output = Option<Vec<u8>>>;

    /// Advances the time, if the peer's time is simulated.
    fn advance(&mut self, time: Duration) -> impl Future<Output = Result<(), String>> {
        let _ = time;
        async { Err("time cannot be advanced here: add `#! only memory`".to_owned()) }
    }

    /// Starts another connection with these additional arguments, after the last one has ended.
    fn reconnect(&mut self, args: &[String]) -> impl Future<Output = Result<(), String>> {
        let _ = args;
        async { Err("this peer cannot reconnect: add `#! only wire`".to_owned()) }
    }

    /// Waits until parlor has ended, and fails if it did not exit successfully.
    fn finish(&mut self) -> impl Future<Output = Result<(), String>>;
}

/// Advances the runtime's clock: the timers within this time fire at once and in order. For peers in the same runtime
/// that neither block nor wait for other processes.
pub async fn advance_time(time: Duration) {
    tokio::time::pause();
    tokio::time::sleep(time).await;
    tokio::time::resume();
}
