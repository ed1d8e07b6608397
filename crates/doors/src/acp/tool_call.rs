//! Tool calls: their titles, kinds, locations and diffs, and their results.

use std::path::{Path, PathBuf};

use agent_client_protocol_schema::v1::{
    Content, ContentBlock, Diff, Meta, ResourceLink, Terminal, ToolCallContent, ToolCallLocation, ToolKind,
};
use parlor_vocab::{Failure, ToolDetails, ToolResource};
use serde_json::{Value, json};

use super::{OUTPUT_TAIL_BYTES, RAW_BYTES, TEXT_PIECE_BYTES, TITLE_BYTES, encode};
use crate::tool_details::tool_details_json;
use crate::truncate::truncate_bytes;

/// Stands in a display terminal for output that nobody can show there any more.
const GAP: &str = "[… some output is not shown …]";

/// What a client is shown of a call before its result.
#[derive(Debug, PartialEq)]
pub(super) struct CallDescription {
    pub(super) title: String,
    pub(super) kind: ToolKind,
    pub(super) locations: Vec<ToolCallLocation>,
    pub(super) raw_input: Option<Value>,
    pub(super) diff: Option<Diff>,
}

/// Describes the call of `tool` with `input` in a session that works in `folder`.
pub(super) fn describe(tool: &str, input: &str, folder: &Path) -> CallDescription {
    let value: Value = serde_json::from_str(input).unwrap_or(Value::Null);
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let path = text("path").map(|path| absolute(folder, path));
    let shown_path = text("path").unwrap_or(".");
    let (title, kind) = match tool {
        "shell" => (text("command").unwrap_or(tool).to_owned(), ToolKind::Execute),
        "processes" => ("Look at background processes".to_owned(), ToolKind::Execute),
        "ruby" => (format!("ruby: {}", text("code").unwrap_or_default()), ToolKind::Execute),
        "read_file" => (format!("Read {shown_path}"), ToolKind::Read),
        "list_dir" => (format!("List {shown_path}"), ToolKind::Read),
        "grep_files" => {
            (format!("Search {} in {shown_path}", text("pattern").unwrap_or_default()), ToolKind::Search)
        }
        "write_file" => (format!("Write {shown_path}"), ToolKind::Edit),
        "edit_file" => (format!("Edit {shown_path}"), ToolKind::Edit),
        other => (other.to_owned(), ToolKind::Other),
    };
    let line = text("path").and(value.get("offset")).and_then(Value::as_u64);
    let line = line.and_then(|line| u32::try_from(line).ok());
    let locations = path.iter().map(|path| ToolCallLocation::new(path.clone()).line(line)).collect();
    let diff = match (tool, &path, text("old_text"), text("new_text")) {
        ("edit_file", Some(path), Some(old), Some(new)) if old.len() + new.len() <= RAW_BYTES => {
            Some(Diff::new(path.clone(), new).old_text(old.to_owned()))
        }
        _ => None,
    };
    let raw_input = if input.len() <= RAW_BYTES {
        Some(value).filter(|value| !value.is_null())
    } else {
        Some(Value::String(truncate_bytes(input.to_owned(), RAW_BYTES)))
    };
    CallDescription { title: one_line(&title), kind, locations, raw_input, diff }
}

/// Whether a client with display terminals sees the output of this tool in one.
pub(super) fn has_terminal(tool: &str) -> bool {
    tool == "shell"
}

fn absolute(folder: &Path, path: &str) -> PathBuf {
    folder.join(path)
}

/// A title without line breaks.
pub(super) fn one_line(title: &str) -> String {
    let title = title.get(..title.floor_char_boundary(4 * TITLE_BYTES)).unwrap_or_default();
    truncate_bytes(title.split_whitespace().collect::<Vec<_>>().join(" "), TITLE_BYTES)
}

/// The result of a call.
pub(super) struct CallResult<'a> {
    /// What the tool wrote, without its exit code.
    pub(super) output: &'a str,
    /// The exit code of a command.
    pub(super) exit_code: Option<i64>,
}

/// Splits the exit code from the result of a command.
pub(super) fn result<'a>(tool: &str, output: &'a str) -> CallResult<'a> {
    let without = CallResult { output, exit_code: None };
    if !has_terminal(tool) {
        return without;
    }
    let Some((before, last)) = output.rsplit_once("[exit code ") else { return without };
    match last.strip_suffix(']').and_then(|code| code.parse().ok()) {
        Some(code) => CallResult { output: before, exit_code: Some(code) },
        None => without,
    }
}

