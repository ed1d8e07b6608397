//! The `exec` door: child processes over newline-delimited JSON-RPC (`docs/protocols/exec.md`).
//!
//! It speaks `exec-server.v0`, the protocol of codex-exec-server: `initialize`, `initialized`, then
//! `command/exec`, `command/exec/write` and `command/exec/terminate`, answered by replies and by
//! the notifications `command/exec/outputDelta` and `command/exec/exited`. Beside it, today's family of the same project:
//! `process/*`, `fs/*` and `environment/*`.

mod bounded;
mod code;
mod decode;
mod encode;
mod http;
mod intent;
mod machine;
mod replies;
mod today;
mod uri;
mod wire;

pub use machine::ExecMachine;
pub use uri::{path_from_uri, uri_from_path};
pub use wire::{
    ByteChunk, DEFAULT_OUTPUT_BYTES_CAP, ExecExitedNotification, ExecOutputDeltaNotification,
    ExecOutputStream, ExecParams, ExecResponse, InitializeParams, InitializeResponse, MAX_HTTP_HEADERS,
    MAX_ITEMS, MAX_PATTERN_BYTES, MAX_PATTERNS, MAX_SANDBOX_ENTRIES, MAX_SET_VARIABLES, MAX_URI_BYTES,
    PROTOCOL_VERSION, TerminateParams, TerminateResponse, WriteParams, WriteResponse, method,
};

/// The longest request id that the door accepts, in bytes. The door stores the id until it has answered the request.
pub const MAX_REQUEST_ID_BYTES: usize = 1024;

/// The longest line that the door accepts, in bytes, without its newline.
pub const MAX_LINE_BYTES: usize = 64 << 20;
