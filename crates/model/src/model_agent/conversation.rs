//! The conversation that is sent to the model, kept within its context window.
//!
//! Sizes are estimates: one token for [`BYTES_PER_TOKEN`] bytes of text, [`PICTURE_TOKENS`] for an image,
//! [`DOCUMENT_TOKENS`] for a document, [`PART_TOKENS`] for each message, call and tool. Once the provider has counted the tokens of a request, that number replaces the estimate,
//! and only later messages are estimated.

use std::sync::Arc;

use parlor_vocab::MessageId;

use super::limits::min_tokens;
use super::{MAX_PICTURE_BYTES, MAX_PICTURES};
use crate::provider::{
    CallResult, Document, ModelCall, ModelMessage, Picture, ProviderState, Request, ToolSpec,
};

/// Estimated bytes of text per token.
pub const BYTES_PER_TOKEN: usize = 4;

/// Estimated tokens of an image.
pub const PICTURE_TOKENS: u64 = 1_000;

/// Estimated tokens of a document, whose pages parlor does not count.
pub const DOCUMENT_TOKENS: u64 = 10_000;

/// Estimated tokens of each message, call and tool beside its text.
pub const PART_TOKENS: u64 = 12;

/// From this share of the context window on, older messages are summarized, in percent.
pub const COMPACT_AT_PERCENT: u64 = 80;

/// The share of the context window that the newest messages may fill after a summary, in percent.
pub const KEEP_PERCENT: u64 = 30;

/// The share of the context window that the result of one call may fill, in percent. A longer result loses its
/// middle.
pub const RESULT_PERCENT: u64 = 10;

/// [`MAX_PICTURE_BYTES`] in base64, which adds a third.
const MAX_BASE64_BYTES: usize = MAX_PICTURE_BYTES as usize / 3 * 4 + 4;

/// The messages of a request, with their estimated sizes.
pub(super) struct Conversation {
    request: Request,
    /// One entry for each message of `request`.
    info: Vec<MessageInfo>,
    /// The number of messages that the provider counted, and their tokens.
    counted: Option<(usize, u64)>,
}

/// What is known about a message.
struct MessageInfo {
    /// The id of the session's message with which it begins, if there is one.
    id: Option<MessageId>,
    tokens: u64,
}

impl Conversation {
    pub(super) fn new(system: String, tools: Arc<[ToolSpec]>) -> Self {
        let request = Request { system, tools, ..Request::default() };
        Self { request, info: Vec::new(), counted: None }
    }

    /// The request. Its model is set before each attempt.
    pub(super) fn request(&mut self) -> &mut Request {
        &mut self.request
    }

    /// Removes all messages.
    pub(super) fn clear(&mut self) {
        self.request.messages.clear();
        self.info.clear();
        self.counted = None;
    }

    /// Adds a user message without files. Appends it to the last message if that is from the user as well.
    pub(super) fn push_user(&mut self, text: &str) {
        self.push_user_with_files(text, Vec::new(), Vec::new(), None);
    }

    /// The same with files. `id` is the session's message with which it begins.
    pub(super) fn push_user_with_files(
        &mut self,
        text: &str,
        pictures: Vec<Picture>,
        documents: Vec<Document>,
        id: Option<MessageId>,
    ) {
        if let Some(ModelMessage::User {
            text: last_text,
            pictures: last_pictures,
            documents: last_documents,
        }) = self.request.messages.last_mut()
        {
            last_text.push_str("\n\n");
            last_text.push_str(text);
            last_pictures.extend(pictures);
            last_documents.extend(documents);
            let last = self.info.len() - 1;
            self.info[last].tokens = estimate(&self.request.messages[last]);
            self.counted.take_if(|(count, _)| *count > last);
            return;
        }
        self.push(ModelMessage::User { text: text.to_owned(), pictures, documents }, id);
    }

    /// Adds an answer of the model.
    pub(super) fn push_answer(&mut self, text: String, calls: Vec<ModelCall>, provider_state: ProviderState) {
        self.push(ModelMessage::Model { text, calls, provider_state }, None);
    }

