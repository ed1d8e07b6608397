//! The wire types, with the names of the protocol's document.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::bounded;

/// The protocol version in the answer to `initialize`.
pub const PROTOCOL_VERSION: &str = "exec-server.v0";

/// How many bytes of each output stream the server retains if a request has no `outputBytesCap`.
pub const DEFAULT_OUTPUT_BYTES_CAP: u64 = 1 << 20;

/// The most items of a list or a map in params. No operating system accepts that many arguments; without a limit a
/// line of empty strings would take many times its length in memory.
pub const MAX_ITEMS: usize = 262_144;

/// The most patterns of each list in `envPolicy`.
pub const MAX_PATTERNS: usize = 256;

/// The longest pattern in `envPolicy`, in bytes.
pub const MAX_PATTERN_BYTES: usize = 256;

/// The most variables that `envPolicy.set` may have.
pub const MAX_SET_VARIABLES: usize = 4096;

/// The most entries and folders of a sandbox intent.
pub const MAX_SANDBOX_ENTRIES: usize = 256;

/// The longest `file:` URI: that of the longest path of Linux with all bytes escaped is shorter.
pub const MAX_URI_BYTES: usize = 32 << 10;

/// The most headers of an `http/request`.
pub const MAX_HTTP_HEADERS: usize = 128;

/// The method names.
pub mod method {
    /// Request: the handshake.
    pub const INITIALIZE: &str = "initialize";
    /// Notification from the client: the handshake is complete.
    pub const INITIALIZED: &str = "initialized";
    /// Request: start a process.
    pub const EXEC: &str = "command/exec";
    /// Request: write to a process.
    pub const WRITE: &str = "command/exec/write";
    /// Request: end a process.
    pub const TERMINATE: &str = "command/exec/terminate";
    /// Notification from the server: a process wrote output.
    pub const OUTPUT_DELTA: &str = "command/exec/outputDelta";
    /// Notification from the server: a process has exited.
    pub const EXITED: &str = "command/exec/exited";
    /// Request: describe the machine.
    pub const INFO: &str = "environment/info";
    /// Request: whether the server is ready.
    pub const STATUS: &str = "environment/status";
    /// Request: start a process with numbered events.
    pub const PROCESS_START: &str = "process/start";
    /// Request: write to such a process.
    pub const PROCESS_WRITE: &str = "process/write";
    /// Request: interrupt such a process.
    pub const PROCESS_SIGNAL: &str = "process/signal";
    /// Request: end such a process.
    pub const PROCESS_TERMINATE: &str = "process/terminate";
    /// Request: read the last output of such a process.
    pub const PROCESS_READ: &str = "process/read";
    /// Request: read a file.
    pub const FS_READ_FILE: &str = "fs/readFile";
    /// Request: write a file.
    pub const FS_WRITE_FILE: &str = "fs/writeFile";
    /// Request: create a folder.
    pub const FS_CREATE_DIRECTORY: &str = "fs/createDirectory";
    /// Request: describe a file.
    pub const FS_GET_METADATA: &str = "fs/getMetadata";
    /// Request: resolve the links of a path.
    pub const FS_CANONICALIZE: &str = "fs/canonicalize";
    /// Request: list a folder.
    pub const FS_READ_DIRECTORY: &str = "fs/readDirectory";
    /// Request: list a tree of folders.
    pub const FS_WALK: &str = "fs/walk";
    /// Request: remove a file or a folder.
    pub const FS_REMOVE: &str = "fs/remove";
    /// Request: copy a file or a folder.
    pub const FS_COPY: &str = "fs/copy";
    /// Request: open a file.
    pub const FS_OPEN: &str = "fs/open";
    /// Request: read a block of an open file.
    pub const FS_READ_BLOCK: &str = "fs/readBlock";
    /// Request: write a block of an open file.
    pub const FS_WRITE_BLOCK: &str = "fs/writeBlock";
    /// Request: close an open file.
    pub const FS_CLOSE: &str = "fs/close";
    /// Request: make an HTTP request.
    pub const HTTP_REQUEST: &str = "http/request";
    /// Notification from the server: a piece of the body of a streamed answer.
    pub const HTTP_BODY_DELTA: &str = "http/request/bodyDelta";
    /// Notification from the server: such a process wrote output.
    pub const PROCESS_OUTPUT: &str = "process/output";
    /// Notification from the server: such a process has exited.
    pub const PROCESS_EXITED: &str = "process/exited";
    /// Notification from the server: such a process and its output have ended.
    pub const PROCESS_CLOSED: &str = "process/closed";
    /// The file methods whose params have one `path`.
    pub(crate) const FILES: [&str; 8] = [
        FS_READ_FILE,
        FS_WRITE_FILE,
        FS_CREATE_DIRECTORY,
        FS_GET_METADATA,
        FS_CANONICALIZE,
        FS_READ_DIRECTORY,
        FS_WALK,
        FS_REMOVE,
    ];
}