/// `rawOutput` of a call that succeeded.
pub(super) fn raw_output(result: &CallResult<'_>, details: Option<&ToolDetails>) -> Value {
    let mut raw = json!({"output": truncate_bytes(result.output.to_owned(), RAW_BYTES)});
    if let Some(code) = result.exit_code {
        raw["exitCode"] = code.into();
    }
    if let Some(details) = details {
        raw["details"] = tool_details_json(details);
    }
    raw
}

/// `rawOutput` of a call that failed.
pub(super) fn raw_failure(failure: &Failure) -> Value {
    json!({"error": truncate_bytes(failure.message.clone(), RAW_BYTES), "code": failure.code.as_str()})
}

/// A text of a tool as content. Clients read it as Markdown, so it stands between fences.
pub(super) fn fenced(text: &str) -> ToolCallContent {
    let text = truncate_bytes(text.to_owned(), TEXT_PIECE_BYTES);
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    plain(&format!("{fence}\n{text}{newline}{fence}"))
}

/// The text of a result, and links to what it refers to.
pub(super) fn contents(output: &str, details: Option<&ToolDetails>) -> Vec<ToolCallContent> {
    let links = details.into_iter().flat_map(|details| &details.resources).map(link);
    std::iter::once(fenced(output)).chain(links).collect()
}

fn link(resource: &ToolResource) -> ToolCallContent {
    let name = resource.name.clone().unwrap_or_else(|| resource.uri.clone());
    let link = ResourceLink::new(name, resource.uri.clone()).mime_type(resource.mime.clone());
    ToolCallContent::Content(Content::new(ContentBlock::ResourceLink(link)))
}

/// A text as content.
pub(super) fn plain(text: &str) -> ToolCallContent {
    ToolCallContent::Content(Content::new(encode::text(text)))
}

/// The last part of the output of a running tool.
#[derive(Debug, Default)]
pub(super) struct OutputTail(String);

impl OutputTail {
    pub(super) fn push(&mut self, text: &str) {
        self.0.push_str(text);
        if self.0.len() > 2 * OUTPUT_TAIL_BYTES {
            let start = self.0.ceil_char_boundary(self.0.len() - OUTPUT_TAIL_BYTES);
            self.0.drain(..start);
        }
    }

    pub(super) fn content(&self) -> ToolCallContent {
        fenced(self.last())
    }

    fn last(&self) -> &str {
        last_bytes(&self.0)
    }
}

fn last_bytes(text: &str) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(OUTPUT_TAIL_BYTES))..).unwrap_or_default()
}

/// What a display terminal lacks of a call's whole output, after the output that it was shown live. Of a long output, the engine
/// shows only a part live, and the result leaves out the middle.
pub(super) fn unshown_output(output: &str, shown: &OutputTail) -> String {
    let shown = shown.last().trim_end();
    match output.rfind(shown).and_then(|start| output.get(start + shown.len()..)) {
        Some(rest) if rest.trim().is_empty() && !shown.is_empty() => String::new(),
        Some(rest) if !shown.is_empty() => rest.to_owned(),
        Some(_) => output.to_owned(),
        None => format!("\n{GAP}\n{}", last_bytes(output)),
    }
}

/// The content that shows the display terminal of a call.
pub(super) fn terminal(id: &str) -> ToolCallContent {
    ToolCallContent::Terminal(Terminal::new(id.to_owned()))
}

/// Announces the display terminal of a call.
pub(super) fn terminal_info(id: &str, folder: &Path) -> Meta {
    meta("terminal_info", json!({"terminal_id": id, "cwd": folder.to_string_lossy()}))
}

/// Appends to a display terminal.
pub(super) fn terminal_output(id: &str, data: &str) -> Meta {
    meta("terminal_output", json!({"terminal_id": id, "data": data}))
}

/// Ends a display terminal.
pub(super) fn terminal_exit(id: &str, exit_code: Option<i64>) -> Meta {
    meta("terminal_exit", json!({"terminal_id": id, "exit_code": exit_code, "signal": null}))
}

