//! Tools for files. Each reaches them through the path policy alone.

mod atomic;
mod edit;
mod folder;
mod grep;
mod hint;
mod hunt;
mod ignores;
mod kind;
mod list;
mod read;
mod search;
mod text;
mod write;

pub use edit::{EDIT_FILE_BYTES, EditFile};
pub use folder::LIST_FOLDER_ENTRIES;
pub use grep::{GREP_CONTEXT, GREP_MATCHES, GREP_MATCHES_MAX, GREP_PATTERN_BYTES, GrepFiles};
pub use hunt::{GREP_DEPTH, GREP_FILES, GREP_OUTPUT_BYTES};
pub use ignores::IGNORE_FILE_BYTES;
pub use kind::{IMAGE_BYTES, image_type};
pub use list::{LIST_DEPTH, LIST_DEPTH_MAX, LIST_ENTRIES, LIST_ENTRIES_MAX, ListDir};
pub use read::{READ_LINES, READ_LINES_MAX, ReadFile};
pub use search::{GREP_FILE_BYTES, GREP_LINE_BYTES};
pub use text::{READ_LINE_BYTES, READ_OUTPUT_BYTES, READ_SCAN_BYTES};
pub use write::WriteFile;

use std::fs::File;
use std::io::Read;

use parlor_vocab::{Failure, FailureCode};
use rustix::fs::Stat;

use crate::code::failure;
use crate::tool::ToolContext;

/// Opens a regular file for reading, and nothing else: a FIFO or a device is not even touched.
fn open_file(context: &ToolContext, path: &str) -> Result<(File, Stat), Failure> {
    context.policy.open_file(&context.folder, path).map_err(|error| {
        if error.message.ends_with("is a folder, not a file") {
            return failure(
                FailureCode::Unsupported,
                format!("`{path}` is a folder; list_dir shows what is in it"),
            );
        }
        error
    })
}

/// All bytes of a file, if they are not more than `limit`.
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

/// The longest start of `text` of at most `limit` bytes that does not end inside a letter.
fn clip(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or_default()
}
