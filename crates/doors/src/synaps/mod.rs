//! The `synaps` door: typed frames between a parent process and its child (`docs/protocols/synaps.md`).
//!
//! A child serves one conversation. The parent writes commands and the child writes events: first `ready`, then answers
//! with the id of the command, and the events of the running turn without an id.
//!
//! - [`wire`] has the types of frames under their upstream names; `decode` reads commands, `encode` writes events.
//! - `machine` is the state machine, `dispatch` what each command does, and `params` the settings of a child.
//! - `turn` makes frames of run events, `other_turn` those of other clients' runs, `history` makes the messages of
//!   `get_messages`, and `attachment` checks files.
//! - `code` has all error texts.

mod attachment;
mod code;
mod decode;
mod dispatch;
mod encode;
mod history;
mod machine;
mod other_turn;
mod params;
mod replay;
mod turn;
pub mod wire;

use std::time::Duration;

pub use encode::tool_to_json;
pub use machine::SynapsMachine;
pub use params::{AvailableModel, ChildParams, ModelNames, ModelRoute};
pub use replay::SynapsReplay;
pub use wire::{AssistantEvent, RPC_PROTOCOL_VERSION, RpcAttachment, RpcCommand, RpcEvent, TurnUsage};

/// The door's name in sessions.
pub const DOOR: &str = "synaps";

/// The longest frame that a parent may send, in bytes, without its line ending: 1 MiB.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// The most attachments of one prompt.
pub const MAX_ATTACHMENTS: usize = 8;

/// The largest attachment: 10 MiB.
pub const MAX_ATTACHMENT_BYTES: u64 = 10 << 20;

/// The most bytes of all attachments of a prompt together: 15 MiB.
pub const MAX_ATTACHED_BYTES: u64 = 15 << 20;

/// The largest image: 3.5 MiB.
pub const MAX_IMAGE_BYTES: usize = 7 << 19;

/// The longest side of an image, in pixels.
pub const MAX_IMAGE_SIDE: usize = 8000;

/// The largest text: 256 KiB.
pub const MAX_TEXT_BYTES: usize = 256 << 10;

/// The most bytes of attached files that an answer to `get_messages` contains.
pub const MAX_HISTORY_MEDIA_BYTES: u64 = 64 << 20;

/// How long a running turn may go on after `shutdown`.
pub const DRAIN_WAIT: Duration = Duration::from_secs(30);

/// A turn that fails later than this after its prompt sends no `error` frame; only its response reports the failure. The
/// real parent has given up the prompt by then, and an unexpected `error` would end the parent.
pub const LATE_FAILURE: Duration = Duration::from_secs(55);

/// The longest preview of a subagent's task or result, in characters.
pub const PREVIEW_CHARS: usize = 80;
