//! The file tools. They open files only through the path policy.

mod edit;
mod edit_hint;
mod excerpt;
mod file_kind;
mod file_search;
mod folder;
mod globs;
mod grep;
mod ignores;
mod line_search;
mod list;
mod read;
mod replace;
mod write;

pub use edit::{EDIT_FILE_BYTES, EditFileTool};
pub use edit_hint::EDIT_HINT_LINES;
pub use excerpt::{READ_LINE_BYTES, READ_OUTPUT_BYTES, READ_SCAN_BYTES};
pub use file_kind::{IMAGE_BYTES, image_type};
pub use file_search::{GREP_DEPTH, GREP_FILES, GREP_OUTPUT_BYTES};
pub use folder::LIST_FOLDER_ENTRIES;
pub use globs::{GLOB_BRACE_DEPTH, GLOB_BYTES};
pub use grep::{
    GREP_CONTEXT, GREP_MATCHES, GREP_MATCHES_MAX, GREP_PATTERN_BYTES, GREP_PROGRAM_BYTES, GrepFilesTool,
};
pub use ignores::{IGNORE_FILE_BYTES, IGNORE_LINE_BYTES, IGNORE_RULE_BYTES, IGNORE_RULES};
pub use line_search::{GREP_FILE_BYTES, GREP_LINE_BYTES, GREP_OVERLAP_BYTES, GREP_STEP_BYTES};
pub use list::{LIST_DEPTH, LIST_DEPTH_MAX, LIST_ENTRIES, LIST_ENTRIES_MAX, ListDirTool};
pub use read::{READ_LINES, READ_LINES_MAX, ReadFileTool};
pub use write::WriteFileTool;

use std::fs::File;
use std::io::Read;

use parlor_vocab::{Failure, FailureCode};
use rustix::fs::Stat;

use crate::failure::failure;
use crate::tool::ToolContext;

/// Opens a regular file for reading. A FIFO or a device is refused without being opened.
fn open_file(context: &ToolContext, path: &str) -> Result<(File, Stat), Failure> {
    let opened = context.policy.open_regular(&context.folder, path).map_err(|error| {
        if error.message.ends_with("is a folder, not a file") {
            return failure(
                FailureCode::Unsupported,
                format!("`{path}` is a folder; list_dir shows what is in it"),
            );
        }
        error
    });
    let (opened, stat) = opened?;
    context.check_opened(&opened.path)?;
    Ok((File::from(opened.fd), stat))
}

/// The whole content of a file. Fails if it has more than `limit` bytes.
fn read_all(path: &str, file: &mut File, limit: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    // One byte more than allowed, since the file may grow while it is read.
    let read = file.take(limit as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| failure(FailureCode::ToolError, format!("cannot read `{path}`: {error}")))?;
    if bytes.len() > limit {
        return Err(failure(
            FailureCode::TooLarge,
            format!("`{path}` is larger than the limit of {limit} bytes"),
        ));
    }
    Ok(bytes)
}

/// The longest prefix of `text` of at most `limit` bytes that ends after a whole character.
fn prefix(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or_default()
}
