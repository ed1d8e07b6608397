//! `/login`: a form that takes the token and gives a cookie, for front ends that have no such form, such as SuprClaw's own.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, LOCATION};
use axum::http::request::Parts;
use axum::response::Response;

use super::token::give_cookie;
use crate::auth::forwarded::client_address;
use crate::query::first;
use crate::response::{empty, typed};
use crate::site::Site;

/// Stricter than that of other answers, but for the form.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The form. It has no script, no style and nothing that a request could change.
const FORM: &str = "<form method=\"post\" action=\"/login\">\n\
    <p><label>Token <input type=\"password\" name=\"token\" required autofocus autocomplete=\"current-password\"></label>\n\
    <button>Sign in</button></p>\n\
    <p><code>parlor token</code> prints it on the machine of the server.</p>\n</form>\n</html>\n";

pub(crate) async fn form() -> Response {
    page(StatusCode::OK, "")
}

/// Takes the token from the form. The browser gets a cookie and goes to the page.
pub(crate) async fn sign_in(State(site): State<Arc<Site>>, parts: Parts, body: Bytes) -> Response {
    let stored = site.deps.tokens.now();
    let given = std::str::from_utf8(&body).ok().and_then(|body| first(body, "token"));
    // A token that was copied from a terminal may have white space around it.
    if !given.is_some_and(|given| stored.token.is(given.trim_ascii())) {
        site.refusals.write("token", client_address(&parts), parts.uri.path());
        return page(StatusCode::UNAUTHORIZED, "<p role=\"alert\">This is not the token.</p>\n");
    }
    let mut response = empty(StatusCode::SEE_OTHER);
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
    give_cookie(&site, &parts, &stored, &mut response);
    response
}

fn page(status: StatusCode, note: &str) -> Response {
    let head = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
        <meta name=\"viewport\" content=\"width=device-width\"><title>parlor: sign in</title>\n<h1>Sign in</h1>\n";
    let mut response = typed(status, "text/html; charset=utf-8", format!("{head}{note}{FORM}"));
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
