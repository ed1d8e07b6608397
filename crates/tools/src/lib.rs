//! The tools that agents can call: files, shell commands and Ruby, all behind one trait and one path policy.
//!
//! A [`Tool`] gets JSON text and a [`ToolContext`] and returns a [`ToolOutput`](parlor_vocab::ToolOutput) or a failure
//! whose message tells the agent how to correct the call. A [`Toolbox`] finds tools by name. File tools reach files only
//! through a [`Policy`]. Commands run through `crates/process`; a call ends the whole process group of its command before
//! it returns, unless the command runs in the background, where [`BackgroundProcesses`] keeps it.
//!
//! `mcp_client` has the tools of MCP servers.
//!
//! Deliberately absent: sessions, events, the log, approval and models; a [`ToolAccess`] says what approval needs to know.
//! The page for users is `docs/tools.md`.

mod access;
mod catch_panic;
mod failure;
mod file;
mod input;
mod mcp_client;
mod paused_time;
mod progress;
mod redact;
mod ruby;
mod runner;
mod shell;
mod source;
mod tool;
mod toolbox;

pub use parlor_files::{
    FileLocation, NEW_FOLDERS, OpenedFile, PATH_BYTES, PATH_LINKS, PATH_TRIES, ParentFolders, Policy,
    follow_links, open_below,
};

pub use parlor_process::{ProxyDecision, ProxyRules, Sandbox, SandboxNetwork};

pub use access::{ToolAccess, ToolEffect};
pub use catch_panic::{Panicked, catch_panic};
pub use file::{
    EDIT_FILE_BYTES, EDIT_HINT_LINES, EditFileTool, GLOB_BRACE_DEPTH, GLOB_BYTES, GREP_CONTEXT, GREP_DEPTH,
    GREP_FILE_BYTES, GREP_FILES, GREP_LINE_BYTES, GREP_MATCHES, GREP_MATCHES_MAX, GREP_OUTPUT_BYTES,
    GREP_OVERLAP_BYTES, GREP_PATTERN_BYTES, GREP_PROGRAM_BYTES, GREP_STEP_BYTES, GrepFilesTool,
    IGNORE_FILE_BYTES, IGNORE_LINE_BYTES, IGNORE_RULE_BYTES, IGNORE_RULES, IMAGE_BYTES, LIST_DEPTH,
    LIST_DEPTH_MAX, LIST_ENTRIES, LIST_ENTRIES_MAX, LIST_FOLDER_ENTRIES, ListDirTool, READ_LINE_BYTES,
    READ_LINES, READ_LINES_MAX, READ_OUTPUT_BYTES, READ_SCAN_BYTES, ReadFileTool, WriteFileTool, image_type,
};
pub use input::INPUT_BYTES;
pub use mcp_client::{
    LearnMcpSecret, MAX_SERVER_NAME, MCP_CALL_TIMEOUT, MCP_DESCRIPTION_BYTES, MCP_FIRST_BACKOFF,
    MCP_FOUND_TOOLS, MCP_IDLE_TIME, MCP_LIST_BYTES, MCP_LIST_PAGES, MCP_MAX_BACKOFF, MCP_MESSAGE_BYTES,
    MCP_OPEN_PINGS, MCP_OUTPUT_BYTES, MCP_POST_WAIT, MCP_PROGRESS_FACTOR, MCP_RUN_WAIT, MCP_SCHEMA_BYTES,
    MCP_SERVER_TOOLS, MCP_SHOWN_TOOLS, MCP_START_WAIT, MCP_STDERR_BYTES, MCP_UNASKED_BURST,
    MCP_UNASKED_BYTES, MCP_UNASKED_PER_SECOND, McpLaunch, McpLogin, McpServer, McpServerConfig,
    McpServerState, McpServers, PROJECT_MCP_BYTES, PROJECT_MCP_FILE, PROJECT_MCP_KEPT, PROJECT_MCP_SERVERS,
    PROJECT_MCP_SHOWN_BYTES, ProjectMcpFile, ProjectMcpServers, is_server_name, shown_tools,
};
pub use paused_time::PausedTime;
pub use progress::{PROGRESS_BYTES, ProgressPiece, ProgressReader, ProgressReport, ToolProgress, progress};
pub use redact::{
    MAX_HELD_BYTES, MAX_RECHECKED_BYTES, MIN_CUT_BYTES, NoSecrets, REDACT_SLICE_BYTES, Redact,
    StreamRedactor, WITHHELD, clean, clean_long,
};
pub use ruby::{RUBY_TEXT_BYTES, RubyInterpreter, RubyTool};
pub use runner::ToolboxRunner;
pub use shell::{
    BACKGROUND_BYTES, BACKGROUND_KEPT, BACKGROUND_READ_BYTES, BACKGROUND_RUNNING, BACKGROUND_WAIT_MAX,
    BackgroundProcesses, BackgroundStatus, COMMAND_BYTES, LIVE_BYTES, NO_OUTPUT, ProcessesTool,
    SHELL_OUTPUT_BYTES, SHELL_TIMEOUT, SHELL_TIMEOUT_MAX, STOP_GRACE, ShellTool,
};
pub use source::{OfferedTools, ToolServerState, ToolServerStatus, ToolSource};
pub use tool::{FileChanges, OpenedPathCheck, PassedCall, Tool, ToolContext};
pub use toolbox::{TOOL_NAME_CHARS, Toolbox};
