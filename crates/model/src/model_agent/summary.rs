//! Putting a conversation into few words, by a model or, if it cannot, by what was said.

use futures_util::StreamExt;
use parlor_vocab::Usage;

use super::Model;
use super::context::{BYTES_PER_TOKEN, cut_middle};
use crate::provider::{ModelMessage, Piece, ProviderError, Request};
use crate::quote::cut;

/// The longest summary that is kept, in characters.
pub const MAX_SUMMARY_CHARS: usize = 24_000;

/// How much of a window the text to be summarized may fill, in percent.
pub const TRANSCRIPT_PERCENT: u64 = 50;

/// How much of the user's last request is kept word for word in a summary.
pub const MAX_TASK_CHARS: usize = 8_000;

/// How much of a text stands for it where no model could summarize it.
const LIST_BYTES: usize = 8_000;

/// The most of one part in a transcript, in bytes; each has at least a hundredth of that.
const PART_BYTES: usize = 8_000;

const ORDER: &str = "You put conversations between a user and an agent into few words, so that the agent can go \
on without the original. Keep: what the user wants, with all conditions; decisions and their reasons; what was \
done, with the names of files, commands and their results; what failed; what is left to do. Leave out greetings and \
the wording of outputs that no longer matter. Write plain text in the language of the conversation. Answer with the \
summary alone.";

/// A summary, and what it took.
pub(super) struct Summary {
    pub(super) text: String,
    pub(super) usage: Usage,
    /// How many bytes of text were sent and arrived.
    pub(super) bytes: usize,
}

/// A summary of `said` by `model`.
pub(super) async fn summarize(model: &Model, said: &[ModelMessage]) -> Result<Summary, ProviderError> {
    let room = model.context_window * TRANSCRIPT_PERCENT / 100;
    let room = usize::try_from(room).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
    let text = format!("This is the conversation:\n\n{}\n\nSummarize it.", transcript(said, room));
    let mut bytes = ORDER.len() + text.len();
    let request = Request {
        model: model.id.clone(),
        system: ORDER.to_owned(),
        messages: vec![ModelMessage::User { text, pictures: Vec::new() }],
        max_output: model.max_output,
        ..Request::default()
    };
    let mut pieces = model.provider.stream(&request).await?;
    let mut summary = String::new();
    let mut usage = Usage::default();
    while let Some(piece) = pieces.next().await {
        match piece? {
            Piece::Text(text) => {
                bytes += text.len();
                summary.push_str(&text);
            }
            Piece::Done(done) => usage = model.priced(done.usage),
            Piece::Reasoning(text) | Piece::CallInput { text, .. } => bytes += text.len(),
        }
    }
    if summary.trim().is_empty() {
        return Err(ProviderError::Refused { said: "the summary is empty".to_owned() });
    }
    let text = cut(summary.trim(), MAX_SUMMARY_CHARS).into_owned();
    Ok(Summary { text, usage, bytes })
}

/// What stands for `said` if no model can summarize it: the end of it.
pub(super) fn list(said: &[ModelMessage]) -> String {
    transcript(said, LIST_BYTES)
}

/// A summary as it stands in the conversation, with the request that it may have swallowed.
pub(super) fn in_place(summary: &str, task: Option<&str>) -> String {
    let mut text = format!("This is a summary of what was said and done before:\n\n{summary}");
    if let Some(task) = task {
        text.push_str(&format!(
            "\n\nThe user's last request, word for word:\n\n{}",
            cut(task, MAX_TASK_CHARS)
        ));
    }
    text
}

/// Who said and did what, in at most about `room` bytes: the newest if not all has room.
fn transcript(said: &[ModelMessage], room: usize) -> String {
    let each = (room / said.len().max(1)).clamp(PART_BYTES / 100, PART_BYTES);
    let mut lines: Vec<String> = Vec::new();
    let mut bytes = 0;
    for part in said.iter().rev() {
        let line = line(part, each);
        bytes += line.len();
        if bytes > room && !lines.is_empty() {
            lines.push(format!("({} earlier parts are left out.)", said.len() - lines.len()));
            break;
        }
        lines.push(line);
    }
    lines.reverse();
    lines.join("\n\n")
}

fn line(said: &ModelMessage, each: usize) -> String {
    let short = |text: &str| cut_middle(text.to_owned(), each);
    match said {
        ModelMessage::User { text, pictures } if pictures.is_empty() => format!("User: {}", short(text)),
        ModelMessage::User { text, pictures } => {
            format!("User (with {} images): {}", pictures.len(), short(text))
        }
        ModelMessage::Model { text, calls, .. } => {
            let calls = calls.iter().map(|call| format!("[calls {} with {}]", call.tool, short(&call.input)));
            let words = (!text.is_empty()).then(|| short(text));
            format!("Agent: {}", words.into_iter().chain(calls).collect::<Vec<_>>().join("\n"))
        }
        ModelMessage::Results(results) => {
            let one = |text: &str, tool: &str| format!("Result of {tool}: {}", short(text));
            results.iter().map(|result| one(&result.text, &result.tool)).collect::<Vec<_>>().join("\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> ModelMessage {
        ModelMessage::User { text: text.to_owned(), pictures: Vec::new() }
    }

    #[test]
    fn a_transcript_has_room_for_the_newest() {
        let said: Vec<ModelMessage> =
            (0..1000).map(|number| user(&format!("{number} {}", "x".repeat(5000)))).collect();
        let text = transcript(&said, 20_000);
        assert!(text.len() < 22_000, "{}", text.len());
        assert!(text.contains("earlier parts are left out") && text.contains("User: 999"), "{text}");
    }

    #[test]
    fn a_request_that_was_swallowed_is_repeated() {
        let text = in_place("S", Some(&"t".repeat(2 * MAX_TASK_CHARS)));
        assert!(text.contains("word for word"));
        assert!(text.chars().count() < MAX_TASK_CHARS + 200);
        assert!(!in_place("S", None).contains("word for word"));
    }
}
