//! Ollama's own API: lines of JSON.

mod read;
mod request;

pub(super) use read::OllamaReader;
pub(super) use request::body;
