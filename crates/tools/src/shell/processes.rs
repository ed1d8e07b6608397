//! The `processes` tool: lists, reads, writes to and stops the background processes of the session.

use std::time::Duration;

use async_trait::async_trait;
use parlor_process::WriteStatus;
use parlor_vocab::{Failure, ProcessExit, ToolOutput};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{ToolAccess, ToolEffect};
use crate::failure::{cancelled, invalid};
use crate::input::{decode, within};
use crate::shell::background::{BackgroundProcesses, BackgroundStatus, Entry};
use crate::shell::exit_text;
use crate::shell::unread_output::Page;
use crate::tool::{Tool, ToolContext};

/// The longest time that a read waits for output.
pub const BACKGROUND_WAIT_MAX: Duration = Duration::from_mins(1);

/// Lists, reads, writes to and stops background processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessesTool;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessesInput {
    operation: Operation,
    id: Option<String>,
    wait_ms: Option<u64>,
    text: Option<String>,
    enter: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Operation {
    List,
    Read,
    Write,
    Stop,
}

#[async_trait]
impl Tool for ProcessesTool {
    fn name(&self) -> &str {
        "processes"
    }

    fn title(&self) -> Option<&str> {
        Some("Background processes")
    }

    fn description(&self) -> &str {
        "Background processes that the shell tool started: list them, read what they wrote since the last \
         read, write to those on a terminal, stop them with all that they started."
    }

    fn schema(&self) -> Value {
        let max = BACKGROUND_WAIT_MAX.as_millis() as u64;
        json!({
            "type": "object",
            "properties": {
                "operation": {
                    "type": "string", "enum": ["list", "read", "write", "stop"],
                    "description": "What to do."
                },
                "id": {"type": "string", "description": "Which process; for all operations but list."},
                "wait_ms": {
                    "type": "integer", "minimum": 1, "maximum": max,
                    "description": "For read: how long to wait for output or the end, if there is nothing yet."
                },
                "text": {"type": "string", "description": "For write: what to type. \\u0003 is Ctrl-C."},
                "enter": {
                    "type": "boolean", "default": true,
                    "description": "For write: whether to press Enter after the text."
                },
            },
            "required": ["operation"],
            "additionalProperties": false,
        })
    }

    fn access(&self, input: &str) -> ToolAccess {
        // The processes were allowed when they were started.
        ToolAccess::new(ToolEffect::Confined, input)
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let input: ProcessesInput = decode(self, input)?;
        let max = BACKGROUND_WAIT_MAX.as_millis() as usize;
        let wait = Duration::from_millis(within("wait_ms", input.wait_ms, 0, max)? as u64);
        if input.operation == Operation::List {
            return Ok(ToolOutput::text(list(&context.background)));
        }
        let id = input.id.as_deref().ok_or_else(|| invalid("`id` is missing: which process is it about?"))?;
        let entry = context.background.find(id)?;
        match input.operation {
            Operation::List => unreachable!("answered above"),
            Operation::Read => {
                tokio::select! {
                    biased;
                    () = context.cancel.cancelled() => return Err(cancelled()),
                    _ = tokio::time::timeout(wait, entry.wait_for_output()) => {}
                }
                let (page, exit) = entry.read();
                Ok(ToolOutput::text(show(id, page, exit)))
            }
            Operation::Write => write(id, &entry, &input),
            Operation::Stop => {
                let (was_running, exit) = entry.stop().await;
                let exit = exit_text(exit.unwrap_or(ProcessExit::Unknown));
                let what = if was_running { "is stopped" } else { "had ended already" };
                Ok(ToolOutput::text(format!("`{id}` {what} [{exit}]")))
            }
        }
    }
}

fn list(processes: &BackgroundProcesses) -> String {
    let all = processes.list();
    if all.is_empty() {
        return "[no background processes]".to_owned();
    }
    let line = |status: &BackgroundStatus| {
        let how = status.exit.map_or_else(|| "running".to_owned(), exit_text);
        let terminal = if status.terminal { ", on a terminal" } else { "" };
        format!("{} [{how}{terminal}] {}", status.id, status.command)
    };
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn show(id: &str, page: Page, exit: Option<ProcessExit>) -> String {
    let mut text = String::new();
    if page.lost > 0 {
        text.push_str(&format!("[… {} older bytes were not read in time and are gone …]\n", page.lost));
    }
    text.push_str(if page.text.is_empty() { "[no new output]" } else { &page.text });
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let more = if page.left > 0 { format!("; {} more bytes to read", page.left) } else { String::new() };
    let how = exit.map_or_else(|| "running".to_owned(), exit_text);
    text.push_str(&format!("[`{id}`: {how}{more}]"));
    text
}

fn write(id: &str, entry: &Entry, input: &ProcessesInput) -> Result<ToolOutput, Failure> {
    if !entry.has_terminal() {
        let message = format!("`{id}` has no terminal to write to; start the command with \"tty\": true");
        return Err(invalid(message));
    }
    let mut bytes = input.text.clone().unwrap_or_default().into_bytes();
    if input.enter.unwrap_or(true) {
        bytes.push(b'\r'); // The Enter key sends a carriage return; the terminal converts it to a newline.
    }
    if bytes.is_empty() {
        return Err(invalid("there is nothing to write: `text` is empty and `enter` is false"));
    }
    let count = bytes.len();
    Ok(ToolOutput::text(match entry.write(bytes)? {
        WriteStatus::Accepted => format!("wrote {count} bytes to `{id}`"),
        WriteStatus::Waiting => format!("{count} bytes wait for `{id}`, which does not read at the moment"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_matches_the_input_struct() {
        crate::input::assert_schema_fits::<ProcessesInput>(&ProcessesTool);
    }

    #[test]
    fn a_page_counts_lost_and_remaining_bytes() {
        let page = Page { text: "x\n".to_owned(), lost: 7, left: 9 };
        assert_eq!(
            show("p1", page, None),
            "[… 7 older bytes were not read in time and are gone …]\nx\n[`p1`: running; 9 more bytes to read]"
        );
        assert_eq!(
            show("p1", Page::default(), Some(ProcessExit::Code(0))),
            "[no new output]\n[`p1`: exit code 0]"
        );
    }
}
