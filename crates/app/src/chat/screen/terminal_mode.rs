//! The modes of the terminal while the screen is shown: each key comes at once, and pasted text comes as one event.

use std::io::{self, Write, stdout};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};

/// Switches the modes on, and off again when it is dropped, also when a panic unwinds.
pub(super) struct TerminalMode;

impl TerminalMode {
    pub(super) fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        // Dropped if the next line fails.
        let mode = Self;
        write_now("\x1b[?2004h")?;
        Ok(mode)
    }
}

impl Drop for TerminalMode {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = write_now("\x1b[?2004l\x1b[?25h\x1b[?2026l");
        let _ = disable_raw_mode();
    }
}

/// Writes to the terminal without a delay.
pub(super) fn write_now(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