fn meta(name: &str, value: Value) -> Meta {
    Meta::from_iter([(name.to_owned(), value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_what_it_lacks_of_an_output() {
        let lacks = |output: &str, shown: &str| {
            let mut tail = OutputTail::default();
            tail.push(shown);
            unshown_output(output, &tail)
        };
        assert_eq!(lacks("all\n", ""), "all\n");
        assert_eq!(lacks("all\n", "all\n"), "");
        assert_eq!(lacks("begun\nended\n", "begun\n"), "\nended\n");
        let long: String = (0..10_000).map(|number| format!("{number}\n")).collect();
        let middle = long.get(..long.len() / 2).unwrap();
        let (head, end) = (long.get(..1000).unwrap(), long.get(long.len() - 20_000..).unwrap());
        let result = format!("{head}\n[cut]\n{end}");
        assert_eq!(lacks(&result, &long), "");
        assert_eq!(lacks(&result, middle), format!("\n{GAP}\n{}", last_bytes(end)));
        assert!(lacks(&result, head.get(..500).unwrap()).ends_with(end));
    }

    fn title(tool: &str, input: &str) -> (String, ToolKind) {
        let described = describe(tool, input, Path::new("/w"));
        (described.title, described.kind)
    }

    #[test]
    fn titles_say_what_a_call_does() {
        let cases = [
            ("shell", r#"{"command":"echo hi\necho ho"}"#, "echo hi echo ho", ToolKind::Execute),
            ("read_file", r#"{"path":"a b"}"#, "Read a b", ToolKind::Read),
            ("list_dir", "{}", "List .", ToolKind::Read),
            ("grep_files", r#"{"pattern":"x.*"}"#, "Search x.* in .", ToolKind::Search),
            ("edit_file", r#"{"path":"f"}"#, "Edit f", ToolKind::Edit),
            ("shell", "broken", "shell", ToolKind::Execute),
            ("files__find", "{}", "files__find", ToolKind::Other),
        ];
        for (tool, input, expected, kind) in cases {
            assert_eq!(title(tool, input), (expected.to_owned(), kind), "{tool} {input}");
        }
        let long = format!(r#"{{"command":"{}"}}"#, "\u{20ac} ".repeat(100_000));
        assert!(title("shell", &long).0.len() <= TITLE_BYTES + 3);
    }

    #[test]
    fn locations_are_absolute_and_have_the_line() {
        let described = describe("read_file", r#"{"path":"a.rs","offset":7}"#, Path::new("/w"));
        assert_eq!(described.locations, [ToolCallLocation::new("/w/a.rs").line(7)]);
        let described = describe("write_file", r#"{"path":"/b","content":"c"}"#, Path::new("/w"));
        assert_eq!(described.locations, [ToolCallLocation::new("/b")]);
    }

    #[test]
    fn an_edit_has_a_diff_and_a_huge_one_has_none() {
        let input = r#"{"path":"f","old_text":"a","new_text":"b"}"#;
        let diff = describe("edit_file", input, Path::new("/w")).diff;
        assert_eq!(diff, Some(Diff::new("/w/f", "b").old_text("a".to_owned())));
        let input = json!({"path": "f", "old_text": "a".repeat(RAW_BYTES), "new_text": "b"}).to_string();
        let described = describe("edit_file", &input, Path::new("/w"));
        assert_eq!(described.diff, None);
        assert!(described.raw_input.unwrap().as_str().unwrap().len() <= RAW_BYTES + 3);
    }

    #[test]
    fn the_exit_code_is_split_from_the_output() {
        let of = |tool, output| {
            let CallResult { output, exit_code } = result(tool, output);
            (output, exit_code)
        };
        assert_eq!(of("shell", "hi\n[exit code 3]"), ("hi\n", Some(3)));
        assert_eq!(of("shell", "[exit code x]"), ("[exit code x]", None));
        assert_eq!(of("read_file", "[exit code 3]"), ("[exit code 3]", None));
    }

    #[test]
    fn a_fence_is_longer_than_any_in_the_text() {
        let shown = |text: &str| serde_json::to_value(fenced(text)).unwrap()["content"]["text"].clone();
        assert_eq!(shown("a\n"), "```\na\n```");
        assert_eq!(shown("````"), "`````\n````\n`````");
    }

    #[test]
    fn the_tail_of_the_output_is_kept() {
        let mut tail = OutputTail::default();
        for _ in 0..10_000 {
            tail.push("\u{20ac}\u{20ac}\u{20ac}\n");
        }
        assert!(tail.0.len() <= 2 * OUTPUT_TAIL_BYTES);
        let shown = serde_json::to_value(tail.content()).unwrap();
        assert!(shown["content"]["text"].as_str().unwrap().len() <= OUTPUT_TAIL_BYTES + 16);
    }
}
