//! The signals that ask a server to end.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Returns a future that completes when the program receives SIGTERM, SIGINT or SIGHUP. From this call on, these signals no
/// longer end the program by themselves.
pub fn termination_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hang_up.recv() => {}
        }
    })
}
