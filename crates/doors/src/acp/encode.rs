//! Frames to the client.

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, Error, MessageId, RequestId, SessionNotification, SessionUpdate, TextContent,
};
use serde::Serialize;

use super::TEXT_PIECE_BYTES;

#[derive(Serialize)]
struct Frame<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(flatten)]
    body: Body<'a, T>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Body<'a, T> {
    Params(&'a T),
    Result(&'a T),
    Error(&'a Error),
}

/// The answer to request `id`.
pub(super) fn result(id: &RequestId, result: &impl Serialize) -> Vec<u8> {
    encode(Some(id), None, Body::Result(result))
}

/// The error that answers request `id`.
pub(super) fn error(id: &RequestId, error: &Error) -> Vec<u8> {
    encode(Some(id), None, Body::<()>::Error(error))
}

/// A notification of this door.
pub(super) fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    encode(None, Some(method), Body::Params(params))
}

/// A request of this door to the client.
pub(super) fn request(id: &RequestId, method: &str, params: &impl Serialize) -> Vec<u8> {
    encode(Some(id), Some(method), Body::Params(params))
}

/// A `session/update` of `session`.
pub(super) fn update(session: &str, update: SessionUpdate) -> Vec<u8> {
    notification("session/update", &SessionNotification::new(session.to_owned(), update))
}

fn encode<T: Serialize>(id: Option<&RequestId>, method: Option<&str>, body: Body<'_, T>) -> Vec<u8> {
    serde_json::to_vec(&Frame { jsonrpc: "2.0", id, method, body })
        .expect("wire types have string keys and no failing serializer")
}

/// Cuts a text into pieces that fit into one frame each. An empty text has no piece.
pub(super) fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(TEXT_PIECE_BYTES));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// A piece of the message `id`.
pub(super) fn chunk(id: &str, content: ContentBlock) -> ContentChunk {
    ContentChunk::new(content).message_id(MessageId::new(id.to_owned()))
}

/// A block of text.
pub(super) fn text(text: impl Into<String>) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let text = "\u{20ac}".repeat(TEXT_PIECE_BYTES);
        let cut: Vec<&str> = pieces(&text).collect();
        assert!(cut.iter().all(|piece| piece.len() <= TEXT_PIECE_BYTES) && cut.concat() == text);
        assert_eq!(pieces("").count(), 0);
    }
}
