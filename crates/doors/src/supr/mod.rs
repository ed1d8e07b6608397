//! The `supr` dialect: a web chat over one WebSocket (`docs/protocols/supr.md`).
//!
//! Two kinds of frames. *Typed* frames have a `type`: what the client asks for, and the server's direct
//! answers. *Events* have an `event_type`: what happens in the runs of the session. An event is its entry in
//! the log and nothing else: its id, its time and its number within the run are the same for whoever sees
//! it, now or years later. That is what makes replay possible.
//!
//! `incoming` has the members of a client's frame that mean something, `decode` finds out what they say or what is wrong with them (`pairs` mends what JavaScript cuts), `media` what files come with it, `activity`
//! makes events of what happens and `run` knows what they need of what happened before, `preview` cuts and
//! redacts what is shown, `replay` makes frames for who looks back without a connection, and `code` has all codes and texts.
//!
//! Deliberately absent: who may connect, and when a socket is closed. That is HTTP, and the driver's.

mod activity;
mod code;
mod decode;
mod frame;
mod incoming;
mod machine;
mod media;
pub(crate) mod pairs;
mod preview;
pub mod protocol;
mod replay;
mod run;

use std::time::Duration;

pub use machine::{ConnectionParams, SuprMachine};
pub use media::MAX_MEDIA_BYTES;
pub use replay::{Replay, error_code, event_type};

/// The longest message that a client may send: 64 MiB. One file of the largest size fits, as base64.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// The most files that one frame may bring.
pub const MAX_ATTACHMENTS: usize = 64;

/// How long the downloads of one frame may take before no more is begun.
pub const FILES_WAIT: Duration = Duration::from_secs(60);

/// How many frames may wait while one before them is being carried out; `ping` never waits.
pub const MAX_WAITING_FRAMES: usize = 16;

/// How many bytes these frames may have in all before no more is read.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// The most files of one answer that are sent along, in bytes before base64.
pub const MAX_SENT_MEDIA_BYTES: u64 = 64 << 20;

/// How many other sessions one connection may watch.
pub const MAX_WATCHED: usize = 16;

/// The longest `key` of a message.
pub const MAX_KEY_BYTES: usize = 128;

/// The longest session id: it is repeated in every event.
pub const MAX_SESSION_ID_BYTES: usize = 256;
