//! Logs each panic as one line with its location and backtrace.
//!
//! A panic ends only the task that panicked. Clients are told that an internal error happened, and no more; the details
//! are in this line alone.

use std::backtrace::Backtrace;
use std::io::{Write, stderr};
use std::panic::{self, PanicHookInfo};
use std::thread;

/// A longer message or backtrace is truncated to this many bytes.
const MAX_BACKTRACE_BYTES: usize = 16 * 1024;

/// Installs a panic hook that logs through `tracing` if a subscriber is set, and prints on stderr otherwise.
pub(crate) fn install_hook() {
    panic::set_hook(Box::new(|panic| {
        let (location, message) = (location(panic), one_line(panic.payload_as_str().unwrap_or("no message")));
        let backtrace = one_line(&Backtrace::force_capture().to_string());
        let thread = thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        if tracing::dispatcher::has_been_set() {
            tracing::error!(%location, thread, message, %backtrace, "a part of parlor panicked");
        } else {
            // stderr may be closed; there is nowhere else to report that.
            let _ = writeln!(
                stderr(),
                "parlor: a part of it panicked at {location} in thread {thread}: {message}; {backtrace}"
            );
        }
    }));
}

fn location(panic: &PanicHookInfo<'_>) -> String {
    panic.location().map_or_else(|| "an unknown location".to_owned(), ToString::to_string)
}

/// Joins all lines into one, without the white space around them, and truncates the result.
fn one_line(text: &str) -> String {
    let mut line = text.lines().map(str::trim).collect::<Vec<_>>().join(" | ");
    line.truncate(line.floor_char_boundary(MAX_BACKTRACE_BYTES));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backtrace_is_one_line() {
        let line = one_line(&Backtrace::force_capture().to_string());
        assert!(!line.contains('\n') && line.contains(" | "), "{line}");
        assert!(line.contains("panics::tests::a_backtrace_is_one_line"), "{line}");
        assert_eq!(one_line("  0: a\n      at b.rs:1\n"), "0: a | at b.rs:1");
        assert_eq!(one_line(&"ä".repeat(MAX_BACKTRACE_BYTES)).len(), MAX_BACKTRACE_BYTES);
    }
}