    /// Adds the results of the last answer's calls. Drops the oldest images and documents if there are too many.
    pub(super) fn push_results(&mut self, results: Vec<CallResult>) {
        self.push(ModelMessage::Results(results), None);
        self.drop_old_files();
    }

    fn drop_old_files(&mut self) {
        let (mut count, mut bytes, mut changed) = (0, 0, false);
        let mut fits = |base64: &str| {
            count += 1;
            bytes += base64.len();
            count <= MAX_PICTURES && bytes <= MAX_BASE64_BYTES
        };
        for (message, info) in self.request.messages.iter_mut().zip(&mut self.info).rev() {
            let mut drop_pictures = |pictures: &mut Vec<Picture>, text: &mut String| {
                let before = pictures.len();
                pictures.retain(|picture| fits(&picture.base64));
                if pictures.len() < before {
                    text.push_str("\n(An image that was shown here is left out.)");
                }
                pictures.len() < before
            };
            let dropped = match message {
                ModelMessage::User { text, pictures, documents } => {
                    let dropped = drop_pictures(pictures, text);
                    let before = documents.len();
                    documents.retain(|document| fits(&document.base64));
                    if documents.len() < before {
                        text.push_str("\n(A document that was shown here is left out.)");
                    }
                    dropped || documents.len() < before
                }
                ModelMessage::Results(results) => results.iter_mut().rev().fold(false, |dropped, result| {
                    drop_pictures(&mut result.pictures, &mut result.text) | dropped
                }),
                ModelMessage::Model { .. } => false,
            };
            if dropped {
                info.tokens = estimate(message);
                changed = true;
            }
        }
        if changed {
            self.counted = None;
        }
    }

    /// Adds a message. `id` is the session's message with which it begins.
    pub(super) fn push(&mut self, message: ModelMessage, id: Option<MessageId>) {
        self.info.push(MessageInfo { id, tokens: estimate(&message) });
        self.request.messages.push(message);
    }

    /// Sets the token count of the provider for all present messages. A count that is too low to be true is raised,
    /// because otherwise the conversation would grow without a limit.
    pub(super) fn set_counted(&mut self, tokens: u64) {
        let tokens = (tokens > 0).then(|| tokens.max(min_tokens(self.bytes())));
        self.counted = tokens.map(|tokens| (self.info.len(), tokens));
    }

    /// The size of all text in bytes, without images and documents.
    pub(super) fn bytes(&self) -> usize {
        let tools = self.request.tools.iter();
        let tools = tools.map(|tool| tool.name.len() + tool.description.len() + tool.schema.len());
        let messages = self.request.messages.iter().map(|message| match message {
            ModelMessage::User { text, .. } => text.len(),
            ModelMessage::Model { text, calls, provider_state } => {
                let calls = calls.iter().map(|call| call.tool.len() + call.input.len());
                text.len() + provider_state.bytes() + calls.sum::<usize>()
            }
            ModelMessage::Results(results) => results.iter().map(|result| result.text.len()).sum(),
        });
        self.request.system.len() + tools.sum::<usize>() + messages.sum::<usize>()
    }

    /// Drops what only the previous provider understands: its token count and its state.
    pub(super) fn change_provider(&mut self) {
        self.counted = None;
        for message in &mut self.request.messages {
            if let ModelMessage::Model { provider_state, .. } = message {
                *provider_state = ProviderState::default();
            }
        }
    }

    /// The estimated tokens of the whole request.
    pub(super) fn tokens(&self) -> u64 {
        let (count, tokens) = self.counted.unwrap_or_else(|| (0, self.fixed_tokens()));
        tokens + self.info.iter().skip(count).map(|info| info.tokens).sum::<u64>()
    }

    /// The estimated tokens of the system prompt and the tools, which a summary does not reduce.
    fn fixed_tokens(&self) -> u64 {
        let tools = self.request.tools.iter();
        let tools = tools.map(|tool| {
            text_tokens(tool.name.len() + tool.description.len() + tool.schema.len()) + PART_TOKENS
        });
        text_tokens(self.request.system.len()) + PART_TOKENS + tools.sum::<u64>()
    }

