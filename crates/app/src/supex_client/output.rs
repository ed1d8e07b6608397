//! Prints values on standard output and errors on standard error.

use std::io::Write;
use std::process::ExitCode;

use parlor_client::supex::DriverError;

use crate::console::Console;
use crate::text::TerminalSanitizer;

/// Prints a value. On a terminal, control sequences are removed from it.
pub(super) fn print_value(out: &mut dyn Write, text: &str, console: Console) -> std::io::Result<()> {
    if console.stdout_is_terminal { writeln!(out, "{}", sanitized(text)) } else { writeln!(out, "{text}") }
}

/// A text from the bridge without terminal control sequences.
pub(super) fn sanitized(text: &str) -> String {
    TerminalSanitizer::default().sanitize(text)
}

/// Prints an error with its file, line and a hint, and returns the exit status 1.
pub(super) fn print_error(error: &DriverError, console: Console) -> anyhow::Result<ExitCode> {
    for (number, line) in error_lines(error).iter().enumerate() {
        let line = sanitized(line);
        eprintln!("{}", if number == 0 { console.style.red(&line) } else { line });
    }
    Ok(ExitCode::FAILURE)
}

fn error_lines(error: &DriverError) -> Vec<String> {
    // Leave out the numeric code, which is for programs.
    let text =
        if let DriverError::Remote { message, .. } = error { message.clone() } else { error.to_string() };
    let mut lines = vec![format!("Error: {text}")];
    for (name, label) in [("file", "File: "), ("line", "Line: ")] {
        // Some messages contain the file and the line already.
        if !text.lines().any(|line| line.starts_with(label)) {
            lines.extend(error.detail(name).map(|detail| format!("{label}{detail}")));
        }
    }
    lines.extend(hint(error).map(|hint| format!("Hint: {hint}")));
    lines
}

fn hint(error: &DriverError) -> Option<String> {
    let hint = match error {
        DriverError::Connect { .. } => {
            "start a bridge with `parlor serve`, or choose another one with --host and --port"
        }
        DriverError::Timeout { .. } => "give it more time with --timeout SECONDS or SUPEX_TIMEOUT",
        DriverError::Unauthorized { .. } => {
            "set SUPEX_AUTH_TOKEN to the token that the bridge was started with, or to the token that `parlor token` \
             prints for the user who runs it"
        }
        DriverError::Protocol { .. } => "check that a Supex bridge listens there; its default port is 9876",
        DriverError::TooLarge { .. } => "set SUPEX_MAX_RESPONSE=BYTES to allow longer answers",
        DriverError::RequestTooLarge { .. } => "call eval_ruby_file with the path of a file instead",
        DriverError::Remote { .. } => return error.detail("hint"),
        DriverError::Closed { .. }
        | DriverError::Failed { .. }
        | DriverError::Arguments(_)
        | DriverError::Busy => return None,
    };
    Some(hint.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_names_its_file_and_line_once() {
        let data = json!({"file": "/p/t.rb", "line": 3, "hint": "look\u{1b}[2J there"});
        let remote = |message: &str| DriverError::Remote {
            code: -32000,
            message: message.to_owned(),
            data: data.clone(),
        };
        let short = error_lines(&remote("Ruby evaluation error: bad"));
        let expected = ["Error: Ruby evaluation error: bad", "File: /p/t.rb", "Line: 3"];
        assert_eq!(short[..3], expected);
        assert_eq!(short[3], "Hint: look\u{1b}[2J there");
        assert_eq!(sanitized(&short[3]), "Hint: look there");
        let long = error_lines(&remote("Error in t.rb: bad\nFile: /p/t.rb\nLine: 3"));
        assert_eq!(long[0], "Error: Error in t.rb: bad\nFile: /p/t.rb\nLine: 3");
        assert_eq!(long.len(), 2, "{long:?}");
    }
}
