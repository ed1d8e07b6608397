//! Summarizes a conversation with a model, or excerpts it if the model fails.

use futures_util::StreamExt;
use parlor_vocab::{Usage, truncate_chars, truncate_middle};

use super::Model;
use super::conversation::BYTES_PER_TOKEN;
use crate::provider::{ModelMessage, Piece, ProviderError, Request};

/// The longest summary, in characters.
pub const MAX_SUMMARY_CHARS: usize = 24_000;

/// The share of the context window that the text to summarize may fill, in percent.
pub const TRANSCRIPT_PERCENT: u64 = 50;

/// How many characters of the user's last message a summary repeats literally.
pub const MAX_TASK_CHARS: usize = 8_000;

/// The size of an excerpt that replaces a failed summary, in bytes.
const EXCERPT_BYTES: usize = 8_000;

/// The most bytes of one message in a transcript. Each message may have at least a hundredth of that.
const MESSAGE_BYTES: usize = 8_000;

/// The system prompt of a summary request.
const SYSTEM_PROMPT: &str = "You put conversations between a user and an agent into few words, so that the agent can go \
on without the original. Keep: what the user wants, with all conditions; decisions and their reasons; what was \
done, with the names of files, commands and their results; what failed; what is left to do. Leave out greetings and \
the wording of outputs that no longer matter. Write plain text in the language of the conversation. Answer with the \
summary alone.";

/// A summary and its usage.
pub(super) struct Summary {
    pub(super) text: String,
    pub(super) usage: Usage,
    /// The bytes of text that were sent and received.
    pub(super) bytes: usize,
}

/// Summarizes `messages` with `model`.
pub(super) async fn summarize(model: &Model, messages: &[ModelMessage]) -> Result<Summary, ProviderError> {
    let max_tokens = model.context_window * TRANSCRIPT_PERCENT / 100;
    let max_bytes = usize::try_from(max_tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
    let text = format!("This is the conversation:\n\n{}\n\nSummarize it.", transcript(messages, max_bytes));
    let mut bytes = SYSTEM_PROMPT.len() + text.len();
    let request = Request {
        model: model.id.clone(),
        system: SYSTEM_PROMPT.to_owned(),
        messages: vec![ModelMessage::user(text)],
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
            Piece::Done(done) => usage = model.with_cost(done.usage),
            Piece::Reasoning(text) | Piece::CallInput { text, .. } => bytes += text.len(),
        }
    }
    if summary.trim().is_empty() {
        return Err(ProviderError::Refused { message: "the summary is empty".to_owned() });
    }
    let text = truncate_chars(summary.trim(), MAX_SUMMARY_CHARS).into_owned();
    Ok(Summary { text, usage, bytes })
}

/// The end of the transcript, for use if no model can summarize it.
pub(super) fn excerpt(messages: &[ModelMessage]) -> String {
    transcript(messages, EXCERPT_BYTES)
}

/// The text of the message that contains a summary. `task` is the user's last message, if the summary covers it.
pub(super) fn as_message(summary: &str, task: Option<&str>) -> String {
    let mut text = format!("This is a summary of what was said and done before:\n\n{summary}");
    if let Some(task) = task {
        text.push_str(&format!(
            "\n\nThe user's last request, word for word:\n\n{}",
            truncate_chars(task, MAX_TASK_CHARS)
        ));
    }
    text
}

/// A transcript of at most about `max_bytes`. If not all messages fit, it contains the newest.
fn transcript(messages: &[ModelMessage], max_bytes: usize) -> String {
    let each = (max_bytes / messages.len().max(1)).clamp(MESSAGE_BYTES / 100, MESSAGE_BYTES);
    let mut lines: Vec<String> = Vec::new();
    let mut bytes = 0;
    for message in messages.iter().rev() {
        let line = line(message, each);
        bytes += line.len();
        if bytes > max_bytes && !lines.is_empty() {
            lines.push(format!("({} earlier parts are left out.)", messages.len() - lines.len()));
            break;
        }
        lines.push(line);
    }
    lines.reverse();
    lines.join("\n\n")
}

fn line(message: &ModelMessage, max_bytes: usize) -> String {
    let short = |text: &str| truncate_middle(text, max_bytes).into_owned();
    match message {
        ModelMessage::User { text, pictures, documents } => {
            let count = pictures.len() + documents.len();
            let files =
                if count > 0 { format!(" (with {count} images or documents)") } else { String::new() };
            format!("User{files}: {}", short(text))
        }
        ModelMessage::Model { text, calls, .. } => {
            let calls = calls.iter().map(|call| format!("[calls {} with {}]", call.tool, short(&call.input)));
            let text = (!text.is_empty()).then(|| short(text));
            format!("Agent: {}", text.into_iter().chain(calls).collect::<Vec<_>>().join("\n"))
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
        ModelMessage::user(text)
    }

    #[test]
    fn a_limited_transcript_contains_the_newest_messages() {
        let messages: Vec<ModelMessage> =
            (0..1000).map(|number| user(&format!("{number} {}", "x".repeat(5000)))).collect();
        let text = transcript(&messages, 20_000);
        assert!(text.len() < 22_000, "{}", text.len());
        assert!(text.contains("earlier parts are left out") && text.contains("User: 999"), "{text}");
    }

    #[test]
    fn the_task_is_repeated_and_limited() {
        let text = as_message("S", Some(&"t".repeat(2 * MAX_TASK_CHARS)));
        assert!(text.contains("word for word"));
        assert!(text.chars().count() < MAX_TASK_CHARS + 200);
        assert!(!as_message("S", None).contains("word for word"));
    }
}
