//! Anthropic's messages API.

mod claude;
mod read;
mod request;

pub(super) use read::AnthropicReader;
pub(super) use request::body;
