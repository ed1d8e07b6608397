//! The pieces of a model's answer.

use parlor_vocab::Usage;

/// A piece of a streamed answer.
#[derive(Clone, Debug)]
pub enum Piece {
    /// A part of the text.
    Text(String),
    /// A part of the reasoning.
    Reasoning(String),
    /// A part of the input of a call. Providers that do not stream inputs send them only with the completion.
    CallInput {
        /// The provider's id of the call, unique in the answer.
        id: String,
        /// The name of the tool.
        tool: String,
        /// The next part of the input.
        text: String,
    },
    /// The answer is complete. Always the last piece.
    Done(Completion),
}

/// The end of an answer, without the streamed text.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    /// The tool calls, in the model's order.
    pub calls: Vec<ModelCall>,
    /// The tokens of the request. The cost is 0.
    pub usage: Usage,
    /// Why the answer ended.
    pub stop: StopReason,
    /// State that the provider expects back with this answer.
    pub provider_state: ProviderState,
}

/// A tool call of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCall {
    /// The provider's id of the call. May be empty or not unique.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The input as the model wrote it, which may be invalid JSON.
    pub input: String,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopReason {
    /// The answer is complete, or waits for the results of its calls.
    #[default]
    Complete,
    /// The answer reached the output limit.
    Length,
    /// The provider's content filter stopped the answer.
    Filtered,
}

/// Opaque state that a provider expects back with its own answer during the turn, mostly signed or encrypted
/// reasoning. Other providers do not understand it, and it is never stored.
#[derive(Clone, Debug, Default)]
pub struct ProviderState(pub(super) Vec<ProviderStatePart>);

/// A part of a [`ProviderState`]. Each format uses its own variants and ignores the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProviderStatePart {
    /// Chat completions: the member `reasoning_content`.
    ReasoningContent(String),
    /// Responses: the `encrypted_content` of a reasoning item.
    EncryptedReasoning(String),
    /// Anthropic: a `thinking` block.
    SignedReasoning { text: String, signature: String },
    /// Anthropic: the `data` of a `redacted_thinking` block.
    RedactedReasoning(String),
    /// Gemini: the `thoughtSignature` of a call, by its index from 0, or of the text.
    ThoughtSignature { call: Option<usize>, signature: String },
}

impl ProviderState {
    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(ProviderStatePart::bytes).sum()
    }
}

impl ProviderStatePart {
    fn bytes(&self) -> usize {
        match self {
            Self::ReasoningContent(text) | Self::EncryptedReasoning(text) | Self::RedactedReasoning(text) => {
                text.len()
            }
            Self::SignedReasoning { text, signature } => text.len() + signature.len(),
            Self::ThoughtSignature { signature, .. } => signature.len(),
        }
    }
}
