//! OpenAI's responses API. Responses are not stored at OpenAI.

mod read;
mod request;

pub(super) use read::ResponsesReader;
pub(super) use request::body;
