//! What a model is asked.

use std::sync::Arc;

use parlor_vocab::Reasoning;

use super::{ModelCall, ProviderState};

/// A question to a model with all that it has to know. The same beginning gives the same bytes, so
/// that a provider can reuse what it has read before.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The provider's name of the model.
    pub model: String,
    /// What comes before everything else.
    pub system: String,
    /// The conversation, oldest first: the first and the last are the user's or a tool's.
    pub messages: Vec<ModelMessage>,
    /// What the model may call.
    pub tools: Arc<[ToolSpec]>,
    /// How hard to think; none leaves it to the provider.
    pub reasoning: Option<Reasoning>,
    /// The most tokens that the answer may have; none leaves it to the provider.
    pub max_output: Option<u32>,
}

/// A part of a conversation.
#[derive(Clone, Debug)]
pub enum ModelMessage {
    /// By the user.
    User {
        /// The words.
        text: String,
        /// What there is to see.
        pictures: Vec<Picture>,
    },
    /// By the model.
    Model {
        /// The words; may be empty if there are calls.
        text: String,
        /// The calls it made.
        calls: Vec<ModelCall>,
        /// What the provider wants back.
        thread: ProviderState,
    },
    /// What the calls of the message before brought, all of them.
    Results(Vec<CallResult>),
}

/// What a call brought.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// The call.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// What the model is to read.
    pub text: String,
    /// Whether it went wrong.
    pub failed: bool,
    /// What there is to see.
    pub pictures: Vec<Picture>,
}

/// An image. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its media type.
    pub mime: String,
    /// The file in base64, which is how every provider takes it.
    pub base64: Arc<str>,
}

impl Picture {
    /// Of a file.
    pub fn new(mime: impl Into<String>, bytes: &[u8]) -> Self {
        Self { mime: mime.into(), base64: base64_simd::STANDARD.encode_to_string(bytes).into() }
    }
}

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The JSON schema of its input, as text.
    pub schema: String,
}
