//! Writes programs that a test then runs.
//!
//! A child process writes the file. If this process wrote it, a child that another test forks at that moment would inherit
//! the open file until it calls `exec`, and running the program would fail with `ETXTBSY`.
#![expect(clippy::disallowed_methods, reason = "a test tool that starts short-lived children")]

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
        .expect("a shell starts");
    writer
        .stdin
        .take()
        .expect("stdin is piped")
        .write_all(text.as_bytes())
        .expect("the shell reads its stdin");
    assert!(
        writer.wait().expect("the child can be waited for").success(),
        "{} was not written",
        path.display()
    );
}

/// Copies the program `from` to `to`, with its permissions.
///
/// # Panics
///
/// If the file cannot be copied.
pub fn copy_executable(from: impl AsRef<OsStr>, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().expect("cp starts");
    assert!(copied.success(), "{} was not written", to.display());
}
