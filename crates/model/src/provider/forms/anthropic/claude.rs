//! What Anthropic's models can do, as far as their names tell.
//!
//! <https://platform.claude.com/docs/en/about-claude/models/overview>. A name that says nothing is taken for a model
//! that has been there for long: it gets a budget for thoughts, which all of these understand.

/// A family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Haiku,
    Sonnet,
    Opus,
    /// Fable and Mythos, which always think.
    Always,
}

/// A model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claude {
    family: Option<Family>,
    /// Major and minor; 0 if the name does not say.
    version: (u32, u32),
}

impl Claude {
    /// The model that has this name, whatever stands before and behind it.
    pub(super) fn named(name: &str) -> Self {
        let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let found = words.iter().enumerate().find_map(|(place, word)| Some((place, family(word)?)));
        let Some((place, family)) = found else { return Self { family: None, version: (0, 0) } };
        // The newer names have the version behind the family, the older ones before it; a date is no version.
        let (before, behind) = (&words[..place], &words[place + 1..]);
        let behind: Vec<u32> = behind.iter().map_while(|word| number(word)).collect();
        let mut before: Vec<u32> = before.iter().rev().map_while(|word| number(word)).collect();
        before.reverse();
        let version = if behind.is_empty() { before } else { behind };
        let part = |place: usize| version.get(place).copied().unwrap_or(0);
        Self { family: Some(family), version: (part(0), part(1)) }
    }

    /// Whether it knows `output_config.effort`.
    pub(super) fn knows_effort(self) -> bool {
        self.is_at_least((5, 0), (4, 6), (4, 5))
    }

    /// Whether it thinks as it sees fit (`thinking.type` is `adaptive`). Others get a budget.
    pub(super) fn is_adaptive(self) -> bool {
        self.is_at_least((5, 0), (4, 6), (4, 6))
    }

    /// Whether the effort `xhigh` is one of its own.
    pub(super) fn knows_xhigh(self) -> bool {
        self.is_at_least((5, 0), (5, 0), (4, 7))
    }

    /// Whether it thinks unless it is told not to, and can be told so.
    pub(super) fn thinks_by_default(self) -> bool {
        self.family != Some(Family::Always) && self.is_at_least((5, 0), (5, 0), (5, 0))
    }

    /// The most tokens of an answer, which every request has to say.
    pub(super) fn max_tokens(self) -> u32 {
        match (self.family, self.version) {
            (Some(Family::Always), _) => 128_000,
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
            Some(Family::Always) => true,
            None => false,
        }
    }
}

fn family(word: &str) -> Option<Family> {
    match word {
        "haiku" => Some(Family::Haiku),
        "sonnet" => Some(Family::Sonnet),
        "opus" => Some(Family::Opus),
        "fable" | "mythos" => Some(Family::Always),
        _ => None,
    }
}

/// A number of a version, which has two digits at most.
fn number(word: &str) -> Option<u32> {
    word.parse().ok().filter(|_| word.len() <= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_a_model_can() {
        // Effort, adaptive, xhigh, thinks by default, the most tokens.
        for (name, can) in [
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
            let model = Claude::named(name);
            let has = (model.knows_effort(), model.is_adaptive(), model.knows_xhigh());
            assert_eq!((has.0, has.1, has.2, model.thinks_by_default(), model.max_tokens()), can, "{name}");
        }
    }
}
