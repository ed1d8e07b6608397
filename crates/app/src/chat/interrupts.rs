//! What asks a chat to stop or to end from the outside.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InterruptPress {
    /// Ctrl-C.
    Interrupt,
    /// The program is to end: SIGTERM, or SIGHUP when the terminal is gone.
    End,
}

/// The signals. From its making on they no longer end the program by themselves.
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Interrupts {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next. Cancel safe.
    pub(super) async fn next(&mut self) -> InterruptPress {
        tokio::select! {
            _ = self.interrupt.recv() => InterruptPress::Interrupt,
            _ = self.terminate.recv() => InterruptPress::End,
            _ = self.hang_up.recv() => InterruptPress::End,
        }
    }
}
