//! The styles and signs of the screen. Only the sixteen colours of the terminal are used, so that they fit light and dark
//! backgrounds.

use ratatui_core::style::{Color, Modifier, Style};

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Theme {
    /// Whether text may be coloured, bold or dim.
    pub(super) has_colours: bool,
    /// Whether signs beyond ASCII may be used.
    pub(super) has_unicode: bool,
}

impl Theme {
    /// For text beside the answer itself.
    pub(super) fn dim(self) -> Style {
        self.styled(Style::new().add_modifier(Modifier::DIM))
    }

    /// For text that should be noticed first.
    pub(super) fn bold(self) -> Style {
        self.styled(Style::new().add_modifier(Modifier::BOLD))
    }

    /// For what the user typed, and for names that the user can choose.
    pub(super) fn accent(self) -> Style {
        self.styled(Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD))
    }

    /// For code inside of a sentence, and for words with a meaning of their own.
    pub(super) fn code(self) -> Style {
        self.styled(Style::new().fg(Color::Cyan))
    }

    pub(super) fn error(self) -> Style {
        self.styled(Style::new().fg(Color::Red))
    }

    pub(super) fn success(self) -> Style {
        self.styled(Style::new().fg(Color::Green))
    }

    /// For questions, which the run waits for.
    pub(super) fn warning(self) -> Style {
        self.styled(Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD))
    }

    /// For keywords of code.
    pub(super) fn keyword(self) -> Style {
        self.styled(Style::new().fg(Color::Magenta))
    }

    /// For strings and other literals of code.
    pub(super) fn literal(self) -> Style {
        self.styled(Style::new().fg(Color::Green))
    }

    pub(super) fn italic(self) -> Style {
        self.styled(Style::new().add_modifier(Modifier::ITALIC))
    }

    pub(super) fn underlined(self) -> Style {
        self.styled(Style::new().add_modifier(Modifier::UNDERLINED))
    }

    pub(super) fn crossed_out(self) -> Style {
        self.styled(Style::new().add_modifier(Modifier::CROSSED_OUT))
    }

    fn styled(self, style: Style) -> Style {
        if self.has_colours { style } else { Style::new() }
    }

    /// A horizontal line.
    pub(super) fn rule(self, width: usize) -> String {
        self.sign("─", "-").repeat(width)
    }

    /// Of two signs, the one that the terminal can show.
    pub(super) fn sign(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.has_unicode { unicode } else { ascii }
    }

    /// The sign of life for this number of steps.
    pub(super) fn spinner(self, step: u64) -> &'static str {
        const UNICODE: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
        const ASCII: [&str; 4] = ["|", "/", "-", "\\"];
        let signs: &[&'static str] = if self.has_unicode { &UNICODE } else { &ASCII };
        let index = usize::try_from(step % signs.len() as u64).unwrap_or_default();
        signs.get(index).copied().unwrap_or("*")
    }
}
