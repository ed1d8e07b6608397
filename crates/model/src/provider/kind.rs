//! The providers there are.

/// A way to speak to a model. Each also serves for other servers that speak alike, under a base URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// OpenAI's chat completions, which most other servers speak as well.
    OpenAi,
    /// OpenAI's responses.
    OpenAiResponses,
    /// Anthropic's messages.
    Anthropic,
    /// Google's Gemini.
    Gemini,
    /// OpenRouter, which passes on to others.
    OpenRouter,
    /// Ollama, on this machine or another.
    Ollama,
}

impl ProviderKind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::OpenAi, Self::OpenAiResponses, Self::Anthropic, Self::Gemini, Self::OpenRouter, Self::Ollama];

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::OpenRouter => "openrouter",
            Self::Ollama => "ollama",
        }
    }

    /// The provider of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Where it is, if nobody says otherwise.
    pub fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => "https://api.openai.com/v1/",
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::OpenRouter => "https://openrouter.ai/api/v1/",
            Self::Ollama => "http://localhost:11434/",
        }
    }

    /// The variable that holds its key, as users know it; none if it needs no key.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::OpenAiResponses => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::OpenRouter => Some("OPENROUTER_API_KEY"),
            Self::Ollama => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name() {
        for kind in ProviderKind::ALL {
            assert_eq!(ProviderKind::named(kind.name()), Some(kind));
            assert!(kind.base_url().ends_with('/'), "what is joined to it would replace its last part");
        }
        assert_eq!(ProviderKind::named("Openai"), None);
    }
}
