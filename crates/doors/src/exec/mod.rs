//! The `exec` dialect: processes over newline-delimited JSON-RPC (`docs/protocols/exec.md`).
//!
//! This is `exec-server.v0`, the protocol of codex-exec-server: `initialize`, `initialized`, then
//! `command/exec`, `command/exec/write` and `command/exec/terminate`, answered by replies and by
//! the notifications `command/exec/outputDelta` and `command/exec/exited`.

mod bounded;
mod code;
mod decode;
mod encode;
mod machine;
mod protocol;

pub use machine::ExecMachine;
pub use protocol::{
    ByteChunk, DEFAULT_OUTPUT_BYTES_CAP, ExecExitedNotification, ExecOutputDeltaNotification,
    ExecOutputStream, ExecParams, ExecResponse, InitializeParams, InitializeResponse, MAX_ITEMS,
    PROTOCOL_VERSION, TerminateParams, TerminateResponse, WriteParams, WriteResponse, method,
};

/// The longest request id that is accepted, in bytes. It is kept until the request is answered.
pub const MAX_REQUEST_ID_BYTES: usize = 1024;

/// The longest line that is accepted, in bytes, without its newline.
pub const MAX_LINE_BYTES: usize = 64 << 20;
