//! Google's Gemini.

mod read;
mod request;

pub(super) use read::GeminiReader;
pub(super) use request::body;
