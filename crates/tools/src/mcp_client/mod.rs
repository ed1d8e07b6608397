//! The client of MCP servers: programs and web services whose tools agents may call.
//!
//! A server is started or connected to when a run first needs its tools. All sessions share it. A server that fails harms
//! nobody else: its tools are missing, the run is told why, and the next attempt waits. Every call has a limit in time and
//! in output. The protocol itself is `rmcp`'s.
//!
//! Deliberately absent: settings, how to log in, and anything that a server asks of its client (sampling, roots, elicitation).

mod connection;
mod content;
mod http;
mod listing;
mod login;
mod message_budget;
mod naming;
mod project;
mod search;
mod server;
mod server_process;
mod source;
mod tool;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use login::McpLogin;
pub use naming::is_server_name;
pub use project::{
    LearnMcpSecret, PROJECT_MCP_BYTES, PROJECT_MCP_FILE, PROJECT_MCP_KEPT, PROJECT_MCP_SERVERS,
    PROJECT_MCP_SHOWN_BYTES, ProjectMcpFile, ProjectMcpServers,
};
pub use search::shown_tools;
pub use server::{McpServer, McpServerState};
pub use source::McpServers;

/// The longest name of a server. It begins the names of its tools, which have at most 64 characters.
pub const MAX_SERVER_NAME: usize = 32;

/// How long a server may take to start and to list its tools. Programs such as `npx` download themselves first.
pub const MCP_START_WAIT: Duration = Duration::from_secs(30);

/// How long a run waits for servers that are starting. Those that take longer are missing in this run.
pub const MCP_RUN_WAIT: Duration = Duration::from_secs(35);

/// How long a call may take without a report of progress, if the settings do not say.
pub const MCP_CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// How many times its timeout a call may take if it reports progress.
pub const MCP_PROGRESS_FACTOR: u32 = 10;

/// After how much time without a call a server is ended. The next call starts it again.
pub const MCP_IDLE_TIME: Duration = Duration::from_secs(600);

/// How long a server that failed is left alone, at first; each further failure doubles it.
pub const MCP_FIRST_BACKOFF: Duration = Duration::from_secs(1);

/// The longest time that a server that failed is left alone.
pub const MCP_MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The longest message of a server, in bytes. A server that sends a longer one is ended.
pub const MCP_MESSAGE_BYTES: usize = 16 << 20;

/// How many messages a server may send at once without being asked. A server that sends more is ended.
pub const MCP_UNASKED_BURST: u32 = 10_000;

/// How many messages a server may send in each second without being asked, for any length of time.
pub const MCP_UNASKED_PER_SECOND: u32 = 1_000;

/// How many bytes of messages or of error output count as one message more.
pub const MCP_UNASKED_BYTES: usize = 16 << 10;

/// How many requests of a web service, such as pings, may wait for their answers. A service with more is given up.
pub const MCP_OPEN_PINGS: usize = 64;

/// How long a web service may take to accept an answer or a notification.
pub const MCP_POST_WAIT: Duration = Duration::from_secs(10);

/// How many bytes of the end of a server's error output are kept.
pub const MCP_STDERR_BYTES: usize = 8 << 10;

/// How many bytes of text the result of a call has at most; the middle is left out.
pub const MCP_OUTPUT_BYTES: usize = 64 << 10;

/// How many pages of its list of tools a server may send.
pub const MCP_LIST_PAGES: usize = 100;

/// How many tools of one server are used.
pub const MCP_SERVER_TOOLS: usize = 2000;

/// How many bytes of the names, descriptions and schemas of one server's tools are kept.
pub const MCP_LIST_BYTES: usize = 8 << 20;

/// The largest schema of a tool's input, in bytes.
pub const MCP_SCHEMA_BYTES: usize = 64 << 10;

/// The longest description of a tool, in bytes.
pub const MCP_DESCRIPTION_BYTES: usize = 4 << 10;

/// How many tools of all servers together a model is shown. Beyond it, it finds them by a search.
pub const MCP_SHOWN_TOOLS: usize = 64;

/// How many tools a search finds at most.
pub const MCP_FOUND_TOOLS: usize = 10;

/// How to reach a server.
#[derive(Clone, PartialEq, Eq)]
pub enum McpLaunch {
    /// A program that speaks on standard input and output.
    Command {
        /// A path, or a name to look up in `PATH`.
        program: String,
        /// The arguments.
        args: Vec<String>,
        /// The complete environment.
        env: Vec<(String, String)>,
        /// The working folder. Must be absolute.
        folder: PathBuf,
    },
    /// A web service.
    Url {
        /// The address of the endpoint.
        url: String,
        /// Headers of every request. Their values are secrets.
        headers: BTreeMap<String, String>,
    },
}

/// Leaves out the environment and the values of headers, which may be secrets.
impl fmt::Debug for McpLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { program, .. } => write!(f, "Command({program:?})"),
            Self::Url { .. } => write!(f, "Url"),
        }
    }
}

/// A server as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServerConfig {
    /// The first part of the names of its tools.
    pub name: String,
    /// How to reach it.
    pub launch: McpLaunch,
    /// The tools to use; `None` uses all of them.
    pub tools: Option<Vec<String>>,
    /// How long a call may take without a report of progress.
    pub timeout: Duration,
}
