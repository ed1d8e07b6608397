//! How many tokens a conversation may take: a guess that clients show, made of lengths alone.

use serde_json::{Value, json};

use super::Tool;
use super::chat::SaidText;
use super::text::{collapsed_units, units};

/// What each message takes beside its text.
const PER_MESSAGE: usize = 20;
/// What an image takes.
const PER_IMAGE: usize = 850;
/// How many letters are one token.
const LETTERS_PER_TOKEN: usize = 4;
/// What each tool takes beside its words, and what having tools takes.
const PER_TOOL: (usize, usize) = (18, 24);
const FOR_TOOLS: (usize, usize) = (16, 24);

/// The share of a window at which a conversation counts as large.
pub(super) const HIGH_PERCENT: u64 = 82;
/// The share that a summary aims for.
pub(super) const TARGET_PERCENT: u64 = 74;

/// A guess, in its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Estimate {
    pinned: usize,
    conversation: usize,
    tools: usize,
    overhead: usize,
}

impl Estimate {
    /// Of a conversation that takes so much, with these tools, at this provider.
    pub(super) fn of(conversation: usize, tools: (usize, usize), provider: &str) -> Self {
        let (usual, google) = tools;
        Self {
            // What a model is told first is the agent's own, and not known here.
            pinned: PER_MESSAGE,
            conversation,
            tools: if provider == "antigravity" { google } else { usual },
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

/// What tools take: usually, and at Google.
pub(super) fn of_tools(tools: &[Tool]) -> (usize, usize) {
    let of_words = |tool: &Tool| {
        let letters = units(&tool.name) + units(&tool.description) + units(&tool.schema.to_string());
        letters.div_ceil(LETTERS_PER_TOKEN)
    };
    let words: usize = tools.iter().map(of_words).sum();
    let (usual, google) = PER_TOOL;
    (words + usual * tools.len() + FOR_TOOLS.0, words + google * tools.len() + FOR_TOOLS.1)
}

/// What a message takes.
pub(super) fn of_message(said: &SaidText) -> usize {
    PER_MESSAGE + collapsed_units(&said.text).div_ceil(LETTERS_PER_TOKEN) + PER_IMAGE * said.images.len()
}

/// How much a model can read, as far as its names tell.
pub(super) fn window(told: Option<u64>, names: [&str; 3]) -> u64 {
    const SMALLEST: u64 = 8_000;
    const LARGEST: u64 = 2_000_000;
    if let Some(told) = told {
        return told.clamp(SMALLEST, LARGEST);
    }
    let names = names.join(" ").to_lowercase();
    let words = names.split(|letter: char| !letter.is_ascii_alphanumeric());
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
    fn a_guess_is_the_sum_of_its_parts() {
        let said = SaidText { is_user: true, text: "a  b c d".to_owned(), images: Vec::new() };
        let tool = Tool { name: "t".to_owned(), description: "do".to_owned(), schema: json!({}) };
        let estimate = Estimate::of(of_message(&said), of_tools(&[tool]), "openai");
        assert_eq!(estimate, Estimate { pinned: 20, conversation: 22, tools: 2 + 18 + 16, overhead: 42 });
        assert_eq!(estimate.total(), 120);
    }

    #[test]
    fn a_window_is_told_or_found_in_a_name() {
        assert_eq!(window(Some(5), ["", "", ""]), 8_000);
        assert_eq!(window(Some(9_000_000), ["", "", ""]), 2_000_000);
        assert_eq!(window(None, ["big-128k", "", ""]), 128_000);
        assert_eq!(window(None, ["x", "", "reads 1m tokens"]), 1_000_000);
        assert_eq!(window(None, ["x-mini", "", ""]), 128_000);
        assert_eq!(window(None, ["x-nano", "", ""]), 64_000);
        assert_eq!(window(None, ["x", "4k", ""]), 272_000);
    }
}