    /// How many of the oldest messages to remove so that the others have at most `keep` tokens. Always keeps the last
    /// step, and never separates a call from its result. `None` if nothing can be removed.
    pub(super) fn removable(&self, keep: u64) -> Option<usize> {
        let mut kept = 0;
        let mut removable = None;
        for index in (1..self.info.len()).rev() {
            kept += self.info[index].tokens;
            if removable.is_some() && kept > keep {
                break;
            }
            if !matches!(self.request.messages[index], ModelMessage::Results(_)) {
                removable = Some(index);
            }
        }
        removable
    }

    /// The oldest `count` messages.
    pub(super) fn oldest(&self, count: usize) -> &[ModelMessage] {
        self.request.messages.get(..count).unwrap_or_default()
    }

    /// Whether a user message after the oldest `count` messages contains `text`.
    pub(super) fn user_text_after(&self, count: usize, text: &str) -> bool {
        self.request.messages.iter().skip(count).any(|message| match message {
            ModelMessage::User { text: user_text, .. } => user_text.contains(text),
            ModelMessage::Model { .. } | ModelMessage::Results(_) => false,
        })
    }

    /// Replaces the oldest `count` messages by `summary`. Returns the id of the session's message before which the
    /// summary covers the whole history, if there is one.
    pub(super) fn replace_oldest(&mut self, count: usize, summary: String) -> Option<MessageId> {
        self.counted = None;
        let up_to_first_kept = self.info.iter().take(count + 1).skip(1);
        let kept_from = up_to_first_kept.rev().find_map(|info| info.id.clone());
        self.request.messages.drain(..count);
        self.info.drain(..count);
        let message = ModelMessage::user(summary);
        self.info.insert(0, MessageInfo { id: None, tokens: estimate(&message) });
        self.request.messages.insert(0, message);
        kept_from
    }

    #[cfg(test)]
    pub(super) fn messages(&self) -> &[ModelMessage] {
        &self.request.messages
    }
}

