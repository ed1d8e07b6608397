//! What people are told: values on standard output, failures on standard error.

use std::io::Write;
use std::process::ExitCode;

use parlor_client::supex::DriverError;

use crate::console::Console;
use crate::text::Clean;

/// Prints a value. A terminal is shown it, and not steered by it.
pub(super) fn value(out: &mut dyn Write, text: &str, console: Console) -> std::io::Result<()> {
    if console.output { writeln!(out, "{}", clean(text)) } else { writeln!(out, "{text}") }
}

/// What a terminal would show of a text that is not ours.
pub(super) fn clean(text: &str) -> String {
    Clean::default().text(text)
}

/// Says what went wrong, where, and what helps.
pub(super) fn failed(error: &DriverError, console: Console) -> anyhow::Result<ExitCode> {
    for (number, line) in explained(error).iter().enumerate() {
        let line = clean(line);
        eprintln!("{}", if number == 0 { console.style.red(&line) } else { line });
    }
    Ok(ExitCode::FAILURE)
}

fn explained(error: &DriverError) -> Vec<String> {
    // Without the code, which is for programs.
    let said =
        if let DriverError::Remote { message, .. } = error { message.clone() } else { error.to_string() };
    let mut lines = vec![format!("Error: {said}")];
    for (name, label) in [("file", "File: "), ("line", "Line: ")] {
        // Some messages say it themselves.
        if !said.lines().any(|line| line.starts_with(label)) {
            lines.extend(error.detail(name).map(|detail| format!("{label}{detail}")));
        }
    }
    lines.extend(hint(error).map(|hint| format!("Hint: {hint}")));
    lines
}

fn hint(error: &DriverError) -> Option<String> {
    let hint = match error {
        DriverError::Connect { .. } => {
            "start a bridge with `parlor serve`, or name another one with --host and --port"
        }
        DriverError::Timeout { .. } => "give it more time with --timeout SECONDS or SUPEX_TIMEOUT",
        DriverError::Unauthorized { .. } => {
            "set SUPEX_AUTH_TOKEN to the token that the bridge was started with, or else to what `parlor token` \
             prints for its user"
        }
        DriverError::Protocol { .. } => "is this a supex bridge? Its usual port is 9876",
        DriverError::TooLarge { .. } => "SUPEX_MAX_RESPONSE=BYTES allows longer answers",
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
    fn a_failure_says_where_it_is_once() {
        let data = json!({"file": "/p/t.rb", "line": 3, "hint": "look\u{1b}[2J there"});
        let remote = |message: &str| DriverError::Remote {
            code: -32000,
            message: message.to_owned(),
            data: data.clone(),
        };
        let short = explained(&remote("Ruby evaluation error: bad"));
        let where_it_is = ["Error: Ruby evaluation error: bad", "File: /p/t.rb", "Line: 3"];
        assert_eq!(short[..3], where_it_is);
        assert_eq!(short[3], "Hint: look\u{1b}[2J there");
        assert_eq!(clean(&short[3]), "Hint: look there");
        let long = explained(&remote("Error in t.rb: bad\nFile: /p/t.rb\nLine: 3"));
        assert_eq!(long[0], "Error: Error in t.rb: bad\nFile: /p/t.rb\nLine: 3");
        assert_eq!(long.len(), 2, "{long:?}");
    }
}
