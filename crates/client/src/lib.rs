//! Clients of parlor's dialects, built on the doors' own wire types.
//!
//! A client speaks a dialect to any server of it, parlor or not, and knows nothing of the engine.
//! One module per dialect.

mod child;
pub mod exec;
pub mod loaf;
pub mod supex;
pub mod supr;
pub mod synaps;
