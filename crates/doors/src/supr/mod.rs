//! The `supr` door: a web chat over one WebSocket (`docs/protocols/supr.md`).
//!
//! There are two kinds of frames. A *typed* frame has a `type`: it is a client's request or the server's direct answer.
//! An *activity* has an `event_type`: it reports what happens in the runs of the session. The server makes an activity
//! from one log entry only, so its id, its time and its number within the run are the same for every client at any
//! time. That makes replay possible.
//!
//! - `wire` has the types of frames, `client_frame` the members that are read of a client's frame.
//! - `decode` makes requests of a client's frame; `surrogates` repairs strings that JavaScript has cut, and `media` has
//!   the files of a frame.
//! - `machine` is the state machine and `dispatch` what each request does.
//! - `activity` makes activities of run events, `run` stores what they need of earlier events, `preview` shortens and
//!   redacts what is shown, `fence` makes markdown of the output of programs, and `encode` writes frames.
//! - `replay` makes frames of log entries without a connection.
//! - `code` has all error codes and texts.
//!
//! Not here: who may connect, and when a socket is closed. The HTTP server and the driver decide that.

mod activity;
mod client_frame;
mod code;
mod decode;
mod dispatch;
mod encode;
mod fence;
mod machine;
mod media;
mod preview;
mod replay;
mod run;
pub(crate) mod surrogates;
pub mod wire;

use std::time::Duration;

pub use fence::fenced;
pub use machine::{ConnectionParams, SuprMachine};
pub use media::MAX_MEDIA_BYTES;
pub use replay::{Replay, error_code, event_type};

/// The door's name in sessions.
const DOOR: &str = "supr";

/// The longest message that a client may send: 64 MiB. A file of [`MAX_MEDIA_BYTES`] fits as base64.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// The most files in one frame.
pub const MAX_ATTACHMENTS: usize = 64;

/// How long the downloads of one frame may take. After that the door starts no further download.
pub const FILES_WAIT: Duration = Duration::from_secs(60);

/// The most frames that may wait while an earlier one is carried out.
pub const MAX_WAITING_FRAMES: usize = 16;

/// The most bytes of waiting frames in all. Above it the door reads no further frame.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// The most bytes of files, before base64, that the door sends to the client with one answer.
pub const MAX_SENT_MEDIA_BYTES: u64 = 64 << 20;

/// The most other sessions that one connection may watch.
pub const MAX_WATCHED: usize = 16;

/// The longest `key` of a message, in bytes. The door ignores a longer one.
pub const MAX_KEY_BYTES: usize = parlor_vocab::MAX_KEY_BYTES;

/// The longest session id, in bytes. Every activity repeats it.
pub const MAX_SESSION_ID_BYTES: usize = 256;
