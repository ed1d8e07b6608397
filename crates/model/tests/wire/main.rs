//! A connection to a test server that sends given bytes: the pieces of the answer, and the request.

mod blocks;
mod calls;
mod endings;
mod hostile;
mod keys;
mod responses;
mod server;
