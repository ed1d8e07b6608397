//! The `loaf` door: newline-delimited JSON-RPC 2.0, with events beside the answers (`docs/protocols/loaf.md`).
//!
//! One connection is one server process with any number of sessions. The server carries out requests concurrently, and
//! their answers may come in another order. A session of this protocol (`chat`) begins with an id only; the
//! engine's session, which is the saved chat, is created when the first turn is accepted.
//!
//! - `wire` has the names of methods; `decode` reads the envelope of a line and `params` its fields; `encode` writes
//!   answers and events.
//! - `machine` is the state machine, `dispatch` routes requests, answers and events to the files below, and `pending`
//!   has the requests that the backend has not answered yet.
//! - Each family of methods has a file: `system`, `auth`, `model`, `session`, `history`, `command`, `skills_and_tools`,
//!   and `extension_methods` for the methods that other servers of this protocol do not have.
//! - `start_turn` brings a prompt to the engine (with `image` and `skill_mentions`), `session_events` routes the engine's
//!   events to turns, `turn` and `tool_rounds` make client events of them, and `compress` handles summaries.
//! - `chat` is the state of one session (with `recent` and `estimate`), `state` what all sessions share.
//! - `code` has all error codes and texts.
//!
//! Not here: keys, tokens and files. The machine requests them from its backend.

mod auth;
mod chat;
mod code;
mod command;
mod compress;
mod decode;
mod dispatch;
mod encode;
mod estimate;
mod extension_methods;
mod history;
mod image;
mod machine;
mod model;
mod other_turns;
mod params;
mod pending;
mod recent;
mod replay;
mod session;
mod session_events;
mod skill_mentions;
mod skills_and_tools;
mod start_turn;
mod state;
mod system;
mod text;
mod tool_rounds;
mod turn;
mod wire;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parlor_vocab::{AgentId, Clock, Credentials, IdSource, ModelOption, Preferences};

pub use machine::LoafMachine;
pub use replay::LoafReplay;
pub use wire::{EXTRA_METHODS, METHODS, PROTOCOL_VERSION};

use crate::ToolDescription;

/// The door's name in sessions.
const DOOR: &str = "loaf";

/// The longest line that a client may send, in bytes: 64 MiB. Four images of the largest size fit, as base64.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// The largest image, in bytes after decoding.
pub const MAX_IMAGE_BYTES: u64 = 8 << 20;

/// The most bytes of images, as data URLs, that a session stores to send again. It drops the oldest ones.
pub const MAX_KEPT_IMAGE_BYTES: usize = 64 << 20;

/// The most images of one prompt.
pub const MAX_IMAGES: usize = 16;

/// The most sessions of one server.
pub const MAX_SESSIONS: usize = 1024;

/// The most turns that run at a time, in all sessions together.
pub const MAX_TURNS: usize = 60;

/// The most messages that `session.get` returns: the newest ones, both of `messages` and of `history`.
pub const MAX_SHOWN_MESSAGES: usize = 1000;

/// The most bytes of text of these messages. The last message is returned even if it is larger.
pub const MAX_SHOWN_BYTES: usize = 1 << 20;

/// The most prompts that wait in one session.
pub const MAX_QUEUED: usize = 64;

/// The most bytes of text and images of the prompts that wait in one session.
pub const MAX_QUEUED_BYTES: usize = 64 << 20;

/// The most `session.steer` texts that wait to join a turn.
pub const MAX_STEERS: usize = 64;

/// The most requests that are carried out at a time, except logins and summaries. At the limit the server reads no
/// further line until one is done.
pub const MAX_PENDING_REQUESTS: usize = 32;

/// The most logins that run at a time.
pub const MAX_LOGINS: usize = 8;

/// How many of the last events `events.replay` can return.
pub const REPLAY_EVENTS: usize = 4096;

/// The most bytes of the events that `events.replay` can return.
pub const REPLAY_BYTES: usize = 1 << 20;

/// The most bytes of images, before base64, that `history.get` returns of a saved chat.
pub const MAX_HISTORY_IMAGE_BYTES: u64 = 64 << 20;

/// How many characters of the name that a client gives itself are recorded with its prompts.
pub const MAX_CLIENT_NAME_CHARS: usize = 100;

/// How many characters of a client's text an error message quotes.
pub const MAX_QUOTED_CHARS: usize = 1000;

/// The most saved chats that one `history.list` returns.
pub const MAX_CHATS_PAGE: usize = 1000;

/// The parameters of a server.
#[derive(Clone)]
pub struct ServerParams {
    /// The working folder of tools, and the base of relative paths.
    pub folder: PathBuf,
    /// The user's home folder, for `~` in paths.
    pub user_home: Option<PathBuf>,
    /// Where chats are saved. The `rolloutPath` of a chat is this path, `#` and the chat's id.
    pub chats_path: PathBuf,
    /// The saved choice of model and reasoning level.
    pub preferences: Preferences,
    /// The models that can be chosen. The first one is the default.
    pub models: Vec<ModelOption>,
    /// The logins and keys of the user.
    pub credentials: Credentials,
    /// The folders that are searched for skills.
    pub skill_folders: Vec<PathBuf>,
    /// The number of skills in these folders.
    pub skill_count: usize,
    /// The commands of each agent that has some of its own, such as `/say`.
    pub agent_commands: HashMap<AgentId, Vec<String>>,
    /// The tools that agents can call.
    pub tools: Vec<ToolDescription>,
    /// The clock for timestamps.
    pub clock: Arc<dyn Clock>,
    /// The source of session and turn ids.
    pub ids: Arc<dyn IdSource>,
}
