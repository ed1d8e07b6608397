//! Anthropic's messages.

mod claude;
mod read;
mod request;

pub(super) use read::AnthropicReader;
pub(super) use request::body;
