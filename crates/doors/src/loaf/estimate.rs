//! Estimates the tokens of a conversation from the lengths of its texts. Clients show the estimate.

use serde_json::{Value, json};

use super::ToolDescription;
use super::chat::ModelMessage;
use super::text::{collapsed_units, units};

/// The overhead of each message.
const TOKENS_PER_MESSAGE: usize = 20;
/// The tokens of an image.
const TOKENS_PER_IMAGE: usize = 850;
/// How many characters make one token.
const CHARS_PER_TOKEN: usize = 4;
/// The overhead of each tool, and of having tools at all: for most providers, and for Google.
const TOKENS_PER_TOOL: (usize, usize) = (18, 24);
const TOKENS_FOR_TOOLS: (usize, usize) = (16, 24);

/// The percentage of the context window at which a conversation counts as large.
pub(super) const HIGH_PERCENT: u64 = 82;
/// The percentage of the context window that a summary aims for.
pub(super) const TARGET_PERCENT: u64 = 74;

/// An estimate in tokens, in its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Estimate {
    pinned: usize,
    conversation: usize,
    tools: usize,
    overhead: usize,
}

impl Estimate {
    /// The estimate for a conversation of so many tokens, with the tools' tokens for most providers and for Google.
    pub(super) fn new(conversation: usize, tools: (usize, usize), provider: &str) -> Self {
        let (default, google) = tools;
        Self {
            // The system prompt belongs to the agent and is not known here.
            pinned: TOKENS_PER_MESSAGE,
            conversation,
            tools: if provider == "antigravity" { google } else { default },
            overhead: match provider {
                "openrouter" => 48,
                "antigravity" => 58,
                _ => 42,
            },
        }
    }

    pub(super) fn total(self) -> usize {
        self.pinned + self.conversation + self.tools + self.overhead
    }

    pub(super) fn breakdown(self) -> Value {
        json!({
            "pinned_tokens": self.pinned,
            "conversation_tokens": self.conversation,
            "tool_schema_tokens": self.tools,
            "provider_overhead_tokens": self.overhead,
        })
    }
}

/// The tokens of the tool schemas: for most providers, and for Google.
pub(super) fn tool_tokens(tools: &[ToolDescription]) -> (usize, usize) {
    let text_tokens = |tool: &ToolDescription| {
        let chars = units(&tool.name) + units(&tool.description) + units(&tool.schema.to_string());
        chars.div_ceil(CHARS_PER_TOKEN)
    };
    let words: usize = tools.iter().map(text_tokens).sum();
    let (default, google) = TOKENS_PER_TOOL;
    (words + default * tools.len() + TOKENS_FOR_TOOLS.0, words + google * tools.len() + TOKENS_FOR_TOOLS.1)
}

/// The tokens of a message.
pub(super) fn message_tokens(message: &ModelMessage) -> usize {
    TOKENS_PER_MESSAGE
        + collapsed_units(&message.text).div_ceil(CHARS_PER_TOKEN)
        + TOKENS_PER_IMAGE * message.images.len()
}

/// The context window of a model in tokens: the known size, or else a guess from its names.
pub(super) fn window(known: Option<u64>, names: [&str; 3]) -> u64 {
    const SMALLEST: u64 = 8_000;
    const LARGEST: u64 = 2_000_000;
    if let Some(known) = known {
        return known.clamp(SMALLEST, LARGEST);
    }
    let names = names.join(" ").to_lowercase();
    let words = names.split(|c: char| !c.is_ascii_alphanumeric());
    let sized = words.filter_map(|word| {
        let (digits, unit) = (word.strip_suffix('k'), word.strip_suffix('m'));
        let (digits, unit) =
            digits.map(|digits| (digits, 1_000)).or(unit.map(|digits| (digits, 1_000_000)))?;
        Some(digits.parse::<u64>().ok()?.saturating_mul(unit))
    });
    let found = sized.filter(|size| (SMALLEST..=LARGEST).contains(size)).max();
    found.unwrap_or_else(|| {
        if names.contains("mini") {
            128_000
        } else if names.contains("nano") {
            64_000
        } else {
            272_000
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_the_sum_of_its_parts() {
        let message = ModelMessage { is_user: true, text: "a  b c d".to_owned(), images: Vec::new() };
        let tool = ToolDescription { name: "t".to_owned(), description: "do".to_owned(), schema: json!({}) };
        let estimate = Estimate::new(message_tokens(&message), tool_tokens(&[tool]), "openai");
        assert_eq!(estimate, Estimate { pinned: 20, conversation: 22, tools: 2 + 18 + 16, overhead: 42 });
        assert_eq!(estimate.total(), 120);
    }

    #[test]
    fn a_window_is_known_or_guessed_from_a_name() {
        assert_eq!(window(Some(5), ["", "", ""]), 8_000);
        assert_eq!(window(Some(9_000_000), ["", "", ""]), 2_000_000);
        assert_eq!(window(None, ["big-128k", "", ""]), 128_000);
        assert_eq!(window(None, ["x", "", "reads 1m tokens"]), 1_000_000);
        assert_eq!(window(None, ["x-mini", "", ""]), 128_000);
        assert_eq!(window(None, ["x-nano", "", ""]), 64_000);
        assert_eq!(window(None, ["x", "4k", ""]), 272_000);
    }
}
