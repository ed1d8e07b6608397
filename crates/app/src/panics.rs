//! What is said of a panic: one line with its place and the way there.
//!
//! What panicked ends, and nothing else; the line is all that is left of it. Clients are told that there was an internal
//! error, and nothing of this.

use std::backtrace::Backtrace;
use std::io::{Write, stderr};
use std::panic::{self, PanicHookInfo};
use std::thread;

/// The longest backtrace, in bytes.
const MAX_BACKTRACE_BYTES: usize = 16 * 1024;

/// From now on, panics are said in one line: to the journal where there is one, else on stderr.
pub(crate) fn say_in_one_line() {
    panic::set_hook(Box::new(|panic| {
        let (location, message) = (location(panic), one_line(panic.payload_as_str().unwrap_or("no message")));
        let backtrace = one_line(&Backtrace::force_capture().to_string());
        let thread = thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        if tracing::dispatcher::has_been_set() {
            tracing::error!(%location, thread, message, %backtrace, "a part of parlor panicked");
        } else {
            // Nobody may be there to see it.
            let _ = writeln!(
                stderr(),
                "parlor: a part of it panicked at {location} in thread {thread}: {message}; {backtrace}"
            );
        }
    }));
}

fn location(panic: &PanicHookInfo<'_>) -> String {
    panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string)
}

/// All lines in one, without the space around them, and cut if they are long.
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
