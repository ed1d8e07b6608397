//! What a transcript is played against.

use std::time::Duration;

/// How long a play waits for parlor to do anything at all. Far above what a loaded machine needs,
/// since a test that has to wait this long has failed anyway.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Parlor, seen from the client's side of one connection.
///
/// Each method may be given up on after [`PATIENCE`]; then the peer is dropped, and with it goes
/// all that it started. Errors are told to a person. Implementations may write `async fn`.
pub trait Peer {
    /// Sends bytes, which may be a part of a frame or several of them.
    fn send(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), String>>;

    /// Closes the client's sending side.
    fn close(&mut self) -> impl Future<Output = Result<(), String>>;

    /// The next frame from parlor, without what ends it; none once parlor has closed its side.
    fn frame(&mut self) -> impl Future<Output = Option<Vec<u8>>>;

    /// Lets this much time pass, if the peer's time is invented.
    fn pass(&mut self, time: Duration) -> impl Future<Output = Result<(), String>> {
        let _ = time;
        async { Err("here time goes by itself: say `#! only memory`".to_owned()) }
    }

    /// Begins anew with these arguments, after a connection that has ended.
    fn again(&mut self, args: &[String]) -> impl Future<Output = Result<(), String>> {
        let _ = args;
        async { Err("this cannot begin again: say `#! only wire`".to_owned()) }
    }

    /// Waits for parlor's end and checks that it was a clean one.
    fn finish(&mut self) -> impl Future<Output = Result<(), String>>;
}

/// Lets time pass in which nothing need be waited for: what happens within it happens at once, in
/// its order. For peers in the same runtime that neither block nor wait for other processes.
pub async fn let_time_pass(time: Duration) {
    tokio::time::pause();
    tokio::time::sleep(time).await;
    tokio::time::resume();
}
