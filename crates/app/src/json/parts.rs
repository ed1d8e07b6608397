//! JSON objects that appear in several kinds of event.

use parlor_vocab as vocab;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Choice<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'static str>,
}

impl<'a> From<&'a vocab::AgentChoice> for Choice<'a> {
    fn from(choice: &'a vocab::AgentChoice) -> Self {
        Self {
            agent: choice.agent.as_ref().map(|agent| agent.as_str()),
            model: choice.model.as_deref(),
            reasoning: choice.reasoning.map(|reasoning| match reasoning {
                vocab::Reasoning::Off => "off",
                vocab::Reasoning::Low => "low",
                vocab::Reasoning::Medium => "medium",
                vocab::Reasoning::High => "high",
                vocab::Reasoning::Xhigh => "xhigh",
                vocab::Reasoning::Adaptive => "adaptive",
            }),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Fork<'a> {
    session: &'a str,
    message: &'a str,
}

impl<'a> From<&'a vocab::ForkOrigin> for Fork<'a> {
    fn from(fork: &'a vocab::ForkOrigin) -> Self {
        Self { session: fork.session.as_str(), message: fork.message.as_str() }
    }
}

#[derive(Serialize)]
pub(super) struct Media<'a> {
    id: &'a str,
    name: &'a str,
    mime: &'a str,
    size: u64,
}

impl<'a> From<&'a vocab::Media> for Media<'a> {
    fn from(media: &'a vocab::Media) -> Self {
        Self { id: media.id.as_str(), name: &media.name, mime: &media.mime, size: media.size }
    }
}

#[derive(Serialize)]
pub(super) struct Input<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    media: Vec<Media<'a>>,
    choice: Choice<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<Sender<'a>>,
}

#[derive(Serialize)]
pub(super) struct Sender<'a> {
    door: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
}

impl<'a> From<&'a parlor_vocab::Sender> for Sender<'a> {
    fn from(by: &'a parlor_vocab::Sender) -> Self {
        Self { door: &by.door, client: by.client.as_deref() }
    }
}

impl<'a> From<&'a vocab::UserInput> for Input<'a> {
    fn from(input: &'a vocab::UserInput) -> Self {
        Self {
            text: &input.text,
            media: input.media.iter().map(Media::from).collect(),
            choice: Choice::from(&input.choice),
            key: input.key.as_deref(),
            traceparent: input.traceparent.as_deref(),
            by: input.by.as_ref().map(Sender::from),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Message<'a> {
    id: &'a str,
    role: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    media: Vec<Media<'a>>,
}

impl<'a> From<&'a vocab::Message> for Message<'a> {
    fn from(message: &'a vocab::Message) -> Self {
        let role = match message.role {
            vocab::Role::User => "user",
            vocab::Role::Assistant => "assistant",
            vocab::Role::System => "system",
        };
        let media = message.media.iter().map(Media::from).collect();
        Self { id: message.id.as_str(), role, text: &message.text, media }
    }
}

#[derive(Serialize)]
pub(super) struct Failure<'a> {
    code: &'a str,
    message: &'a str,
    retryable: bool,
}

impl<'a> From<&'a vocab::Failure> for Failure<'a> {
    fn from(failure: &'a vocab::Failure) -> Self {
        Self { code: failure.code.as_str(), message: &failure.message, retryable: failure.retryable }
    }
}

#[derive(Serialize)]
pub(super) struct Usage {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    cost_micros: u64,
}

impl From<&vocab::Usage> for Usage {
    fn from(usage: &vocab::Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            cost_micros: usage.cost_micros,
        }
    }
}
