//! Makes the messages of `get_messages` from a session's history.
//!
//! The roles alternate as in model APIs: the texts and tool calls of an agent are blocks of one assistant message, and
//! the results of the tools are blocks of the user message that follows.

use std::collections::HashMap;

use parlor_vocab::{FailureCode, HistoryItem, Media, MediaId, Message, Role, RunEnding, StopCause, ToolUse};
use serde_json::{Value, json};

use super::attachment::{self, ContentKind};
use super::code;

/// The contents of attached files that could be read.
pub(super) type Contents = HashMap<MediaId, Vec<u8>>;

/// `history` as messages.
pub(super) fn messages(history: &[HistoryItem], contents: &Contents) -> Vec<Value> {
    let mut writer = Writer::default();
    for item in history {
        match item {
            HistoryItem::Message(message) => match message.role {
                Role::User => writer.add(user(message, contents)),
                Role::Assistant => {
                    writer.assistant(json!({"type": "text", "text": message.text}));
                }
                // Notes for people are not messages of a conversation.
                Role::System => {}
            },
            HistoryItem::ToolUse(tool_use) => writer.tool(tool_use),
            HistoryItem::UnfinishedRun { ending, .. } => {
                if let Some(mark) = interruption_text(ending) {
                    writer.add(json!({"role": "user", "content": mark}));
                }
            }
        }
    }
    writer.finish()
}

/// The text that marks an interrupted turn; `None` for a turn that completed or failed by itself.
fn interruption_text(ending: &RunEnding) -> Option<&'static str> {
    match ending {
        RunEnding::Stopped { cause: StopCause::Shutdown, .. } => Some(code::INTERRUPTED),
        RunEnding::Stopped { .. } => Some(code::INTERRUPTED_BY_USER),
        RunEnding::Failed(failure) if failure.code == FailureCode::RunInterrupted => {
            Some(code::INTERRUPTED_BY_CRASH)
        }
        RunEnding::Failed(_) | RunEnding::Completed { .. } => None,
    }
}

fn user(message: &Message, contents: &Contents) -> Value {
    if message.media.is_empty() {
        return json!({"role": "user", "content": message.text});
    }
    let text = (!message.text.is_empty()).then(|| json!({"type": "text", "text": message.text}));
    let files: Vec<Value> =
        message.media.iter().filter_map(|media| file(media, contents.get(&media.id))).collect();
    if files.is_empty() {
        return json!({"role": "user", "content": message.text});
    }
    let blocks: Vec<Value> = text.into_iter().chain(files).collect();
    json!({"role": "user", "content": blocks})
}

/// The block of a file; `None` for a file that models cannot read, which the text names.
fn file(media: &Media, content: Option<&Vec<u8>>) -> Option<Value> {
    let Some(bytes) = content else {
        let text = format!("[attached file {:?}, whose content is not at hand]", media.name);
        return Some(json!({"type": "text", "text": text}));
    };
    let kind = attachment::content_kind(bytes).filter(|_| attachment::is_model_readable(bytes))?;
    let base64 = || base64_simd::STANDARD.encode_to_string(bytes);
    Some(match kind {
        ContentKind::Image => {
            json!({"type": "image", "source": {"type": "base64", "media_type": media.mime, "data": base64()}})
        }
        ContentKind::Pdf => {
            let source = json!({"type": "base64", "media_type": "application/pdf", "data": base64()});
            json!({"type": "document", "title": media.name, "source": source})
        }
        ContentKind::Text => {
            let text = String::from_utf8_lossy(bytes);
            let source = json!({"type": "text", "media_type": "text/plain", "data": text});
            json!({"type": "document", "title": media.name, "source": source})
        }
    })
}

/// Groups blocks into messages.
#[derive(Default)]
struct Writer {
    messages: Vec<Value>,
    /// The blocks of the open assistant message.
    assistant_blocks: Vec<Value>,
    /// The results of its tool calls.
    results: Vec<Value>,
}

impl Writer {
    fn add(&mut self, message: Value) {
        self.close();
        self.messages.push(message);
    }

    fn assistant(&mut self, block: Value) {
        if !self.results.is_empty() {
            self.close();
        }
        self.assistant_blocks.push(block);
    }

    fn tool(&mut self, tool_use: &ToolUse) {
        let id = tool_use.call.as_str();
        let input: Value =
            serde_json::from_str(&tool_use.input).unwrap_or_else(|_| Value::String(tool_use.input.clone()));
        self.assistant(json!({"type": "tool_use", "id": id, "name": tool_use.tool, "input": input}));
        let content = match &tool_use.result {
            Some(Ok(output)) => output.clone(),
            Some(Err(failure)) => failure.message.clone(),
            None => return,
        };
        self.results.push(json!({"type": "tool_result", "tool_use_id": id, "content": content}));
    }

