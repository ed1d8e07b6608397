//! Programs that a test makes and then runs.
//!
//! Another process writes them. A file that this process had open for writing would be open in every child that another
//! test forks at that moment, until that child calls `exec`, and running the file would fail with `ETXTBSY`.
#![expect(clippy::disallowed_methods, reason = "a test tool, which starts its own short children")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes `text` to a new executable file.
///
/// # Panics
///
/// If the file cannot be written.
pub fn write_executable(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "umask 022 && cat > \"$1\" && chmod 755 \"$1\"", "sh"].map(OsStr::new))
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    writer
        .stdin
        .take()
        .expect("a pipe was asked for")
        .write_all(text.as_bytes())
        .expect("the shell reads it");
    assert!(writer.wait().expect("our own child").success(), "{} was not written", path.display());
}

/// Copies the program `from` to `to`, with its permissions.
///
/// # Panics
///
/// If the file cannot be copied.
pub fn copy_executable(from: impl AsRef<OsStr>, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().expect("cp");
    assert!(copied.success(), "{} was not written", to.display());
}
