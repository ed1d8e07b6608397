//! Pseudo-terminals.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::SpawnError;

/// A terminal's size in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalDimensions {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

impl Default for TerminalDimensions {
    /// What terminals have been since the VT100.
    fn default() -> Self {
        Self { rows: 24, columns: 80 }
    }
}

/// Opens a terminal: our side, which does not block, and the child's side.
pub(crate) fn open(size: TerminalDimensions) -> Result<(OwnedFd, OwnedFd), SpawnError> {
    let refused = "open a terminal";
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).map_err(SpawnError::system(refused))?;
    unlockpt(&ours).map_err(SpawnError::system(refused))?;
    let name = ptsname(&ours, Vec::new()).map_err(SpawnError::system(refused))?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, flags, Mode::empty()).map_err(SpawnError::system(refused))?;
    resize(&ours, size).map_err(SpawnError::system(refused))?;
    rustix::io::ioctl_fionbio(&ours, true).map_err(SpawnError::system(refused))?;
    Ok((ours, theirs))
}

/// Gives the terminal another size; whoever runs in its foreground gets SIGWINCH.
pub(crate) fn resize(terminal: impl AsFd, size: TerminalDimensions) -> rustix::io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size)
}
