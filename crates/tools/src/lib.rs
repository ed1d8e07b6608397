//! What agents can do: files and commands, each behind the same trait and the same path policy.
//!
//! A [`Tool`] gets JSON text and a [`ToolContext`] and gives back an [`ToolResultOutput`] or a failure that
//! tells the agent what would be right. A [`Toolbox`] finds tools by name. File tools reach files
//! only through a [`Policy`]; commands run through `crates/process` and end, as whole process
//! groups, before their call returns, unless they were sent to the background, where [`Shells`]
//! has them.
//!
//! Deliberately absent: sessions, events, the log, approval, and any idea of a model. The page for
//! users is `docs/tools.md`.

pub mod code;
mod contain;
mod file;
mod input;
mod progress;
mod redact;
mod ruby;
mod runner;
mod shell;
mod tool;
mod toolbox;

pub use parlor_files::{FoundEntry, OpenedFile, PATH_BYTES, PATH_LINKS, PATH_TRIES, ParentFolders, Policy};

pub use contain::{Panicked, contain};
pub use file::{
    EDIT_FILE_BYTES, EditFile, GREP_CONTEXT, GREP_DEPTH, GREP_FILE_BYTES, GREP_FILES, GREP_LINE_BYTES,
    GREP_MATCHES, GREP_MATCHES_MAX, GREP_OUTPUT_BYTES, GREP_PATTERN_BYTES, GrepFiles, IGNORE_FILE_BYTES,
    IMAGE_BYTES, LIST_DEPTH, LIST_DEPTH_MAX, LIST_ENTRIES, LIST_ENTRIES_MAX, LIST_FOLDER_ENTRIES, ListDir,
    READ_LINE_BYTES, READ_LINES, READ_LINES_MAX, READ_OUTPUT_BYTES, READ_SCAN_BYTES, ReadFile, WriteFile,
    image_type,
};
pub use input::INPUT_BYTES;
pub use progress::{PROGRESS_BYTES, ProgressReader, ToolProgress, progress};
pub use redact::{MAX_HELD_BYTES, MIN_CUT_BYTES, NoSecrets, Redact, StreamRedactor, clean};
pub use ruby::{Interpreter, RUBY_TEXT_BYTES, RubyTool};
pub use runner::ToolboxRunner;
pub use shell::{
    BACKGROUND_BYTES, BACKGROUND_KEPT, BACKGROUND_READ_BYTES, BACKGROUND_RUNNING, BACKGROUND_WAIT_MAX,
    BackgroundStatus, COMMAND_BYTES, LIVE_BYTES, ProcessesTool, SHELL_OUTPUT_BYTES, SHELL_TIMEOUT,
    SHELL_TIMEOUT_MAX, STOP_GRACE, ShellTool, Shells,
};
pub use tool::{Tool, ToolContext, ToolImage, ToolResultOutput};
pub use toolbox::Toolbox;
