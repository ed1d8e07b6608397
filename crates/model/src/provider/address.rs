//! Addresses of servers, which may hold a user and a password (RFC 3986, section 3.2.1).
//!
//! Requests are made with all of an address; people, logs and files are told the rest of it.

use std::borrow::Cow;

use reqwest::Url;

/// What is told of an address that cannot be read: it may be anything, also a key.
const UNREADABLE: &str = "(no address)";

/// An address as it may be told: without user and password.
pub fn redacted_url(url: &str) -> Cow<'_, str> {
    let Ok(mut read) = Url::parse(url) else { return Cow::Borrowed(UNREADABLE) };
    if !has_user(&read) {
        return Cow::Borrowed(url);
    }
    // Only an address without a server has no place for them, and so had none.
    let _ = read.set_username("");
    let _ = read.set_password(None);
    Cow::Owned(read.into())
}

/// Whether all of an address may be told.
pub fn is_public_url(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| !has_user(&url))
}

/// What is secret in an address, as it is written there: its password, or a user that has none, which is a token then.
pub fn secret_in_url(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let secret = url.password().unwrap_or(url.username());
    (!secret.is_empty()).then(|| secret.to_owned())
}

fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_without_user_and_password() {
        for (url, shown) in [
            ("http://127.0.0.1:1", "http://127.0.0.1:1"),
            ("https://a.test/v1/", "https://a.test/v1/"),
            ("http://user:s3cret@a.test:8080/v1", "http://a.test:8080/v1"),
            ("http://s3cret@a.test/v1", "http://a.test/v1"),
            ("http://:s3cret@a.test/v1", "http://a.test/v1"),
            ("http://user:s3@cret@a.test/v1", "http://a.test/v1"),
            ("http:\\\\user:s3cret@a.test/v1", "http://a.test/v1"),
            ("http://user:s3cret@a.test:99999/v1", UNREADABLE),
            ("sk-s3cret", UNREADABLE),
        ] {
            assert_eq!(redacted_url(url), shown);
            assert_eq!(is_public_url(url), url == shown, "{url}");
        }
    }

    #[test]
    fn what_is_secret_in_an_address_is_its_password_or_a_token_alone() {
        let secret = |url| secret_in_url(url);
        assert_eq!(secret("http://user:s3cret@a.test/v1").as_deref(), Some("s3cret"));
        assert_eq!(secret("http://s3cret@a.test/v1").as_deref(), Some("s3cret"));
        assert_eq!(secret("http://user:s%40cret@a.test").as_deref(), Some("s%40cret"));
        assert_eq!((secret("http://a.test/v1"), secret("s3cret")), (None, None));
    }
}
