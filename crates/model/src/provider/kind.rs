//! The supported kinds of providers.

/// A provider's API. Other servers with the same API can be used by setting a base URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// OpenAI's chat completions, which most other servers support as well.
    OpenAi,
    /// OpenAI's responses API.
    OpenAiResponses,
    /// Anthropic's messages API.
    Anthropic,
    /// Google's Gemini API.
    Gemini,
    /// OpenRouter, which forwards requests to other providers.
    OpenRouter,
    /// Ollama's own API.
    Ollama,
}

impl ProviderKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::OpenAi, Self::OpenAiResponses, Self::Anthropic, Self::Gemini, Self::OpenRouter, Self::Ollama];

    /// The name in the settings.
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

    /// The kind with this name in the settings.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The default base URL, which ends with a slash.
    pub fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => "https://api.openai.com/v1/",
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::OpenRouter => "https://openrouter.ai/api/v1/",
            Self::Ollama => "http://localhost:11434/",
        }
    }

    /// The usual environment variable for the key; `None` if no key is needed.
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
    fn each_kind_is_found_by_its_name() {
        for kind in ProviderKind::ALL {
            assert_eq!(ProviderKind::named(kind.name()), Some(kind));
            assert!(kind.base_url().ends_with('/'), "joining a path would replace the last segment");
        }
        assert_eq!(ProviderKind::named("Openai"), None);
    }
}
