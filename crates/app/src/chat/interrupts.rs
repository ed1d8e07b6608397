//! Receives the signals that ask a chat to stop a run or to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// One request to stop or to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Ctrl-C, or SIGINT from another program.
    CtrlC,
    /// SIGTERM, or SIGHUP because the terminal is gone: the program should end.
    Terminate,
}

/// Receives SIGINT, SIGTERM and SIGHUP. Once it exists, these signals no longer end the program by themselves.
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

    /// Waits for the next signal. Cancel safe.
    pub(super) async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.interrupt.recv() => Interrupt::CtrlC,
            _ = self.terminate.recv() => Interrupt::Terminate,
            _ = self.hang_up.recv() => Interrupt::Terminate,
        }
    }
}
