//! OpenAI's responses, which are not stored there.

mod read;
mod request;

pub(super) use read::ResponsesReader;
pub(super) use request::body;
