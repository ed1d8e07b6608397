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
use std::os::fd::AsFd;

use parlor_vocab::Failure;
use rustix::fs::{FileType, OFlags, Stat, fstat};

use crate::code::{TOO_LARGE, TOOL_ERROR, UNSUPPORTED, failure, system};
use crate::tool::Context;

/// Opens a regular file for reading, and nothing else: a FIFO or a device is not even touched.
fn open_file(context: &Context, path: &str) -> Result<(File, Stat), Failure> {
    // A look before the opening, since opening a device or a FIFO is an act in itself. The look
    // afterwards is the one that counts.
    let seen = context.policy.open(&context.folder, path, OFlags::PATH)?;
    regular(path, &seen.fd)?;
    let opened =
        context.policy.open(&context.folder, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let stat = regular(path, &opened.fd)?;
    Ok((File::from(opened.fd), stat))
}

/// Refuses what is not a regular file, by the name of what it is.
fn regular(path: &str, fd: impl AsFd) -> Result<Stat, Failure> {
    let stat = fstat(fd).map_err(system("look at", path))?;
    let advice = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(stat),
        FileType::Directory => "a folder; list_dir shows what is in it",
        FileType::Symlink => "a symbolic link that leads nowhere",
        FileType::Fifo => "a FIFO, not a file",
        FileType::Socket => "a socket, not a file",
        FileType::CharacterDevice | FileType::BlockDevice => "a device, not a file",
        FileType::Unknown => "not a file",
    };
    Err(failure(UNSUPPORTED, format!("`{path}` is {advice}")))
}

/// All bytes of a file, if they are not more than `limit`.
fn read_all(path: &str, file: &mut File, limit: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    // One byte more than allowed, since the file may grow while it is read.
    let read = file.take(limit as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| failure(TOOL_ERROR, format!("cannot read `{path}`: {error}")))?;
    if bytes.len() > limit {
        return Err(failure(TOO_LARGE, format!("`{path}` is larger than the limit of {limit} bytes")));
    }
    Ok(bytes)
}

/// The longest start of `text` of at most `limit` bytes that does not end inside a letter.
fn clip(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or_default()
}
