//! The page: files that `make page` builds and `build.rs` embeds in the program.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, VARY,
};
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;

use crate::response::{empty, not_found, typed};
use crate::site::Site;

/// The folder of files whose names contain a hash of their content.
const HASHED: &str = "/assets/";

/// The page of a program that was built without its page.
const MISSING: &str = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>parlor</title>\n\
    <h1>parlor is serving</h1>\n\
    <p>This program was built without its page. To have it, install Node (with npm), then: <code>make page</code>, \
    build parlor again and start it again; <code>make run</code> does all of it.</p>\n\
    <p>Everything else works: the WebSocket at <code>/supr/ws</code>, \
    <a href=\"/api/openapi.json\">the HTTP endpoints</a>, and the doors on other ports and on stdio.</p>\n</html>\n";

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Its path on the server: `/index.html`, `/assets/NAME-HASH.js`.
    pub path: &'static str,
    /// Its `ETag`, which changes with its content.
    pub tag: &'static str,
    /// Its content.
    pub plain: &'static [u8],
    /// Its content, compressed with Brotli.
    pub brotli: Option<&'static [u8]>,
    /// Its content, compressed with gzip.
    pub gzip: Option<&'static [u8]>,
}

/// The page that this program was built with; empty if it was built without one.
pub const PAGE: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

pub(crate) async fn page(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response {
    match find(site.deps.page, "/index.html") {
        Some(index) => asset_response(index, &headers),
        None => typed(StatusCode::OK, "text/html; charset=utf-8", MISSING),
    }
}

/// Answers a path that has no route: with a file of the page, or with the page itself if its own router may know the path.
pub(crate) async fn page_or_asset(
    State(site): State<Arc<Site>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let path = uri.path();
    if !matches!(method, Method::GET | Method::HEAD) {
        return not_found();
    }
    if let Some(asset) = find(site.deps.page, path) {
        return asset_response(asset, &headers);
    }
    let is_reserved = ["/api", "/supr", "/pico", "/assets"]
        .iter()
        .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    let is_file = path.rsplit('/').next().is_some_and(|name| name.contains('.'));
    if is_reserved || is_file {
        return not_found();
    }
    page(State(site), headers).await
}

fn find(page: &'static [Asset], path: &str) -> Option<&'static Asset> {
    page.iter().find(|asset| asset.path == path)
}

fn asset_response(asset: &'static Asset, headers: &HeaderMap) -> Response {
    let is_known = headers.get(IF_NONE_MATCH).and_then(|known| known.to_str().ok()).is_some_and(|known| {
        known
            .split(',')
            .any(|tag| matches!(tag.trim(), "*") || tag.trim().trim_start_matches("W/") == asset.tag)
    });
    let (encoding, body) = match (asset.brotli, asset.gzip) {
        (Some(body), _) if accepts(headers, "br") => (Some("br"), body),
        (_, Some(body)) if accepts(headers, "gzip") => (Some("gzip"), body),
        (_, _) => (None, asset.plain),
    };
    let mut response = match is_known {
        true => empty(StatusCode::NOT_MODIFIED),
        false => typed(StatusCode::OK, content_type(asset.path), body),
    };
    let mut set_header = |name: HeaderName, value| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    };
    // One tag for all encodings, since the content is the same.
    set_header(ETAG, asset.tag);
    set_header(VARY, "accept-encoding");
    set_header(
        CACHE_CONTROL,
        match asset.path.starts_with(HASHED) {
            true => "public, max-age=31536000, immutable",
            false => "no-cache",
        },
    );
    if let Some(encoding) = encoding.filter(|_| !is_known) {
        set_header(CONTENT_ENCODING, encoding);
    }
    response
}

/// Whether a client accepts an encoding: it names the encoding with a weight above 0.
fn accepts(headers: &HeaderMap, encoding: &str) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|item| {
        let (name, weight) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
        name.trim().eq_ignore_ascii_case(encoding) && weight > 0.0
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_accepted_unless_its_weight_is_zero() {
        let accepts = |line: &'static str| {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(line))]);
            super::accepts(&headers, "br")
        };
        assert!(accepts("br") && accepts("gzip, deflate, BR") && accepts("gzip;q=1, br; q=0.1"));
        assert!(!accepts("gzip") && !accepts("br;q=0") && !accepts("br;q=x") && !accepts("brotli"));
    }
}