/// Params of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// The name of the client program. The server ignores it.
    pub client_name: String,
}

/// Result of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResponse {
    /// Always [`PROTOCOL_VERSION`] when parlor answers.
    pub protocol_version: Cow<'static, str>,
}

/// Params of `command/exec`.
///
/// ```
/// use parlor_doors::exec::ExecParams;
///
/// let params = ExecParams::new("build", ["make", "test"], "/src").env("PATH", "/usr/bin:/bin");
/// assert!(!params.tty);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecParams {
    /// The client's name for the process. No other running process of this connection may have it.
    pub process_id: String,
    /// The program and its arguments. Must not be empty; at most [`MAX_ITEMS`].
    #[serde(deserialize_with = "bounded::list")]
    pub argv: Vec<String>,
    /// The working folder, an absolute path.
    pub cwd: String,
    /// The complete environment: the process inherits no variable of the server. At most [`MAX_ITEMS`].
    #[serde(deserialize_with = "bounded::map")]
    pub env: BTreeMap<String, String>,
    /// Whether the process gets a terminal. Without a terminal its stdin is empty.
    pub tty: bool,
    /// How many of the last bytes of each output stream the server retains.
    #[serde(default = "default_output_bytes_cap")]
    pub output_bytes_cap: u64,
    /// The `argv[0]` that the process sees; by default the first item of `argv`.
    #[serde(default)]
    pub arg0: Option<String>,
}

fn default_output_bytes_cap() -> u64 {
    DEFAULT_OUTPUT_BYTES_CAP
}

impl ExecParams {
    /// A process on pipes with an empty environment and the default output cap.
    pub fn new<A: Into<String>>(
        process_id: impl Into<String>,
        argv: impl IntoIterator<Item = A>,
        cwd: impl Into<String>,
    ) -> Self {
        Self {
            process_id: process_id.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: cwd.into(),
            env: BTreeMap::new(),
            tty: false,
            output_bytes_cap: DEFAULT_OUTPUT_BYTES_CAP,
            arg0: None,
        }
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Asks for a terminal.
    #[must_use]
    pub fn tty(mut self) -> Self {
        self.tty = true;
        self
    }
}

/// Result of `command/exec`. The server sends it as soon as the process has started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecResponse {
    /// The id from the request.
    pub process_id: String,
    /// Always true when parlor answers.
    pub running: bool,
    /// Always null when parlor answers: the exit code comes in a notification.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// Always null when parlor answers: output comes in notifications.
    #[serde(default)]
    pub stdout: Option<ByteChunk>,
    /// Always null when parlor answers: output comes in notifications.
    #[serde(default)]
    pub stderr: Option<ByteChunk>,
}

/// Params of `command/exec/write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteParams {
    /// The process to write to.
    pub process_id: String,
    /// The bytes for the process's stdin.
    pub chunk: ByteChunk,
}

