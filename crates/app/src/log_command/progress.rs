//! A progress bar on the terminal of stderr.

use std::io::{IsTerminal, Write, stderr};

use crate::console::Console;

/// The columns of the bar itself, without its text.
const BAR_COLUMNS: u64 = 30;

/// A bar for one quantity after the other. Shows nothing if stderr is no terminal.
pub(super) struct ProgressBar {
    is_shown: bool,
    unit: &'static str,
    done: u64,
    total: u64,
    /// The last text, so that it is written only when it changes by a thousandth.
    permille: Option<u64>,
}

impl ProgressBar {
    pub(super) fn new(console: Console) -> Self {
        let is_shown = stderr().is_terminal() && !console.is_dumb;
        Self { is_shown, unit: "", done: 0, total: 0, permille: None }
    }

    /// Begins to count `unit`, of which there are `total`.
    pub(super) fn begin(&mut self, unit: &'static str, total: u64) {
        *self = Self { unit, total, done: 0, permille: None, is_shown: self.is_shown };
        self.draw();
    }

    pub(super) fn advance(&mut self, count: u64) {
        self.done += count;
        self.draw();
    }

    /// Removes the bar, for other output.
    pub(super) fn clear(&mut self) {
        if self.is_shown && self.permille.take().is_some() {
            // Progress is optional, so a write error is ignored.
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }

    fn draw(&mut self) {
        let permille = (self.done * 1000).checked_div(self.total).unwrap_or(1000).min(1000);
        if self.is_shown && self.total > 0 && self.permille != Some(permille) {
            self.permille = Some(permille);
            let _ = write!(stderr(), "\r\x1b[K{}", text(self.unit, self.done, self.total, permille));
        }
    }
}

fn text(unit: &str, done: u64, total: u64, permille: u64) -> String {
    let filled = usize::try_from(permille * BAR_COLUMNS / 1000).unwrap_or(0);
    let rest = usize::try_from(BAR_COLUMNS).unwrap_or(0) - filled;
    let percent = permille / 10;
    format!("[{}{}] {percent:>3} %  {done} of {total} {unit}", "#".repeat(filled), ".".repeat(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_grows_with_what_is_done() {
        assert_eq!(text("events", 0, 4, 0), "[..............................]   0 %  0 of 4 events");
        assert_eq!(text("events", 2, 4, 500), "[###############...............]  50 %  2 of 4 events");
        assert_eq!(text("files", 4, 4, 1000), "[##############################] 100 %  4 of 4 files");
    }
}