    fn close(&mut self) {
        for (role, blocks) in [("assistant", &mut self.assistant_blocks), ("user", &mut self.results)] {
            if !blocks.is_empty() {
                self.messages.push(json!({"role": role, "content": std::mem::take(blocks)}));
            }
        }
    }

    fn finish(mut self) -> Vec<Value> {
        self.close();
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::media_ids;
    use parlor_vocab::{CountedItem, Failure, MessageCounter, MessageId, ToolCallId};

    /// The count that a session keeps without its history. It is that of the messages.
    fn count(history: &[HistoryItem]) -> u64 {
        let mut counter = MessageCounter::default();
        history.iter().for_each(|item| counter.add(CountedItem::of(item)));
        assert_eq!(counter.count(), messages(history, &Contents::new()).len() as u64);
        counter.count()
    }

    fn message(role: Role, text: &str) -> HistoryItem {
        let id = MessageId::parse("m").unwrap();
        HistoryItem::Message(Message { id, role, text: text.to_owned(), media: Vec::new() })
    }

    fn tool_use_item(call: &str) -> HistoryItem {
        let (tool, input) = ("shell".to_owned(), "{\"command\":\"ls\"}".to_owned());
        let result = Some(Ok("out".to_owned()));
        HistoryItem::ToolUse(ToolUse { call: ToolCallId::parse(call).unwrap(), tool, input, result })
    }

    #[test]
    fn tool_calls_are_blocks_between_texts() {
        let history = [
            message(Role::User, "hi"),
            message(Role::Assistant, "look"),
            tool_use_item("c1"),
            tool_use_item("c2"),
            message(Role::Assistant, "done"),
        ];
        let use_block = |id: &str| json!({"type":"tool_use","id":id,"name":"shell","input":{"command":"ls"}});
        let result = |id: &str| json!({"type":"tool_result","tool_use_id":id,"content":"out"});
        let expected = json!([
            {"role":"user","content":"hi"},
            {"role":"assistant","content":[{"type":"text","text":"look"}, use_block("c1")]},
            {"role":"user","content":[result("c1")]},
            {"role":"assistant","content":[use_block("c2")]},
            {"role":"user","content":[result("c2")]},
            {"role":"assistant","content":[{"type":"text","text":"done"}]},
        ]);
        assert_eq!(Value::from(messages(&history, &Contents::new())), expected);
        assert_eq!(count(&history), 6);
        assert_eq!(count(history.get(..4).unwrap()), 5);
    }

    #[test]
    fn an_interrupted_turn_is_marked() {
        let message = MessageId::parse("m").unwrap();
        let stopped = |cause| {
            let message = message.clone();
            HistoryItem::UnfinishedRun { input: None, ending: RunEnding::Stopped { cause, message } }
        };
        let failed = |code: FailureCode| {
            let message = String::new();
            let ending = RunEnding::Failed(Failure { code, message, retryable: false });
            HistoryItem::UnfinishedRun { input: None, ending }
        };
        let enough = StopCause::Client { reason: "enough".to_owned() };
        let crashed = failed(FailureCode::RunInterrupted);
        let history = [stopped(enough), stopped(StopCause::Shutdown), crashed, failed("OTHER".into())];
        let marks: Vec<Value> = messages(&history, &Contents::new());
        assert_eq!(count(&history), 3);
        let texts: Vec<&str> = marks.iter().filter_map(|mark| mark["content"].as_str()).collect();
        assert_eq!(texts, [code::INTERRUPTED_BY_USER, code::INTERRUPTED, code::INTERRUPTED_BY_CRASH]);
    }

    #[test]
    fn files_are_blocks_after_the_text() {
        let id = MediaId::parse("h").unwrap();
        let media =
            Media { id: id.clone(), name: "a.txt".to_owned(), mime: "text/plain".to_owned(), size: 2 };
        let message = |text: &str| {
            let (id, text) = (MessageId::parse("m").unwrap(), text.to_owned());
            [HistoryItem::Message(Message { id, role: Role::User, text, media: vec![media.clone()] })]
        };
        let contents = Contents::from([(id.clone(), b"hi".to_vec())]);
        let document = json!({"type":"document","title":"a.txt",
            "source":{"type":"text","media_type":"text/plain","data":"hi"}});
        let read = messages(&message("look"), &contents);
        assert_eq!(read[0]["content"], json!([{"type":"text","text":"look"}, document]));
        assert_eq!(messages(&message(""), &contents)[0]["content"], json!([document]));
        let gone = messages(&message(""), &Contents::new());
        assert!(gone[0]["content"][0]["text"].as_str().unwrap().contains("a.txt"));
        assert_eq!(media_ids(&message("x")), std::slice::from_ref(&id));
        let binary = messages(&message("[user attached files: \"/a\"]"), &Contents::from([(id, vec![0])]));
        assert_eq!(binary[0]["content"], "[user attached files: \"/a\"]", "the text names the file");
    }
}
