//! One session as a state machine: [`decide`] says what a command would change, [`Session::apply`]
//! changes it. Both look at nothing but their arguments, so replaying the log rebuilds the state.
//!
//! [`decide`]: Session::decide

mod decide;
mod history;
mod report;
mod state;

#[cfg(test)]
mod properties;

pub(crate) use history::History;

pub use decide::{Decision, Effect, MAX_QUEUED_INPUTS, TITLE_CHARS};
pub use report::{Finish, Outcome};
pub use state::{MAX_KEYS, OpenRun, Session};
