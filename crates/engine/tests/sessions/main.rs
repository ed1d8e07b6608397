//! Sessions as their users meet them: through the house, with the local agent and a log in memory.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

mod common;
mod disk;
mod guest;
mod house;
mod inputs;
mod places;
mod rooms;
