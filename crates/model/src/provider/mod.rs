//! Where answers come from: one seam to whoever runs a model.
//!
//! A [`Request`] goes in, [`Piece`]s come out while the model writes, and the last of them is
//! [`Piece::Done`]. What went wrong is told in words that say what can be done about it
//! ([`ProviderError`]). [`Connection`] speaks to real providers; tests bring their own.
//!
//! Deliberately absent: conversations, tools that are really called, retries. Keys come from outside,
//! and nothing here reads the environment.

mod address;
mod advice;
mod answer;
mod calls;
mod connection;
mod error;
mod forms;
mod http;
mod json;
mod key;
mod kind;
mod listing;
mod piece;
mod reading;
mod request;
mod routes;
mod split;
mod trouble;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

pub use address::{is_public_url, redacted_url, secret_in_url};
pub use advice::AdvisedConnection;
pub use answer::{MAX_ANSWER_BYTES, MAX_ANSWER_PARTS};
pub use calls::MAX_ANSWER_CALLS;
pub use connection::{Connection, FIRST_BYTE_WAIT, IDLE_WAIT, Routing};
pub use error::{MAX_ERROR_CHARS, ProviderError};
pub use http::{CONNECT_WAIT, ERROR_WAIT};
pub use key::{FixedKey, Key, KeyError, KeyInfo, KeySource};
pub use kind::ProviderKind;
pub use listing::{MAX_LISTED_MODELS, MAX_LISTING_BYTES};
pub use piece::{Completion, ModelCall, Piece, ProviderState, StopReason};
pub use reading::{MAX_ERROR_BYTES, check_recorded, read_recorded};
pub use request::{CallResult, ModelMessage, Picture, Request, ToolSpec};
pub use routes::{MAX_ROUTES, MAX_ROUTES_BYTES, ROUTES_WAIT, routes};
pub use split::{MAX_EVENT_BYTES, MAX_LINE_BYTES, MAX_STREAM_BYTES, MAX_STREAM_EVENTS};

/// What a model writes, as it writes it. After [`Piece::Done`] or an error there is nothing more.
pub type Pieces = BoxStream<'static, Result<Piece, ProviderError>>;

/// Whoever runs models. Chosen by the settings, hence used as `dyn`.
///
/// - Dropping what [`ask`](Self::ask) returned ends the call; nothing goes on in the background.
/// - A stream that ends without [`Piece::Done`] is not possible: it ends with an error.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Lets the model answer.
    async fn stream(&self, request: &Request) -> Result<Pieces, ProviderError>;
}
