//! What the terminal can do.

use std::io::{IsTerminal, stderr, stdin, stdout};

use crate::environment::Environment;

/// The width of what is no terminal, or does not tell.
const DEFAULT_COLUMNS: usize = 80;
/// Nothing is laid out for less.
const LEAST_COLUMNS: usize = 20;

/// The terminal, as far as it matters to what is printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    /// Whether a person types.
    pub(crate) input: bool,
    /// Whether a person reads what is printed.
    pub(crate) output: bool,
    /// Whether what is said aside may be dim or red.
    pub(crate) style: Style,
    /// Whether marks may be more than ASCII.
    pub(crate) unicode: bool,
    /// Whether the terminal can do no more than print.
    pub(crate) dumb: bool,
}

impl Console {
    /// Looks at it.
    pub(crate) fn look(environment: &Environment) -> Self {
        let output = stdout().is_terminal();
        let colours = stderr().is_terminal() && !environment.no_color && !environment.dumb;
        Self {
            input: stdin().is_terminal(),
            output,
            style: Style(colours),
            unicode: environment.unicode && output && !environment.dumb,
            dumb: environment.dumb,
        }
    }

    /// How many columns there are right now.
    pub(crate) fn columns(self) -> usize {
        let size =
            rustix::termios::tcgetwinsize(stdout()).or_else(|_| rustix::termios::tcgetwinsize(stderr()));
        match size {
            Ok(size) if size.ws_col > 0 => usize::from(size.ws_col).max(LEAST_COLUMNS),
            Ok(_) | Err(_) => DEFAULT_COLUMNS,
        }
    }
}

/// Whether text may be styled, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style(pub(crate) bool);

impl Style {
    /// What is not the answer itself.
    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// What went wrong.
    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// What is to be seen first.
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
    fn without_colours_text_is_left_alone() {
        assert_eq!(Style(false).dim("a"), "a");
        assert_eq!(Style(true).dim("a"), "\x1b[2ma\x1b[0m");
        assert_eq!(Style(true).red(""), "");
    }
}
