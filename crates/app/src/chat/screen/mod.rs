//! The screen of `parlor chat` on a terminal: finished messages go into the terminal's own scrollback, where they can be
//! selected; what is still changing, and the text that the user writes, stand below them.
//!
//! [`state`] is pure: events go in, effects and lines come out. [`driver`] waits for keys and for the session, and carries the
//! effects out.

mod commands;
mod completion;
mod driver;
mod files;
mod fuzzy;
mod highlight;
mod history_file;
mod input;
mod keys;
mod markdown;
mod paint;
mod parts;
mod picker;
mod region;
mod run_command;
mod session_link;
mod state;
mod table;
mod terminal_mode;
mod theme;
mod tool_call;
mod updates;
mod wrap;

#[cfg(test)]
mod tests;

pub(super) use driver::{ScreenOptions, run};
