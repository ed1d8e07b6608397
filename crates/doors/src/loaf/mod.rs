//! The `loaf` dialect: JSON-RPC 2.0 on one line each, with events beside the answers (`docs/protocols/loaf.md`).
//!
//! One connection is one server process with any number of sessions. Requests are served side by side, and
//! their answers come when they come. A session of this dialect begins as nothing but an id; the engine's
//! session, which is the saved chat, is created when the first turn is accepted.
//!
//! `envelope` finds out what a line is and `params` what its fields say, each in the order that clients
//! know. Every family of methods has a file: `system`, `auth`, `model`, `session`, `history`, `command`,
//! `listing`, and `extras` for what other servers of this dialect do not have. `begin` brings a prompt to the
//! engine, `turn` and `round` make events of what happens then, `compress` is about summaries. `chat` is what
//! a session knows of itself, `recent` how much of it, `state` what all of them share. `code` has all codes and texts.
//!
//! Deliberately absent: keys, tokens and files. The machine asks for them and is told.

mod auth;
mod begin;
mod chat;
mod code;
mod command;
mod compress;
mod envelope;
mod estimate;
mod extras;
mod frame;
mod history;
mod image;
mod listing;
mod machine;
mod mention;
mod model;
mod params;
mod pending;
mod recent;
mod round;
mod session;
mod state;
mod system;
mod text;
mod turn;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use parlor_vocab::{Clock, Credentials, IdSource, ModelOption, Preferences};
use serde_json::Value;

pub use machine::LoafMachine;

/// The version of the protocol.
pub const PROTOCOL_VERSION: &str = "1.0.0";

/// The methods that every server of this version has, sorted.
pub const METHODS: [&str; 29] = [
    "auth.connect.antigravity",
    "auth.connect.openai",
    "auth.set.exa_key",
    "auth.set.openrouter_key",
    "auth.status",
    "command.execute",
    "debug.set",
    "history.clear_session",
    "history.get",
    "history.list",
    "limits.get",
    "model.list",
    "model.openrouter.providers",
    "model.select",
    "onboarding.complete",
    "onboarding.status",
    "rpc.handshake",
    "session.create",
    "session.get",
    "session.interrupt",
    "session.queue.clear",
    "session.queue.list",
    "session.send",
    "session.steer",
    "skills.list",
    "state.get",
    "system.ping",
    "system.shutdown",
    "tools.list",
];

/// The methods that only this server has, sorted.
pub const EXTRA_METHODS: [&str; 6] =
    ["auth.cancel", "auth.logout", "events.replay", "session.close", "session.list", "session.rename"];

/// The longest line that a client may send, in bytes: 64 MiB. Four images of the largest size fit, as base64.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// The largest image, in bytes, once it is decoded.
pub const MAX_IMAGE_BYTES: u64 = 8 << 20;

/// How much of the newest images a session keeps to be told again, as data URLs.
pub const MAX_KEPT_IMAGE_BYTES: usize = 64 << 20;

/// The most images of one prompt.
pub const MAX_IMAGES: usize = 16;

/// How many sessions one server may have.
pub const MAX_SESSIONS: usize = 1024;

/// How many turns may be at work at a time, in all sessions together.
pub const MAX_TURNS: usize = 60;

/// How many of its newest messages a session tells again, and how many of those that are gone on with.
pub const MAX_TOLD_MESSAGES: usize = 1000;

/// How many bytes of text these may have in all. A last message that is larger is told alone.
pub const MAX_TOLD_BYTES: usize = 1 << 20;

/// How many prompts may wait in one session.
pub const MAX_QUEUED: usize = 64;

/// How many bytes of text and images the prompts that wait in one session may have.
pub const MAX_QUEUED_BYTES: usize = 64 << 20;

/// How many texts may wait to join a turn.
pub const MAX_STEERS: usize = 64;

/// How many questions of a client are carried out at a time; with more, nothing is read until one is done.
pub const MAX_ASKED: usize = 32;

/// How many logins may be under way.
pub const MAX_LOGINS: usize = 8;

/// How many of the last events can be had again.
pub const REPLAY_EVENTS: usize = 4096;

/// How many bytes these events may have in all.
pub const REPLAY_BYTES: usize = 1 << 20;

/// How much of the images of a saved chat is told, in bytes before base64.
pub const MAX_HISTORY_IMAGE_BYTES: u64 = 64 << 20;

/// How much of what a client sent is repeated in an error, in letters.
pub const MAX_REPEATED_CHARS: usize = 1000;

/// The largest page of saved chats.
pub const MAX_CHATS_PAGE: usize = 1000;

/// What a server begins with.
#[derive(Clone)]
pub struct Server {
    /// The working folder: tools begin here, and relative paths too.
    pub folder: PathBuf,
    /// The user's own folder, which `~` stands for.
    pub user_home: Option<PathBuf>,
    /// Where chats are saved. Told in lists, with a chat's id behind it.
    pub chats: PathBuf,
    /// What was chosen before.
    pub kept: Preferences,
    /// The models there are; the first is used where none was chosen.
    pub offers: Vec<ModelOption>,
    /// Who is logged in, and which keys there are.
    pub logins: Credentials,
    /// Where skills are looked for.
    pub skill_folders: Vec<PathBuf>,
    /// How many skills there are.
    pub skills: usize,
    /// The tools there are.
    pub tools: Vec<Tool>,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn IdSource>,
}

/// A tool, as `tools.list` tells it.
#[derive(Clone, Debug)]
pub struct Tool {
    /// The name by which it is called.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The schema of its input.
    pub schema: Value,
}
