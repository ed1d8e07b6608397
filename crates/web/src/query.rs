//! The query of an address: names and values, encoded as forms are.

use std::borrow::Cow;

use axum::http::request::Parts;
use percent_encoding::percent_decode;

/// The first value of `name`, decoded. It need not be UTF-8.
pub(crate) fn first<'a>(query: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
    values(query, name).next()
}

/// All values of `name`, decoded.
pub(crate) fn values<'a>(query: &'a str, name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.split('&').filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key) == name.as_bytes()).then(|| decode(value))
    })
}

/// The value of `name` was not a whole number.
pub(crate) struct NotANumber;

/// The first value of `name` as a whole number; `None` if the query has no such name.
pub(crate) fn number(parts: &Parts, name: &str) -> Result<Option<usize>, NotANumber> {
    match first(parts.uri.query().unwrap_or_default(), name) {
        Some(value) => {
            let value = std::str::from_utf8(&value).map_err(|_| NotANumber)?;
            value.parse().map(Some).map_err(|_| NotANumber)
        }
        None => Ok(None),
    }
}

/// `+` is a space, and `%` is followed by a byte in hexadecimal.
fn decode(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return Cow::Owned(percent_decode(spaced.as_bytes()).collect());
    }
    percent_decode(text.as_bytes()).into()
}