/// The estimated tokens of a text with this size.
fn text_tokens(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

fn estimate(message: &ModelMessage) -> u64 {
    let picture_tokens = |pictures: &[Picture]| pictures.len() as u64 * PICTURE_TOKENS;
    match message {
        ModelMessage::User { text, pictures, documents } => {
            let documents = documents.len() as u64 * DOCUMENT_TOKENS;
            text_tokens(text.len()) + picture_tokens(pictures) + documents + PART_TOKENS
        }
        ModelMessage::Model { text, calls, provider_state } => {
            let calls =
                calls.iter().map(|call| text_tokens(call.tool.len() + call.input.len()) + PART_TOKENS);
            text_tokens(text.len() + provider_state.bytes()) + PART_TOKENS + calls.sum::<u64>()
        }
        ModelMessage::Results(results) => results
            .iter()
            .map(|result| text_tokens(result.text.len()) + picture_tokens(&result.pictures) + PART_TOKENS)
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation() -> Conversation {
        Conversation::new(String::new(), Arc::new([]))
    }

    fn push_step(conversation: &mut Conversation, bytes: usize) {
        let call = ModelCall { id: "1".to_owned(), tool: "t".to_owned(), input: "{}".to_owned() };
        let text = "x".repeat(bytes);
        let result =
            CallResult { id: "1".to_owned(), tool: "t".to_owned(), text, failed: false, pictures: vec![] };
        conversation.push_answer(String::new(), vec![call], ProviderState::default());
        conversation.push_results(vec![result]);
    }

    #[test]
    fn the_providers_count_replaces_the_estimate() {
        let mut conversation = conversation();
        conversation.push_user("hello");
        let estimated = conversation.tokens();
        conversation.set_counted(1000);
        assert_eq!(conversation.tokens(), 1000);
        conversation.push_answer("12345678".to_owned(), Vec::new(), ProviderState::default());
        assert_eq!(conversation.tokens(), 1000 + 2 + PART_TOKENS);
        conversation.change_provider();
        assert!(conversation.tokens() > estimated && conversation.tokens() < 1000);
    }

    #[test]
    fn appending_to_a_counted_message_drops_the_count() {
        let mut conversation = conversation();
        conversation.push_user("hello");
        conversation.set_counted(5);
        conversation.push_user(&"x".repeat(4000));
        assert!(conversation.tokens() > 1000);
        assert_eq!(conversation.messages().len(), 1);
    }

    #[test]
    fn a_call_is_never_separated_from_its_result() {
        let mut conversation = conversation();
        conversation.push_user("do");
        for _ in 0..5 {
            push_step(&mut conversation, 400);
        }
        let each = 100 + 3 * PART_TOKENS;
        for keep in [0, 1, each, 2 * each + 5, 100_000] {
            let first_kept = conversation.removable(keep).unwrap();
            assert!(matches!(conversation.messages()[first_kept], ModelMessage::Model { .. }), "keep {keep}");
        }
        assert_eq!(conversation.removable(0), Some(9), "the last step is kept");
        assert_eq!(conversation.removable(100_000), Some(1));
        let mut short = self::conversation();
        short.push_user("do");
        assert_eq!(short.removable(0), None);
    }

    #[test]
    fn a_summary_replaces_the_oldest_messages() {
        let mut conversation = conversation();
        let kept = MessageId::parse("kept").unwrap();
        let old = MessageId::parse("old").unwrap();
        conversation.push_user_with_files("old", Vec::new(), Vec::new(), Some(old));
        push_step(&mut conversation, 100_000);
        let before = conversation.tokens();
        conversation.push_user_with_files("new", Vec::new(), Vec::new(), Some(kept.clone()));
        assert!(conversation.user_text_after(3, "new") && !conversation.user_text_after(3, "old"));
        push_step(&mut conversation, 4);
        assert_eq!(conversation.replace_oldest(3, "summary".to_owned()), Some(kept.clone()));
        assert!(conversation.tokens() < before / 100);
        assert!(matches!(&conversation.messages()[0], ModelMessage::User { text, .. } if text == "summary"));
        assert_eq!(conversation.messages().len(), 4);
        assert_eq!(
            conversation.replace_oldest(3, "again".to_owned()),
            Some(kept),
            "messages that the summary does not cover are kept"
        );
        assert_eq!(conversation.replace_oldest(1, "again".to_owned()), None);
    }

    #[test]
    fn the_oldest_images_are_dropped_first() {
        let picture_counts = |conversation: &Conversation| -> Vec<usize> {
            let count = |message: &ModelMessage| match message {
                ModelMessage::User { pictures, .. } => pictures.len(),
                ModelMessage::Results(results) => results.iter().map(|result| result.pictures.len()).sum(),
                ModelMessage::Model { .. } => 0,
            };
            conversation.messages().iter().map(count).collect()
        };
        let push_pictures = |conversation: &mut Conversation, pictures: Vec<Picture>| {
            let (id, tool, text) = ("1".to_owned(), "t".to_owned(), "x".to_owned());
            conversation.push_results(vec![CallResult { id, tool, text, failed: false, pictures }]);
        };
        let mut conversation = conversation();
        let small = Picture::new("image/png", b"png");
        conversation.push_user_with_files("look", vec![small.clone(); 2], Vec::new(), None);
        push_pictures(&mut conversation, vec![small.clone(); MAX_PICTURES - 1]);
        assert_eq!(picture_counts(&conversation), [1, MAX_PICTURES - 1]);
        assert!(
            matches!(&conversation.messages()[0], ModelMessage::User { text, .. } if text.contains("is left out"))
        );
        let large = Picture::new("image/png", &vec![0; MAX_PICTURE_BYTES as usize]);
        push_pictures(&mut conversation, vec![large]);
        assert_eq!(picture_counts(&conversation), [0, 0, 1]);
    }
}
