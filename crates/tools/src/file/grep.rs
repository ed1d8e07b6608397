//! The `grep_files` tool, its input and its output: finds lines that match a pattern, in a file or in all files of a folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use ignore::overrides::{Override, OverrideBuilder};
use parlor_vocab::{Failure, ToolAnnotations, ToolOutput};
use regex::bytes::RegexBuilder;
use rustix::fs::{FileType, OFlags, fstat};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{ToolAccess, ToolEffect};
use crate::failure::{invalid, system};
use crate::file::file_search::{FileSearch, SearchOptions};
use crate::file::globs::check_glob;
use crate::file::line_search::LineSearch;
use crate::file::open_file;
use crate::input::{decode, within};
use crate::tool::{Tool, ToolContext};

/// How many matching lines are shown if the input has no `limit`.
pub const GREP_MATCHES: usize = 100;
/// The largest `limit` of matching lines.
pub const GREP_MATCHES_MAX: usize = 2000;
/// The largest `context`: lines shown around each match.
pub const GREP_CONTEXT: usize = 20;
/// The longest pattern, in bytes.
pub const GREP_PATTERN_BYTES: usize = 4096;
/// The largest compiled pattern, in bytes. The time of each searched byte grows with it. Enough for `\w{20}`.
pub const GREP_PROGRAM_BYTES: usize = 1 << 20;

/// Searches files.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrepFilesTool;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrepInput {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    context: Option<u64>,
    limit: Option<u64>,
    #[serde(default)]
    include_ignored: bool,
}

#[async_trait]
impl Tool for GrepFilesTool {
    fn name(&self) -> &str {
        "grep_files"
    }

    fn title(&self) -> Option<&str> {
        Some("Search files")
    }

    fn annotations(&self) -> ToolAnnotations {
        ToolAnnotations::READ_ONLY
    }

    fn description(&self) -> &str {
        "Searches files for lines that match a regular expression. Shows path:line:text. Leaves out what \
         .gitignore names, .git, binary files and symbolic links."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "pattern": {
                    "type": "string",
                    "description": "A regular expression in Rust's syntax, matched against each line."
                },
                "path": {
                    "type": "string", "default": ".",
                    "description": "A file or folder; the working folder if absent."
                },
                "glob": {
                    "type": "string",
                    "description": "Only files that fit, such as *.rs or src/**/*.ts; !*.md leaves files out."
                },
                "ignore_case": {"type": "boolean", "description": "Take upper and lower case for the same."},
                "context": {
                    "type": "integer", "minimum": 0, "maximum": GREP_CONTEXT, "default": 0,
                    "description": "How many lines to show around each match."
                },
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": GREP_MATCHES_MAX, "default": GREP_MATCHES,
                    "description": "How many matching lines to show."
                },
                "include_ignored": {"type": "boolean", "description": "Search what .gitignore names as well."},
            },
            "required": ["pattern"],
            "additionalProperties": false,
        })
    }

    fn is_parallel(&self) -> bool {
        true
    }

    fn access(&self, input: &str) -> ToolAccess {
        let path = decode::<GrepInput>(self, input).ok().and_then(|input| input.path);
        let access = ToolAccess::new(ToolEffect::Reads, input).at(path.unwrap_or_else(|| ".".to_owned()));
        ToolAccess { is_recursive: true, ..access }
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let input: GrepInput = decode(self, input)?;
        if input.pattern.len() > GREP_PATTERN_BYTES {
            let bytes = input.pattern.len();
            return Err(invalid(format!(
                "a pattern of {bytes} bytes is longer than the limit of {GREP_PATTERN_BYTES}"
            )));
        }
        if let Some(glob) = &input.glob {
            check_glob(glob)?;
        }
        let around = match input.context {
            None | Some(0) => 0,
            given => within("context", given, 0, GREP_CONTEXT)?,
        };
        let limit = within("limit", input.limit, GREP_MATCHES, GREP_MATCHES_MAX)?;
        context.read_blocking(move |context| grep(context, &input, around, limit)).await
    }
}

fn grep(
    context: &ToolContext,
    input: &GrepInput,
    around: usize,
    limit: usize,
) -> Result<ToolOutput, Failure> {
    let pattern = RegexBuilder::new(&input.pattern)
        .case_insensitive(input.ignore_case)
        .size_limit(GREP_PROGRAM_BYTES)
        .build()
        .map_err(|error| {
            if let regex::Error::CompiledTooBig(limit) = error {
                return invalid(format!(
                    "`pattern` compiles to more than the limit of {limit} bytes; repeat less, or repeat [a-z] instead \
                     of \\w"
                ));
            }
            invalid(format!("`pattern` is not a regular expression: {error}"))
        })?;
    let path = input.path.as_deref().unwrap_or(".");
    let top = context.policy.open(&context.folder, path, OFlags::PATH)?;
    let stat = fstat(&top.fd).map_err(system("look at", path))?;
    let options = SearchOptions {
        lines: LineSearch { pattern, context: around, redact: Arc::clone(&context.redact) },
        glob: glob(&top.path, input.glob.as_deref())?,
        use_ignores: !input.include_ignored,
        limit,
    };
    let mut search = FileSearch::new(context, options);
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        let folder = context.policy.open(&context.folder, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        context.check_opened(&folder.path)?;
        let ignores = search.ignores_above(&folder);
        // Paths in the output begin like the path of the input, so that the agent can pass them to other tools.
        let shown = if path == "." { PathBuf::new() } else { PathBuf::from(path) };
        search.search_folder(folder.fd, &folder.path, &shown, &ignores, 0)?;
    } else {
        let (file, _) = open_file(context, path)?;
        search.search_file(path, file)?;
    }
    Ok(ToolOutput::text(search.into_text()))
}

fn glob(top: &Path, glob: Option<&str>) -> Result<Override, Failure> {
    let mut builder = OverrideBuilder::new(top);
    let added = match glob {
        Some(glob) => builder.add(glob).map(|_| ()),
        None => Ok(()),
    };
    added
        .and_then(|()| builder.build())
        .map_err(|error| invalid(format!("`glob` cannot be understood: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_matches_the_input_struct() {
        crate::input::assert_schema_fits::<GrepInput>(&GrepFilesTool);
    }
}
