//! The peer door: how one process of parlor reaches the sessions that another has open (`docs/protocols/peer.md`).
//!
//! One JSON object per line. The process that connects sends `hello` with the versions it speaks, and the owner answers with
//! the version that both use. Then come requests with ids, replies in any order, and updates of watched sessions. Events are
//! not on the wire: both processes read them from the log that they share.

mod code;
mod forms;
mod machine;
mod wire;

use std::time::Duration;

pub use code::PeerFrameError;
pub use forms::{BorrowedCommand, WireCommand, WireRefusal, WireReply, WireStream};
pub use machine::PeerMachine;
pub use wire::{BorrowedFrame, ClientFrame, ClientHello, ServerFrame, ServerHello};

/// The versions that this program speaks, best first.
pub const VERSIONS: &[u32] = &[1];

/// The longest line, in bytes. A command carries at most one message; attached files are in the media store.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// How long a process may take to send `hello`.
pub const HELLO_WAIT: Duration = Duration::from_secs(5);
