//! Google's Gemini API.

mod read;
mod request;

pub(super) use read::GeminiReader;
pub(super) use request::body;
