//! The `{id}` in the path of a request.

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use crate::response::text;

/// The `{id}` of a route, percent-decoded. A request whose id is not UTF-8 gets status 400.
pub(crate) struct PathId(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(Self(id)),
            Err(_) => Err(text(StatusCode::BAD_REQUEST, "the id in the address is not UTF-8")),
        }
    }
}
