//! One session as a pure state machine: [`decide`] turns a command into events and effects, and [`Session::apply`]
//! applies an event. Neither reads a clock or a file, so replaying the log rebuilds the state.
//!
//! [`decide`]: Session::decide

mod decide;
mod history;
mod questions;
mod report;
mod snapshot;
mod state;

#[cfg(test)]
mod properties;

pub(crate) use decide::first_title;
pub(crate) use history::History;

pub use decide::{Decision, Effect, MAX_QUEUED_INPUTS, MAX_TITLE_CHARS, ResolvedChoice, TITLE_CHARS};
pub use questions::{MAX_ANSWER_BYTES, MAX_SETTLED_QUESTIONS, PendingQuestion};
pub use report::{FinishedRun, RunOutcome};
pub use state::{MAX_KEYS, OpenRun, Session};
