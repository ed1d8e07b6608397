//! The page: three files that are part of the program.

use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;

use super::answer::{not_found, typed};

pub(super) async fn page() -> Response {
    typed(StatusCode::OK, "text/html; charset=utf-8", include_str!("page.html"))
}

pub(super) async fn script() -> Response {
    typed(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("page.js"))
}

pub(super) async fn style() -> Response {
    typed(StatusCode::OK, "text/css; charset=utf-8", include_str!("page.css"))
}

/// What no route takes: the page, if it may be a place on the page.
pub(super) async fn otherwise(method: Method, uri: Uri) -> Response {
    let path = uri.path();
    let is_other = ["/api", "/supr", "/pico"]
        .iter()
        .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    let is_file = path.rsplit('/').next().is_some_and(|name| name.contains('.'));
    if is_other || is_file || !matches!(method, Method::GET | Method::HEAD) {
        return not_found();
    }
    page().await
}
