//! OpenAI's chat completions, which most other servers speak as well, OpenRouter among them.

mod read;
mod request;

pub(super) use read::ChatReader;
pub(super) use request::body;