/// Result of `command/exec/write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteResponse {
    /// Always true: the server has queued the bytes. The process may not have read them yet.
    pub accepted: bool,
}

/// Params of `command/exec/terminate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminateParams {
    /// The process to terminate.
    pub process_id: String,
}

/// Result of `command/exec/terminate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminateResponse {
    /// Whether the process was running when the server handled the request.
    pub running: bool,
}

/// Which output a chunk comes from. A terminal's output is all `stdout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExecOutputStream {
    /// Standard output, or a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Params of `command/exec/outputDelta`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecOutputDeltaNotification {
    /// The process that wrote the chunk.
    pub process_id: String,
    /// The stream that the process wrote to.
    pub stream: ExecOutputStream,
    /// A piece of the output. Pieces are cut anywhere, even inside a character.
    pub chunk: ByteChunk,
}

/// Params of `command/exec/exited`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecExitedNotification {
    /// The process that has exited. Its name is free again.
    pub process_id: String,
    /// The exit status, or 128 plus the signal's number if a signal killed the process.
    pub exit_code: i32,
}

/// Raw bytes. On the wire they are standard base64 with padding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByteChunk(pub Vec<u8>);

impl From<Vec<u8>> for ByteChunk {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Serialize for ByteChunk {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&base64_simd::STANDARD.encode_to_string(&self.0))
    }
}

impl<'de> Deserialize<'de> for ByteChunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChunkVisitor;
        impl Visitor<'_> for ChunkVisitor {
            type Value = ByteChunk;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("standard base64 with padding")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ByteChunk, E> {
                base64_simd::STANDARD
                    .decode_to_vec(text)
                    .map(ByteChunk)
                    .map_err(|_| E::custom("invalid base64: expected the standard alphabet with padding"))
            }
        }
        deserializer.deserialize_str(ChunkVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(text: &str) -> Result<ByteChunk, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn base64_is_standard_and_padded() {
        assert_eq!(decode(r#""aGVsbG8K""#).unwrap().0, b"hello\n");
        assert_eq!(decode(r#""""#).unwrap().0, b"");
        for bad in
            [r#""aGVsbG8""#, r#""aGVsbG-_""#, r#""aGVs bG8K""#, r#""a""#, r#""aGVsbG8K=""#, "5", "null"]
        {
            assert!(decode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_null_cap_is_an_error_and_a_missing_cap_is_the_default() {
        let params = |cap: &str| {
            serde_json::from_str::<ExecParams>(&format!(
                r#"{{"processId":"p","argv":["x"],"cwd":"/","env":{{}},"tty":false{cap}}}"#
            ))
        };
        assert_eq!(params("").unwrap().output_bytes_cap, DEFAULT_OUTPUT_BYTES_CAP);
        assert_eq!(params(r#","outputBytesCap":0"#).unwrap().output_bytes_cap, 0);
        assert!(params(r#","outputBytesCap":null"#).is_err());
        assert!(params(r#","outputBytesCap":-1"#).is_err());
        assert_eq!(params(r#","arg0":null"#).unwrap().arg0, None);
    }

    proptest! {
        #[test]
        fn bytes_are_unchanged_by_encoding_and_decoding(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let text = serde_json::to_string(&ByteChunk(bytes.clone())).unwrap();
            prop_assert_eq!(decode(&text).unwrap().0, bytes);
        }

        #[test]
        fn exec_params_are_unchanged_by_encoding_and_decoding(
            process_id in ".*", argv in prop::collection::vec(".*", 0..4), cwd in ".*",
            env in prop::collection::btree_map(".*", ".*", 0..4), tty: bool, output_bytes_cap: u64,
            arg0 in prop::option::of(".*"),
        ) {
            let params = ExecParams { process_id, argv, cwd, env, tty, output_bytes_cap, arg0 };
            let text = serde_json::to_string(&params).unwrap();
            prop_assert_eq!(serde_json::from_str::<ExecParams>(&text).unwrap(), params);
        }
    }
}
