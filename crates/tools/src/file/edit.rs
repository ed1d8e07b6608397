//! `edit_file`: replaces exact text.

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::code::{failure, invalid};
use crate::file::atomic::replace;
use crate::file::hint::{hint, line_at};
use crate::file::{open_file, read_all};
use crate::input::decode;
use crate::tool::{Tool, ToolContext, ToolResultOutput};

/// The largest file that can be edited.
pub const EDIT_FILE_BYTES: usize = 16 << 20;

/// How many places a message names.
const NAMED_PLACES: usize = 10;

/// Replaces exact text in files.
#[derive(Clone, Copy, Debug, Default)]
pub struct EditFile;

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
impl Tool for EditFile {
    fn name(&self) -> &'static str {
        "edit_file"
    }

    fn description(&self) -> &'static str {
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

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolResultOutput, Failure> {
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
        context.change(move |context| edit(context, &input)).await
    }
}

fn edit(context: &ToolContext, input: &EditInput) -> Result<ToolResultOutput, Failure> {
    let path = &input.path;
    let (mut file, stat) = open_file(context, path)?;
    let bytes = read_all(path, &mut file, EDIT_FILE_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        failure(FailureCode::Unsupported, format!("`{path}` is not UTF-8 text and cannot be edited"))
    })?;
    let places: Vec<usize> = text.match_indices(&input.old_text).map(|(at, _)| at).collect();
    check(input, &text, &places)?;
    // Few bytes can become very many: look before making room for them.
    let kept = text.len() - places.len() * input.old_text.len();
    let size = places.len().saturating_mul(input.new_text.len()).saturating_add(kept);
    if size > EDIT_FILE_BYTES {
        let message = format!("`{path}` would have {size} bytes, more than the limit of {EDIT_FILE_BYTES}");
        return Err(failure(FailureCode::TooLarge, message));
    }
    let edited = text.replace(&input.old_text, &input.new_text);
    replace(context, path, edited.as_bytes(), Some(&stat))?;
    // Open until now, since a new file could get the number of one that is gone.
    drop(file);
    let matches = if places.len() == 1 { "match" } else { "matches" };
    Ok(ToolResultOutput::text(format!(
        "replaced {} {matches} in `{path}`, {}",
        places.len(),
        named(&text, &places)
    )))
}

fn check(input: &EditInput, text: &str, places: &[usize]) -> Result<(), Failure> {
    let (found, path) = (places.len(), &input.path);
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
    let message = format!("`old_text` is in `{path}` {found} times, {}; {advice}", named(text, places));
    Err(failure(FailureCode::EditMismatch, message))
}

/// "at line 3", "at lines 3, 4 and 2 more".
fn named(text: &str, places: &[usize]) -> String {
    let lines: Vec<String> =
        places.iter().take(NAMED_PLACES).map(|at| line_at(text, *at).to_string()).collect();
    let more = match places.len().saturating_sub(NAMED_PLACES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("at line{} {}{more}", if places.len() == 1 { "" } else { "s" }, lines.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_says_what_the_input_takes() {
        crate::input::assert_schema_fits::<EditInput>(&EditFile);
    }

    #[test]
    fn many_places_are_named_in_part() {
        let text = "x\n".repeat(12);
        let places: Vec<usize> = text.match_indices('x').map(|(at, _)| at).collect();
        assert_eq!(named(&text, &places), "at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more");
        assert_eq!(named(&text, &places[..1]), "at line 1");
    }

    /// Each thread counts on from what it read. A change that is lost makes the sum too small.
    #[test]
    fn edits_at_the_same_time_lose_nothing() {
        const THREADS: usize = 4;
        const TIMES: usize = 15;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("count");
        std::fs::write(&path, "1000").unwrap();
        let count = || std::fs::read_to_string(&path).unwrap().parse::<usize>().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    // Nothing is shared but the folder, as if each were a process.
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
