//! Who is told the key, and how.

use parlor_model::provider::{Key, ProviderKind};

use crate::server::ask_with;

async fn head(kind: ProviderKind, key: Option<Key>) -> String {
    ask_with(kind, ": nothing\n\n", key).await.head
}

#[tokio::test]
async fn a_server_that_asks_for_no_key_is_sent_none() {
    for kind in ProviderKind::ALL {
        let head = head(kind, None).await;
        for line in ["authorization:", "x-api-key:", "x-goog-api-key:"] {
            assert!(!head.contains(line), "{kind:?}: {head}");
        }
        assert_eq!(head.contains("anthropic-version:"), kind == ProviderKind::Anthropic, "{head}");
    }
}

#[tokio::test]
async fn the_token_of_a_login_is_sent_in_the_same_way_to_everybody() {
    for kind in ProviderKind::ALL {
        let head = head(kind, Some(Key::bearer("t0ken"))).await;
        assert!(head.contains("authorization: bearer t0ken\r\n"), "{kind:?}: {head}");
    }
}

#[tokio::test]
async fn a_key_is_sent_as_each_wants_it() {
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
