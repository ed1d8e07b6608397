//! The `synaps` dialect: typed frames between a parent and its child (`docs/protocols/synaps.md`).
//!
//! One child is one conversation. The parent writes commands, the child writes events: `ready`
//! first, then answers under the command's id, and what happens in the running turn without one.
//!
//! [`protocol`] has the wire types under their upstream names, `decode` finds out what a line says or
//! what is wrong with it, `turn` makes frames of what happens, `history` spells what was said before,
//! `attachment` judges files, `encode` writes ASCII, and `code` has the texts of all errors.

mod attachment;
mod code;
mod decode;
mod encode;
mod history;
mod machine;
pub mod protocol;
mod turn;

use std::time::Duration;

pub use machine::{Child, Model, SynapsMachine, Tool};
pub use protocol::{AssistantEvent, RPC_PROTOCOL_VERSION, RpcAttachment, RpcCommand, RpcEvent, TurnUsage};

/// The longest frame that a parent may send, in bytes, without its line ending: 1 MiB.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// The most attachments of one prompt.
pub const MAX_ATTACHMENTS: usize = 8;

/// The largest attachment: 10 MiB.
pub const MAX_ATTACHMENT_BYTES: u64 = 10 << 20;

/// All attachments of a prompt together: 15 MiB.
pub const MAX_ATTACHED_BYTES: u64 = 15 << 20;

/// The largest image: 3.5 MiB.
pub const MAX_IMAGE_BYTES: usize = 7 << 19;

/// The longest side of an image, in pixels.
pub const MAX_IMAGE_SIDE: usize = 8000;

/// The largest text: 256 KiB.
pub const MAX_TEXT_BYTES: usize = 256 << 10;

/// How much of the files that came along is spelled out in an answer to `get_messages`.
pub const MAX_HISTORY_MEDIA_BYTES: u64 = 64 << 20;

/// How long a running turn may go on after `shutdown`.
pub const DRAIN_WAIT: Duration = Duration::from_secs(30);

/// A turn that fails later than this after its prompt says so in its response alone: the real parent
/// has given the prompt up by then, and an `error` that nobody waits for ends it.
pub const LATE_FAILURE: Duration = Duration::from_secs(55);

/// How much of a subagent's task or result is shown.
pub const PREVIEW_CHARS: usize = 80;
