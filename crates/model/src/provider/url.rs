//! Removes the user and the password from URLs (RFC 3986, section 3.2.1).
//!
//! Requests use the complete URL; people, logs and files get only the redacted one.

use std::borrow::Cow;

use reqwest::Url;

/// Replaces an invalid URL, which may be a key that was set by mistake.
const INVALID_URL: &str = "(invalid URL)";

/// The URL without user and password, for people and logs.
pub fn redacted_url(url: &str) -> Cow<'_, str> {
    let Ok(mut parsed) = Url::parse(url) else { return Cow::Borrowed(INVALID_URL) };
    if !has_userinfo(&parsed) {
        return Cow::Borrowed(url);
    }
    // Both calls fail only for a URL without a host, which has no userinfo.
    let _ = parsed.set_username("");
    let _ = parsed.set_password(None);
    Cow::Owned(parsed.into())
}

/// Whether the complete URL may be shown: it is valid and has no user and password.
pub fn is_public_url(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| !has_userinfo(&url))
}

/// The secret part of a URL, as it is written there: the password, or the user if there is no password, which is a
/// token then.
pub fn secret_in_url(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let secret = url.password().unwrap_or(url.username());
    (!secret.is_empty()).then(|| secret.to_owned())
}

fn has_userinfo(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redacted_url_has_no_user_and_password() {
        for (url, shown) in [
            ("http://127.0.0.1:1", "http://127.0.0.1:1"),
            ("https://a.test/v1/", "https://a.test/v1/"),
            ("http://user:s3cret@a.test:8080/v1", "http://a.test:8080/v1"),
            ("http://s3cret@a.test/v1", "http://a.test/v1"),
            ("http://:s3cret@a.test/v1", "http://a.test/v1"),
            ("http://user:s3@cret@a.test/v1", "http://a.test/v1"),
            ("http:\\\\user:s3cret@a.test/v1", "http://a.test/v1"),
            ("http://user:s3cret@a.test:99999/v1", INVALID_URL),
            ("sk-s3cret", INVALID_URL),
        ] {
            assert_eq!(redacted_url(url), shown);
            assert_eq!(is_public_url(url), url == shown, "{url}");
        }
    }

    #[test]
    fn the_secret_of_a_url_is_its_password_or_its_only_user() {
        let secret = |url| secret_in_url(url);
        assert_eq!(secret("http://user:s3cret@a.test/v1").as_deref(), Some("s3cret"));
        assert_eq!(secret("http://s3cret@a.test/v1").as_deref(), Some("s3cret"));
        assert_eq!(secret("http://user:s%40cret@a.test").as_deref(), Some("s%40cret"));
        assert_eq!((secret("http://a.test/v1"), secret("s3cret")), (None, None));
    }
}
