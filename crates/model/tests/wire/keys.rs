//! The headers in which the key is sent.

use parlor_model::provider::{Key, ProviderKind};

use crate::server::request_with_key;

async fn head(kind: ProviderKind, key: Option<Key>) -> String {
    request_with_key(kind, ": nothing\n\n", key).await.head
}

#[tokio::test]
async fn no_header_is_sent_without_a_key() {
    for kind in ProviderKind::ALL {
        let head = head(kind, None).await;
        for line in ["authorization:", "x-api-key:", "x-goog-api-key:"] {
            assert!(!head.contains(line), "{kind:?}: {head}");
        }
        assert_eq!(head.contains("anthropic-version:"), kind == ProviderKind::Anthropic, "{head}");
    }
}

#[tokio::test]
async fn a_login_token_is_sent_as_bearer_to_every_provider() {
    for kind in ProviderKind::ALL {
        let head = head(kind, Some(Key::bearer("t0ken"))).await;
        assert!(head.contains("authorization: bearer t0ken\r\n"), "{kind:?}: {head}");
    }
}

#[tokio::test]
async fn a_key_is_sent_in_the_header_of_each_provider() {
    for kind in ProviderKind::ALL {
        let head = head(kind, Some(Key::new("k3y"))).await;
        let line = match kind {
            ProviderKind::Anthropic => "x-api-key: k3y\r\n",
            ProviderKind::Gemini => "x-goog-api-key: k3y\r\n",
            ProviderKind::OpenAi
            | ProviderKind::OpenAiResponses
            | ProviderKind::OpenRouter
            | ProviderKind::Ollama => "authorization: bearer k3y\r\n",
        };
        assert!(head.contains(line), "{kind:?}: {head}");
        let path = match kind {
            ProviderKind::OpenAi | ProviderKind::OpenRouter => "/v1/chat/completions",
            ProviderKind::OpenAiResponses => "/v1/responses",
            ProviderKind::Anthropic => "/v1/messages",
            ProviderKind::Gemini => "/v1/models/m:streamgeneratecontent?alt=sse",
            ProviderKind::Ollama => "/v1/api/chat",
        };
        assert!(head.starts_with(&format!("post {path} ")), "{kind:?}: {head}");
    }
}
