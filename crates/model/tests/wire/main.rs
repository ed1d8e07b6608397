//! What comes over the wire, as pieces: a connection beside a server that answers byte for byte.

mod blocks;
mod calls;
mod endings;
mod hostile;
mod keys;
mod responses;
mod server;
