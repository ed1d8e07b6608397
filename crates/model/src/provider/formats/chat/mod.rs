//! OpenAI's chat completions, which most other servers support as well, among them OpenRouter.

mod read;
mod request;

pub(super) use read::ChatReader;
pub(super) use request::body;
