//! The signals that ask a server to end or to read its settings again.

use std::fs::File;
use std::io;

use rustix::termios::tcgetwinsize;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The terminal of this process, if it has one.
const TERMINAL: &str = "/dev/tty";

/// The bit of SIGHUP in the masks of `/proc/self/status`.
const HANG_UP_BIT: u64 = 1;

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

/// What a signal asks a server to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerSignal {
    /// End: SIGTERM, SIGINT, or the terminal in which the server was started is gone.
    End,
    /// Read the settings again: SIGHUP from anybody else.
    Reload,
}

/// The signals of a server that runs for long.
pub struct ServerSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// Whether the end of the terminal ends the server: it has a terminal, and was not started by `nohup`.
    ends_with_terminal: bool,
}

impl ServerSignals {
    /// From this call on, SIGTERM, SIGINT and SIGHUP no longer end the program by themselves.
    pub fn listen() -> io::Result<Self> {
        let ends_with_terminal = !ignores_hang_up() && has_terminal();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            ends_with_terminal,
        })
    }

    /// Waits for the next signal. Dropping the future loses none.
    pub async fn next(&mut self) -> ServerSignal {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => ServerSignal::End,
            _ = self.interrupt.recv() => ServerSignal::End,
            // A closed terminal sends the same signal as a supervisor that wants a reload.
            _ = self.hang_up.recv() => match self.ends_with_terminal && !has_terminal() {
                true => ServerSignal::End,
                false => ServerSignal::Reload,
            },
        }
    }
}

/// Whether this process has a terminal that was not closed.
fn has_terminal() -> bool {
    File::open(TERMINAL).is_ok_and(|terminal| tcgetwinsize(&terminal).is_ok())
}

/// Whether SIGHUP is ignored, as `nohup` arranges it for the programs that it starts.
fn ignores_hang_up() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & HANG_UP_BIT != 0)
}
