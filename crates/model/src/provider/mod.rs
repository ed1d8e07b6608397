//! The interface to the providers of models.
//!
//! A [`Provider`] takes a [`Request`] and returns a stream of [`Piece`]s, of which [`Piece::Done`] is the last. Errors are
//! sorted by what can be done about them ([`ProviderError`]). [`Connection`] implements the interface for real providers
//! over HTTP; tests have their own implementations.
//!
//! Deliberately absent: conversations, the execution of tool calls, retries, and reading keys from the environment.

mod advice;
mod answer;
mod answer_reader;
mod calls;
mod classify_error;
mod connection;
mod error;
mod formats;
mod http;
mod json;
mod key;
mod kind;
mod model_list;
mod piece;
mod request;
mod routes;
mod split;
mod url;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

pub use advice::AdvisedConnection;
pub use answer::{MAX_ANSWER_BYTES, MAX_ANSWER_PARTS};
pub use answer_reader::{MAX_ERROR_BYTES, check_recorded, read_recorded};
pub use calls::{CHECKED_INPUT_BYTES, MAX_ANSWER_CALLS};
pub(crate) use classify_error::is_about_account;
pub use connection::{Connection, FIRST_BYTE_WAIT, IDLE_WAIT, Routing};
pub use error::{MAX_ERROR_CHARS, ProviderError};
pub use http::{CONNECT_WAIT, ERROR_WAIT};
pub use key::{FixedKey, Key, KeyError, KeyInfo, KeySource};
pub use kind::ProviderKind;
pub use model_list::{MAX_LISTED_MODELS, MAX_LISTING_BYTES};
pub use piece::{Completion, ModelCall, Piece, ProviderState, StopReason};
pub use request::{CallResult, Document, ModelMessage, Picture, Request, ToolSpec};
pub use routes::{MAX_ROUTES, MAX_ROUTES_BYTES, ROUTES_WAIT, routes};
pub use split::{MAX_EVENT_BYTES, MAX_LINE_BYTES, MAX_STREAM_BYTES, MAX_STREAM_EVENTS};
pub use url::{is_public_url, redacted_url, secret_in_url};

/// The streamed answer of a model. [`Piece::Done`] or an error is the last item.
pub type Pieces = BoxStream<'static, Result<Piece, ProviderError>>;

/// Runs models. The settings choose the implementation, so it is used as `dyn`.
///
/// - Dropping the stream cancels the request; no work continues in the background.
/// - A stream never ends without [`Piece::Done`] or an error.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Sends a request and streams the model's answer.
    async fn stream(&self, request: &Request) -> Result<Pieces, ProviderError>;

    /// Whether a user message may have documents. If not, a request names them and leaves their content out.
    fn takes_documents(&self) -> bool {
        true
    }
}
