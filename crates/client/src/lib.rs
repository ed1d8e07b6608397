//! Clients of parlor's dialects, built on the doors' own wire types.
//!
//! A client speaks a dialect to any server of it, parlor or not, and does not depend on the engine. There is one module per
//! dialect; `child` has what the clients share whose server is a child process.

mod child;
pub mod exec;
pub mod loaf;
pub mod supex;
pub mod supr;
pub mod synaps;
