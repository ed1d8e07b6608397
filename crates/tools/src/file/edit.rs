//! The `edit_file` tool: replaces exact text in a file.

use async_trait::async_trait;
use parlor_undo::text_diff;
use parlor_vocab::{Failure, FailureCode, ToolAnnotations, ToolDiff, ToolOutput};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{ToolAccess, ToolEffect, marked};
use crate::failure::{failure, invalid};
use crate::file::edit_hint::{hint, line_at};
use crate::file::replace::replace;
use crate::file::{open_file, read_all};
use crate::input::decode;
use crate::tool::{FileChanges, Tool, ToolContext};

/// The largest file that can be edited, before and after the edit, in bytes.
pub const EDIT_FILE_BYTES: usize = 16 << 20;

/// How many line numbers a message lists.
const LISTED_LINES: usize = 10;

/// Replaces exact text in files.
#[derive(Clone, Copy, Debug, Default)]
pub struct EditFileTool;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditInput {
    path: String,
    old_text: String,
    new_text: String,
    count: Option<u64>,
    #[serde(default)]
    replace_all: bool,
}

#[async_trait]
impl Tool for EditFileTool {
    fn name(&self) -> &str {
        "edit_file"
    }

    fn title(&self) -> Option<&str> {
        Some("Edit a file")
    }

    fn annotations(&self) -> ToolAnnotations {
        ToolAnnotations { open_world: false, ..ToolAnnotations::default() }
    }

    fn file_changes(&self) -> FileChanges {
        FileChanges::Reported
    }

    fn description(&self) -> &str {
        "Replaces text in a file. old_text must be in the file exactly, with its whitespace, and once, \
         unless count or replace_all says otherwise."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file; relative paths start in the working folder."},
                "old_text": {"type": "string", "description": "The exact text to replace, without line numbers."},
                "new_text": {"type": "string", "description": "What takes its place; may be empty."},
                "count": {
                    "type": "integer", "minimum": 1,
                    "description": "How often old_text occurs, if more than once; all of them are replaced."
                },
                "replace_all": {"type": "boolean", "description": "Replace old_text however often it occurs."},
            },
            "required": ["path", "old_text", "new_text"],
            "additionalProperties": false,
        })
    }

    fn access(&self, input: &str) -> ToolAccess {
        let Ok(input) = decode::<EditInput>(self, input) else {
            return ToolAccess::new(ToolEffect::Changes, input);
        };
        let (before, after) = (marked('-', &input.old_text), marked('+', &input.new_text));
        ToolAccess::new(ToolEffect::Changes, format!("{}\n{before}{after}", input.path)).at(input.path)
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let input: EditInput = decode(self, input)?;
        if input.old_text.is_empty() {
            return Err(invalid("`old_text` is empty; to write a whole file use write_file"));
        }
        if input.old_text == input.new_text {
            return Err(invalid("`old_text` and `new_text` are the same, so there is nothing to do"));
        }
        if input.count == Some(0) {
            return Err(invalid("`count` must be at least 1"));
        }
        context.write_blocking(move |context| edit(context, &input)).await
    }
}

fn edit(context: &ToolContext, input: &EditInput) -> Result<ToolOutput, Failure> {
    let path = &input.path;
    let (mut file, stat) = open_file(context, path)?;
    let bytes = read_all(path, &mut file, EDIT_FILE_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        failure(FailureCode::Unsupported, format!("`{path}` is not UTF-8 text and cannot be edited"))
    })?;
    context.check_cancelled()?;
    let offsets: Vec<usize> = text.match_indices(&input.old_text).map(|(at, _)| at).collect();
    check(input, &text, &offsets)?;
    // A short new_text that replaces many matches can become very long: check before allocating.
    let kept = text.len() - offsets.len() * input.old_text.len();
    let size = offsets.len().saturating_mul(input.new_text.len()).saturating_add(kept);
    if size > EDIT_FILE_BYTES {
        let message = format!("`{path}` would have {size} bytes, more than the limit of {EDIT_FILE_BYTES}");
        return Err(failure(FailureCode::TooLarge, message));
    }
    let edited = text.replace(&input.old_text, &input.new_text);
    replace(context, path, edited.as_bytes(), Some(&stat))?;
    // The file stays open until here: otherwise another file could reuse its inode number.
    drop(file);
    let diff = ToolDiff { path: path.clone(), text: text_diff(&text, &edited) };
    let matches = if offsets.len() == 1 { "match" } else { "matches" };
    let said = format!("replaced {} {matches} in `{path}`, {}", offsets.len(), list_lines(&text, &offsets));
    Ok(ToolOutput { diffs: vec![diff], ..ToolOutput::text(said) })
}

fn check(input: &EditInput, text: &str, offsets: &[usize]) -> Result<(), Failure> {
    let (found, path) = (offsets.len(), &input.path);
    let expected = input.count.unwrap_or(1);
    if found == 0 {
        let message = format!("`old_text` is not in `{path}`: {}", hint(text, &input.old_text));
        return Err(failure(FailureCode::EditMismatch, message));
    }
    if input.replace_all || found as u64 == expected {
        return Ok(());
    }
    let advice = match input.count {
        None => format!("give more of the text around it, or set `count` to {found} to replace all"),
        Some(_) => format!("`count` says {expected}"),
    };
    let message = format!("`old_text` is in `{path}` {found} times, {}; {advice}", list_lines(text, offsets));
    Err(failure(FailureCode::EditMismatch, message))
}

/// "at line 3", "at lines 3, 4 and 2 more".
fn list_lines(text: &str, offsets: &[usize]) -> String {
    let lines: Vec<String> =
        offsets.iter().take(LISTED_LINES).map(|at| line_at(text, *at).to_string()).collect();
    let more = match offsets.len().saturating_sub(LISTED_LINES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("at line{} {}{more}", if offsets.len() == 1 { "" } else { "s" }, lines.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_matches_the_input_struct() {
        crate::input::assert_schema_fits::<EditInput>(&EditFileTool);
    }

    #[test]
    fn only_the_first_lines_are_listed() {
        let text = "x\n".repeat(12);
        let offsets: Vec<usize> = text.match_indices('x').map(|(at, _)| at).collect();
        assert_eq!(list_lines(&text, &offsets), "at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more");
        assert_eq!(list_lines(&text, &offsets[..1]), "at line 1");
    }

    /// Each thread increments the number that it read. A lost edit makes the sum too small.
    #[test]
    fn concurrent_edits_are_not_lost() {
        const THREADS: usize = 4;
        const TIMES: usize = 15;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("count");
        std::fs::write(&path, "1000").unwrap();
        let count = || std::fs::read_to_string(&path).unwrap().parse::<usize>().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    // The threads share only the folder, like separate processes.
                    let context = ToolContext::new(folder.path()).unwrap();
                    let mut done = 0;
                    while done < TIMES {
                        let seen = count();
                        let input = EditInput {
                            path: "count".to_owned(),
                            old_text: seen.to_string(),
                            new_text: (seen + 1).to_string(),
                            count: None,
                            replace_all: false,
                        };
                        match edit(&context, &input) {
                            Ok(_) => done += 1,
                            Err(failure) => {
                                assert!(
                                    [FailureCode::EditMismatch, FailureCode::PathChanged]
                                        .contains(&failure.code)
                                )
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(count(), 1000 + THREADS * TIMES);
    }
}
