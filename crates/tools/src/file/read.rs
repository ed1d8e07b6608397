//! The `read_file` tool: returns lines of a text file, or an image.

use std::fs::File;
use std::io::Read;

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode, ToolAnnotations, ToolImage, ToolOutput};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{ToolAccess, ToolEffect};
use crate::failure::{failure, invalid};
use crate::file::excerpt::{Excerpt, READ_OUTPUT_BYTES, excerpt};
use crate::file::file_kind::{FileKind, IMAGE_BYTES, KIND_BYTES, file_kind};
use crate::file::{open_file, read_all};
use crate::input::{decode, within};
use crate::redact::Redact;
use crate::tool::{Tool, ToolContext};

/// How many lines are read if the input has no `limit`.
pub const READ_LINES: usize = 2000;

/// The largest `limit` of lines.
pub const READ_LINES_MAX: usize = 10_000;

/// Reads text files and images.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadFileTool;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadInput {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

#[async_trait]
impl Tool for ReadFileTool {
    fn name(&self) -> &str {
        "read_file"
    }

    fn title(&self) -> Option<&str> {
        Some("Read a file")
    }

    fn annotations(&self) -> ToolAnnotations {
        ToolAnnotations::READ_ONLY
    }

    fn description(&self) -> &str {
        "Reads a text file as numbered lines, or shows an image (PNG, JPEG, GIF, WebP). \
         Each line comes as its number, a tab and its text; number and tab are not part of the file."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file; relative paths start in the working folder."},
                "offset": {"type": "integer", "minimum": 1, "description": "The first line to read, counted from 1."},
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": READ_LINES_MAX, "default": READ_LINES,
                    "description": "How many lines to read."
                },
            },
            "required": ["path"],
            "additionalProperties": false,
        })
    }

    fn is_parallel(&self) -> bool {
        true
    }

    fn access(&self, input: &str) -> ToolAccess {
        let access = ToolAccess::new(ToolEffect::Reads, input);
        decode::<ReadInput>(self, input).map_or(access.clone(), |input| access.at(input.path))
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let input: ReadInput = decode(self, input)?;
        let offset = within("offset", input.offset, 1, usize::MAX)?;
        let limit = within("limit", input.limit, READ_LINES, READ_LINES_MAX)?;
        context.read_blocking(move |context| read(context, &input.path, offset, limit)).await
    }
}

fn read(context: &ToolContext, path: &str, offset: usize, limit: usize) -> Result<ToolOutput, Failure> {
    let (mut file, stat) = open_file(context, path)?;
    let mut start = Vec::with_capacity(KIND_BYTES);
    let read = (&mut file).take(KIND_BYTES as u64).read_to_end(&mut start);
    read.map_err(|error| failure(FailureCode::ToolError, format!("cannot read `{path}`: {error}")))?;
    match file_kind(&start) {
        FileKind::Image(mime) => image(path, start, &mut file, mime, &*context.redact),
        FileKind::Binary(what) => {
            let size = stat.st_size;
            let message = format!("`{path}` is {what} of {size} bytes, which cannot be shown as text");
            Err(failure(FailureCode::Unsupported, message))
        }
        FileKind::Text => {
            let found =
                excerpt(start.chain(file), offset, limit, &*context.redact, || context.check_cancelled())?
                    .map_err(|error| {
                        failure(FailureCode::ToolError, format!("cannot read `{path}`: {error}"))
                    })?;
            to_output(path, found, offset)
        }
    }
}

fn image(
    path: &str,
    mut bytes: Vec<u8>,
    file: &mut File,
    mime: &'static str,
    redact: &dyn Redact,
) -> Result<ToolOutput, Failure> {
    let too_large = || {
        failure(
            FailureCode::TooLarge,
            format!("`{path}` is larger than the limit of {IMAGE_BYTES} bytes for images"),
        )
    };
    let rest = read_all(path, file, IMAGE_BYTES - bytes.len().min(IMAGE_BYTES))
        .map_err(|error| if error.code == FailureCode::TooLarge { too_large() } else { error })?;
    bytes.extend(rest);
    if redact.contains_secret(&bytes) {
        let message =
            format!("`{path}` holds a secret that parlor keeps, and is not shown; make an image without it");
        return Err(failure(FailureCode::Unsupported, message));
    }
    let text = format!("`{path}`: {mime}, {} bytes", bytes.len());
    Ok(ToolOutput { text, images: vec![ToolImage { mime: mime.to_owned(), bytes }], ..ToolOutput::default() })
}

/// The lines, followed by notes on what is left out and on how to read on.
fn to_output(path: &str, found: Excerpt, offset: usize) -> Result<ToolOutput, Failure> {
    let Excerpt { mut text, shown, lines, cut_lines, has_more, .. } = found;
    let count = match (lines, found.all_counted) {
        (1, true) => "1 line".to_owned(),
        (lines, true) => format!("{lines} lines"),
        (lines, false) => format!("more than {lines} lines"),
    };
    if shown == 0 {
        return match (lines, offset) {
            (0, 1) => Ok(ToolOutput::text(format!("[`{path}` is empty]"))),
            _ => Err(invalid(format!("`{path}` has {count}; there is no line {offset}"))),
        };
    }
    let last = offset + shown - 1;
    if cut_lines > 0 {
        text.push_str(&format!("[{cut_lines} long lines are cut where it says so]\n"));
    }
    if found.invalid_utf8 {
        text.push_str("[some bytes are not UTF-8 and are shown as \u{fffd}]\n");
    }
    if has_more {
        let next = last + 1;
        let reason =
            if found.is_full { format!("{READ_OUTPUT_BYTES} bytes are the limit; ") } else { String::new() };
        text.push_str(&format!(
            "[lines {offset} to {last}; `{path}` has {count}; {reason}go on with \"offset\": {next}]\n"
        ));
    } else {
        text.push_str(&format!("[end of `{path}`, {count}]\n"));
    }
    Ok(ToolOutput::text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_matches_the_input_struct() {
        crate::input::assert_schema_fits::<ReadInput>(&ReadFileTool);
    }
}
