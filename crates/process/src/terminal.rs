//! Opens pseudoterminals and resizes them.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::SpawnError;

/// A terminal's size in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalDimensions {
    /// The number of lines.
    pub rows: u16,
    /// The number of characters in a line.
    pub columns: u16,
}

impl Default for TerminalDimensions {
    /// The size of a VT100.
    fn default() -> Self {
        Self { rows: 24, columns: 80 }
    }
}

/// Opens a terminal. Returns our side, which is nonblocking, and the child's side.
pub(crate) fn open(size: TerminalDimensions) -> Result<(OwnedFd, OwnedFd), SpawnError> {
    let attempt = "open a terminal";
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let our_side = openpt(flags).map_err(SpawnError::system(attempt))?;
    unlockpt(&our_side).map_err(SpawnError::system(attempt))?;
    let name = ptsname(&our_side, Vec::new()).map_err(SpawnError::system(attempt))?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let child_side = rustix::fs::open(name, flags, Mode::empty()).map_err(SpawnError::system(attempt))?;
    resize(&our_side, size).map_err(SpawnError::system(attempt))?;
    rustix::io::ioctl_fionbio(&our_side, true).map_err(SpawnError::system(attempt))?;
    Ok((our_side, child_side))
}

/// Resizes the terminal; its foreground processes get SIGWINCH.
pub(crate) fn resize(terminal: impl AsFd, size: TerminalDimensions) -> rustix::io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size)
}
