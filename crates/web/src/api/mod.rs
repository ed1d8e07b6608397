//! The handlers of HTTP requests: the JSON API, health checks and metrics.
//!
//! `docs/openapi.json` describes all of them; `routes.rs` says which path leads to which handler.

pub(crate) mod changes;
pub(crate) mod console;
pub(crate) mod controls;
pub(crate) mod event_stream;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod login;
pub(crate) mod media;
pub(crate) mod mode;
pub(crate) mod models;
pub(crate) mod nodes;
mod path_id;
pub(crate) mod processes;
pub(crate) mod questions;
mod session_error;
pub(crate) mod sessions;
pub(crate) mod terminal_socket;
pub(crate) mod terminals;
pub(crate) mod token;
pub(crate) mod tool_servers;
pub(crate) mod transcript;
pub(crate) mod usage;
