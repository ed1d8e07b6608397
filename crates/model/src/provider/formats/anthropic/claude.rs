//! The capabilities of Anthropic's models, derived from their names.
//!
//! <https://platform.claude.com/docs/en/about-claude/models/overview>. A model with an unknown name is treated like an old one:
//! it gets a thinking budget, which all old models support.

/// A family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Haiku,
    Sonnet,
    Opus,
    /// Fable and Mythos, which always use extended thinking.
    AlwaysThinking,
}

/// A model of Anthropic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claude {
    family: Option<Family>,
    /// The major and minor version; 0 if the name does not contain it.
    version: (u32, u32),
}

impl Claude {
    /// Parses a model name, which may have a prefix and a suffix.
    pub(super) fn parse(name: &str) -> Self {
        let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let found = words.iter().enumerate().find_map(|(index, word)| Some((index, family(word)?)));
        let Some((index, family)) = found else { return Self { family: None, version: (0, 0) } };
        // Newer names have the version after the family, older ones before it. A date is not a version.
        let (before, after) = (&words[..index], &words[index + 1..]);
        let after: Vec<u32> = after.iter().map_while(|word| number(word)).collect();
        let mut before: Vec<u32> = before.iter().rev().map_while(|word| number(word)).collect();
        before.reverse();
        let version = if after.is_empty() { before } else { after };
        let part = |index: usize| version.get(index).copied().unwrap_or(0);
        Self { family: Some(family), version: (part(0), part(1)) }
    }

    /// Whether the model supports `output_config.effort`.
    pub(super) fn supports_effort(self) -> bool {
        self.is_at_least((5, 0), (4, 6), (4, 5))
    }

    /// Whether the model supports adaptive thinking (`thinking.type` is `adaptive`). Others get a budget.
    pub(super) fn is_adaptive(self) -> bool {
        self.is_at_least((5, 0), (4, 6), (4, 6))
    }

    /// Whether the model supports the effort `xhigh`.
    pub(super) fn supports_xhigh(self) -> bool {
        self.is_at_least((5, 0), (5, 0), (4, 7))
    }

    /// Whether thinking is on by default and can be switched off.
    pub(super) fn thinks_by_default(self) -> bool {
        self.family != Some(Family::AlwaysThinking) && self.is_at_least((5, 0), (5, 0), (5, 0))
    }

    /// The most tokens of an answer, which every request must contain.
    pub(super) fn max_tokens(self) -> u32 {
        match (self.family, self.version) {
            (Some(Family::AlwaysThinking), _) => 128_000,
            (Some(Family::Haiku), version) if version >= (5, 0) => 128_000,
            (Some(Family::Opus), version) if version >= (4, 8) => 128_000,
            (Some(Family::Opus), version) if version >= (4, 5) => 64_000,
            (Some(Family::Opus), version) if version >= (4, 0) => 32_000,
            (Some(_), (3, 7)) => 64_000,
            (Some(_), (3, 5)) => 8192,
            (Some(_), (3, _)) => 4096,
            (Some(Family::Haiku | Family::Sonnet | Family::Opus) | None, _) => 64_000,
        }
    }

    fn is_at_least(self, haiku: (u32, u32), sonnet: (u32, u32), opus: (u32, u32)) -> bool {
        match self.family {
            Some(Family::Haiku) => self.version >= haiku,
            Some(Family::Sonnet) => self.version >= sonnet,
            Some(Family::Opus) => self.version >= opus,
            Some(Family::AlwaysThinking) => true,
            None => false,
        }
    }
}

fn family(word: &str) -> Option<Family> {
    match word {
        "haiku" => Some(Family::Haiku),
        "sonnet" => Some(Family::Sonnet),
        "opus" => Some(Family::Opus),
        "fable" | "mythos" => Some(Family::AlwaysThinking),
        _ => None,
    }
}

/// A version number, which has at most two digits.
fn number(word: &str) -> Option<u32> {
    word.parse().ok().filter(|_| word.len() <= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_derived_from_the_name() {
        // Effort, adaptive, xhigh, thinking by default, maximum of tokens.
        for (name, expected) in [
            ("claude-sonnet-5", (true, true, true, true, 64_000)),
            ("claude-sonnet-4-6", (true, true, false, false, 64_000)),
            ("claude-sonnet-4-5-20250929", (false, false, false, false, 64_000)),
            ("claude-opus-5", (true, true, true, true, 128_000)),
            ("claude-opus-4-8", (true, true, true, false, 128_000)),
            ("us.anthropic.claude-opus-4-7-v1:0", (true, true, true, false, 64_000)),
            ("anthropic/claude-opus-4.6", (true, true, false, false, 64_000)),
            ("claude-opus-4-5", (true, false, false, false, 64_000)),
            ("claude-opus-4-20250514", (false, false, false, false, 32_000)),
            ("claude-haiku-4-5", (false, false, false, false, 64_000)),
            ("claude-haiku-5", (true, true, true, true, 128_000)),
            ("claude-mythos-preview", (true, true, true, false, 128_000)),
            ("claude-3-7-sonnet-latest", (false, false, false, false, 64_000)),
            ("claude-3-5-haiku-20241022", (false, false, false, false, 8192)),
            ("claude-3-opus-20240229", (false, false, false, false, 4096)),
            ("some-model", (false, false, false, false, 64_000)),
        ] {
            let model = Claude::parse(name);
            let has = (model.supports_effort(), model.is_adaptive(), model.supports_xhigh());
            assert_eq!(
                (has.0, has.1, has.2, model.thinks_by_default(), model.max_tokens()),
                expected,
                "{name}"
            );
        }
    }
}
