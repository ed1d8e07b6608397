//! What was said before, as the messages of `get_messages`.
//!
//! Messages alternate as model APIs want them: what an agent says and the tools it calls are blocks of
//! one assistant message, what tools gave back are blocks of the user message that follows.

use std::collections::HashMap;

use parlor_vocab::{FailureCode, HistoryItem, Media, MediaId, Message, Role, RunEnding, StopCause, ToolUse};
use serde_json::{Value, json};

use super::attachment::{self, Kind};
use super::code;

/// The contents of files that came along, as far as they were read.
pub(super) type Contents = HashMap<MediaId, Vec<u8>>;

/// The files that `history` speaks of.
pub(super) fn media(history: &[HistoryItem]) -> Vec<MediaId> {
    let mut ids: Vec<MediaId> = Vec::new();
    for passage in history {
        if let HistoryItem::Message(message) = passage {
            for media in &message.media {
                if !ids.contains(&media.id) {
                    ids.push(media.id.clone());
                }
            }
        }
    }
    ids
}

/// How many messages `history` is.
pub(super) fn count(history: &[HistoryItem]) -> usize {
    messages(history, &Contents::new()).len()
}

/// `history` as messages.
pub(super) fn messages(history: &[HistoryItem], contents: &Contents) -> Vec<Value> {
    let mut written = Writer::default();
    for passage in history {
        match passage {
            HistoryItem::Message(message) => match message.role {
                Role::User => written.add(user(message, contents)),
                Role::Assistant => {
                    written.assistant(json!({"type": "text", "text": message.text}));
                }
                // For people, not for models.
                Role::System => {}
            },
            HistoryItem::ToolUse(used) => written.tool(used),
            HistoryItem::BrokenOff(ending) => {
                if let Some(mark) = mark(ending) {
                    written.add(json!({"role": "user", "content": mark}));
                }
            }
        }
    }
    written.finish()
}

/// What marks a turn that broke off; one that failed by itself has said so when it did.
fn mark(ending: &RunEnding) -> Option<&'static str> {
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
    let files = message.media.iter().map(|media| file(media, contents.get(&media.id)));
    let blocks: Vec<Value> = text.into_iter().chain(files).collect();
    json!({"role": "user", "content": blocks})
}

fn file(media: &Media, content: Option<&Vec<u8>>) -> Value {
    let Some((bytes, kind)) = content.and_then(|bytes| Some((bytes, attachment::kind(bytes)?))) else {
        let name = &media.name;
        return json!({"type": "text", "text": format!("[attached file {name:?}, whose content is not at hand]")});
    };
    let base64 = || base64_simd::STANDARD.encode_to_string(bytes);
    match kind {
        Kind::Image => {
            json!({"type": "image", "source": {"type": "base64", "media_type": media.mime, "data": base64()}})
        }
        Kind::Pdf => {
            let source = json!({"type": "base64", "media_type": "application/pdf", "data": base64()});
            json!({"type": "document", "title": media.name, "source": source})
        }
        Kind::Text => {
            let text = String::from_utf8_lossy(bytes);
            let source = json!({"type": "text", "media_type": "text/plain", "data": text});
            json!({"type": "document", "title": media.name, "source": source})
        }
    }
}

/// Puts blocks together to messages.
#[derive(Default)]
struct Writer {
    messages: Vec<Value>,
    /// The assistant message that is being written.
    said: Vec<Value>,
    /// What the tools of it gave back.
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
        self.said.push(block);
    }

    fn tool(&mut self, used: &ToolUse) {
        let id = used.call.as_str();
        let input: Value =
            serde_json::from_str(&used.input).unwrap_or_else(|_| Value::String(used.input.clone()));
        self.assistant(json!({"type": "tool_use", "id": id, "name": used.tool, "input": input}));
        let content = match &used.result {
            Some(Ok(output)) => output.clone(),
            Some(Err(failure)) => failure.message.clone(),
            None => return,
        };
        self.results.push(json!({"type": "tool_result", "tool_use_id": id, "content": content}));
    }

    fn close(&mut self) {
        for (role, blocks) in [("assistant", &mut self.said), ("user", &mut self.results)] {
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
    use parlor_vocab::{Failure, MessageId, ToolCallId};

    fn says(role: Role, text: &str) -> HistoryItem {
        let id = MessageId::parse("m").unwrap();
        HistoryItem::Message(Message { id, role, text: text.to_owned(), media: Vec::new() })
    }

    fn uses(call: &str) -> HistoryItem {
        let (tool, input) = ("shell".to_owned(), "{\"command\":\"ls\"}".to_owned());
        let result = Some(Ok("out".to_owned()));
        HistoryItem::ToolUse(ToolUse { call: ToolCallId::parse(call).unwrap(), tool, input, result })
    }

    #[test]
    fn tools_are_blocks_between_what_is_said() {
        let history = [
            says(Role::User, "hi"),
            says(Role::Assistant, "look"),
            uses("c1"),
            uses("c2"),
            says(Role::Assistant, "done"),
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
    }

    #[test]
    fn a_turn_that_broke_off_is_marked() {
        let message = MessageId::parse("m").unwrap();
        let stopped = |cause| {
            let message = message.clone();
            HistoryItem::BrokenOff(RunEnding::Stopped { cause, message })
        };
        let failed = |code: FailureCode| {
            let message = String::new();
            HistoryItem::BrokenOff(RunEnding::Failed(Failure { code, message, retryable: false }))
        };
        let enough = StopCause::Client { reason: "enough".to_owned() };
        let crashed = failed(FailureCode::RunInterrupted);
        let history = [stopped(enough), stopped(StopCause::Shutdown), crashed, failed("OTHER".into())];
        let marks: Vec<Value> = messages(&history, &Contents::new());
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
        assert_eq!(super::media(&message("x")), [id]);
    }
}
