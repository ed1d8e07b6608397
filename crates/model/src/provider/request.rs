//! A request to a model.

use std::sync::Arc;

use parlor_vocab::Reasoning;

use super::{ModelCall, ProviderState};

/// A request to a model. Requests with a common beginning are serialized to the same first bytes, so that providers
/// can cache them.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The provider's id of the model.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The conversation, oldest first. It begins with a user message and does not end with an answer of the model.
    pub messages: Vec<ModelMessage>,
    /// The tools that the model may call.
    pub tools: Arc<[ToolSpec]>,
    /// The reasoning effort; `None` uses the provider's default.
    pub reasoning: Option<Reasoning>,
    /// The most tokens of the answer; `None` uses the provider's default.
    pub max_output: Option<u32>,
}

/// A message of a conversation.
#[derive(Clone, Debug)]
pub enum ModelMessage {
    /// A user message.
    User {
        /// The text.
        text: String,
        /// The attached images.
        pictures: Vec<Picture>,
        /// The attached documents.
        documents: Vec<Document>,
    },
    /// An answer of the model.
    Model {
        /// The text, which may be empty if there are calls.
        text: String,
        /// The tool calls.
        calls: Vec<ModelCall>,
        /// State that the provider expects back.
        provider_state: ProviderState,
    },
    /// The results of all calls of the previous answer.
    Results(Vec<CallResult>),
}

impl ModelMessage {
    /// A user message without files.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), pictures: Vec::new(), documents: Vec::new() }
    }
}

/// The result of a tool call.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// The id of the call.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The text for the model.
    pub text: String,
    /// Whether the call failed.
    pub failed: bool,
    /// The images for the model.
    pub pictures: Vec<Picture>,
}

/// An image. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// The media type.
    pub mime: String,
    /// The file in base64, as all providers expect it.
    pub base64: Arc<str>,
}

impl Picture {
    /// Encodes a file.
    pub fn new(mime: impl Into<String>, bytes: &[u8]) -> Self {
        Self { mime: mime.into(), base64: base64_simd::STANDARD.encode_to_string(bytes).into() }
    }
}

/// A document, such as a PDF. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The name of the file.
    pub name: String,
    /// The media type.
    pub mime: String,
    /// The file in base64, as all providers expect it.
    pub base64: Arc<str>,
}

impl Document {
    /// Encodes a file.
    pub fn new(name: impl Into<String>, mime: impl Into<String>, bytes: &[u8]) -> Self {
        let base64 = base64_simd::STANDARD.encode_to_string(bytes).into();
        Self { name: name.into(), mime: mime.into(), base64 }
    }
}

/// The description of a tool for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSpec {
    /// The name by which the model calls it.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The JSON schema of the input, as text.
    pub schema: String,
}
