//! What comes back from a model.

use parlor_vocab::Usage;

/// A piece of an answer that is being written.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Text of the answer.
    Text(String),
    /// Text of a thought.
    Reasoning(String),
    /// The input of a call goes on, or begins. What is not told in pieces comes with the end alone.
    CallInput {
        /// The provider's name of the call, which no other call of the answer has.
        id: String,
        /// The tool.
        tool: String,
        /// A piece of the input.
        text: String,
    },
    /// The answer is complete. Always the last.
    Done(Completion),
}

/// A complete answer, without the text that was streamed.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    /// The tools that the model wants called, in its order.
    pub calls: Vec<ModelCall>,
    /// What it took. The cost is not known here.
    pub usage: Usage,
    /// Why it ended.
    pub stop: StopReason,
    /// What the provider wants to get back with this answer.
    pub thread: ProviderState,
}

/// A tool call of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCall {
    /// The provider's name of the call.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// Its input: JSON, if the model wrote JSON.
    pub input: String,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopReason {
    /// It is complete, or waits for its tools.
    #[default]
    Complete,
    /// It is as long as an answer may be.
    Length,
    /// The provider let nothing more pass.
    Filtered,
}

/// What a provider wants to get back with an answer of its own while the turn lasts: thoughts, signed or
/// encrypted mostly. Means nothing to anybody else and is never kept.
#[derive(Clone, Debug, Default)]
pub struct ProviderState(pub(super) Vec<ProviderStatePart>);

/// A part of a [`ProviderState`]. Each form has its own, and passes over those of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProviderStatePart {
    /// Chat: thoughts in the member `reasoning_content`.
    ReasoningContent(String),
    /// Responses: the `encrypted_content` of a reasoning item.
    EncryptedReasoning(String),
    /// Anthropic: a `thinking` block.
    SignedThought { text: String, signature: String },
    /// Anthropic: the `data` of a `redacted_thinking` block.
    RedactedThought(String),
    /// Gemini: the `thoughtSignature` of a call, counted from 0, or of the text.
    ThoughtSignature { call: Option<usize>, signature: String },
}

impl ProviderState {
    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(ProviderStatePart::bytes).sum()
    }
}

impl ProviderStatePart {
    fn bytes(&self) -> usize {
        match self {
            Self::ReasoningContent(text) | Self::EncryptedReasoning(text) | Self::RedactedThought(text) => {
                text.len()
            }
            Self::SignedThought { text, signature } => text.len() + signature.len(),
            Self::ThoughtSignature { signature, .. } => signature.len(),
        }
    }
}
