//! What the terminal of this process can do.

use std::io::{IsTerminal, stderr, stdin, stdout};

use crate::environment::Environment;

/// The width that is assumed if output is not a terminal, or the terminal does not report a width.
const DEFAULT_COLUMNS: usize = 80;
/// Layouts assume at least this width, even on a narrower terminal.
const MIN_COLUMNS: usize = 20;

/// The properties of the terminal that decide what is printed and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    /// Whether stdin is a terminal, so that a person can be asked.
    pub(crate) stdin_is_terminal: bool,
    /// Whether stdout is a terminal, so that a person reads the output.
    pub(crate) stdout_is_terminal: bool,
    /// How text on stderr may be styled.
    pub(crate) style: Style,
    /// Whether stdout can show characters beyond ASCII.
    pub(crate) unicode: bool,
    /// Whether the terminal understands no control sequences.
    pub(crate) is_dumb: bool,
}

impl Console {
    /// Asks the operating system and the environment.
    pub(crate) fn detect(environment: &Environment) -> Self {
        let stdout_is_terminal = stdout().is_terminal();
        let colours = stderr().is_terminal() && !environment.no_color && !environment.is_dumb_terminal;
        Self {
            stdin_is_terminal: stdin().is_terminal(),
            stdout_is_terminal,
            style: Style(colours),
            unicode: environment.unicode && stdout_is_terminal && !environment.is_dumb_terminal,
            is_dumb: environment.is_dumb_terminal,
        }
    }

    /// The present width of the terminal in columns, or an assumed one.
    pub(crate) fn columns(self) -> usize {
        let size =
            rustix::termios::tcgetwinsize(stdout()).or_else(|_| rustix::termios::tcgetwinsize(stderr()));
        match size {
            Ok(size) if size.ws_col > 0 => usize::from(size.ws_col).max(MIN_COLUMNS),
            Ok(_) | Err(_) => DEFAULT_COLUMNS,
        }
    }
}

/// Styles text with escape sequences if the flag is set; otherwise returns the text unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style(pub(crate) bool);

impl Style {
    /// For text beside the answer itself.
    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// For errors.
    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// For added lines.
    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// For text that should be noticed first.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colours_text_is_unchanged() {
        assert_eq!(Style(false).dim("a"), "a");
        assert_eq!(Style(true).dim("a"), "\x1b[2ma\x1b[0m");
        assert_eq!(Style(true).red(""), "");
    }
}
