//! What the clients share whose server is a child process of this program and sends one frame per line.
//!
//! [`process`] starts and ends the child, [`connection`] and [`driver`] move frames over its pipes, [`link`] holds the
//! requests that wait for an answer, and [`backlog`] the items that a handle has not taken yet. Nothing here knows a
//! dialect. The exec and synaps clients use all of it, the loaf client only [`process`].

pub(crate) mod backlog;
pub(crate) mod connection;
pub(crate) mod driver;
pub(crate) mod link;
pub(crate) mod process;
