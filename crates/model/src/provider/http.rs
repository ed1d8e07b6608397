//! HTTP requests to providers, and the checks of their responses.
//!
//! A server may be hostile. Redirects are not followed, because the target would get the key and the conversation.
//! Compressed responses are refused, and the size of bodies is limited.

use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, Url};
use tokio::time::timeout;

use super::classify_error::{error_message, request_error, status_error};
use super::error::truncate_message;
use super::{FIRST_BYTE_WAIT, Key, MAX_ERROR_BYTES, ProviderError, ProviderKind};

/// How long the connection to a server may take.
pub const CONNECT_WAIT: Duration = Duration::from_secs(20);

/// How long the body of an error response may take. The part that arrived until then is used.
pub const ERROR_WAIT: Duration = Duration::from_secs(20);

/// The version of Anthropic's API.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// A client, which keeps connections open.
pub(super) fn client() -> Result<Client, ProviderError> {
    let client = Client::builder().connect_timeout(CONNECT_WAIT).redirect(Policy::none());
    // Needed in case another crate enables these features of reqwest.
    client.no_gzip().no_brotli().no_zstd().no_deflate().build().map_err(request_error)
}

/// The URL of `path` below `base_url`. Keeps the query of `base_url`, which some servers need.
pub(super) fn join_url(base_url: &str, path: &str) -> Result<Url, ProviderError> {
    let invalid = || ProviderError::Settings { message: "base_url is not a valid URL".to_owned() };
    let mut url = Url::parse(base_url).map_err(|_| invalid())?;
    url.path_segments_mut().map_err(|()| invalid())?.pop_if_empty().extend(path.split('/'));
    Ok(url)
}

/// Adds the key in the header that this kind of provider expects. The user and password of a URL are sent as well.
pub(super) fn authorize(
    request: RequestBuilder,
    kind: ProviderKind,
    key: Option<&Key>,
) -> Result<RequestBuilder, ProviderError> {
    let version = (kind == ProviderKind::Anthropic).then_some(ANTHROPIC_VERSION);
    let request =
        version.into_iter().fold(request, |request, version| request.header("anthropic-version", version));
    let Some(key) = key else { return Ok(request) };
    let own_header = match kind {
        _ if key.is_bearer() => None,
        ProviderKind::Anthropic => Some("x-api-key"),
        ProviderKind::Gemini => Some("x-goog-api-key"),
        ProviderKind::OpenAi
        | ProviderKind::OpenAiResponses
        | ProviderKind::OpenRouter
        | ProviderKind::Ollama => None,
    };
    let value =
        if own_header.is_some() { key.reveal().to_owned() } else { format!("Bearer {}", key.reveal()) };
    let Ok(mut value) = HeaderValue::try_from(value) else {
        let message = "the key has characters that an HTTP header cannot carry; set another key".to_owned();
        return Err(ProviderError::Settings { message });
    };
    value.set_sensitive(true);
    Ok(request.header(own_header.unwrap_or(AUTHORIZATION.as_str()), value))
}

/// Sends a request and waits for the head of the response, whatever its status.
pub(super) async fn send(request: RequestBuilder) -> Result<Response, ProviderError> {
    let request = request.header(ACCEPT_ENCODING, "identity").send();
    let Ok(response) = timeout(FIRST_BYTE_WAIT, request).await else {
        let seconds = FIRST_BYTE_WAIT.as_secs();
        return Err(ProviderError::broken(format!(
            "the request timed out: no answer began within {seconds} seconds"
        )));
    };
    response.map_err(request_error)
}

/// Fails if the status is not a success, with the error text of the body, or if the body is compressed.
pub(super) async fn check_response(response: Response) -> Result<Response, ProviderError> {
    let (status, encoding) = (response.status(), compression(response.headers()));
    if !status.is_success() {
        let head = response.headers().clone();
        let message = match encoding {
            Some(encoding) => format!("its text is packed (content-encoding: {encoding}), and not read"),
            None => error_message(&error_body(response).await),
        };
        return Err(status_error(status.as_u16(), &head, &message));
    }
    let Some(encoding) = encoding else { return Ok(response) };
    let message = format!(
        "the answer is packed (content-encoding: {encoding}), which was not asked for and is not unpacked; check base_url, \
         and what stands between"
    );
    Err(ProviderError::Refused { message })
}

/// Reads the whole body. Fails if it has more than `max` bytes.
pub(super) async fn read_body(mut response: Response, max: usize) -> Result<Vec<u8>, ProviderError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(request_error)? {
        if body.len() + piece.len() > max {
            return Err(ProviderError::broken(format!("its response is larger than {max} bytes")));
        }
        body.extend_from_slice(&piece);
        tokio::task::consume_budget().await;
    }
    Ok(body)
}

/// The beginning of an error response's body, up to [`MAX_ERROR_BYTES`].
async fn error_body(mut response: Response) -> String {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(piece)) = response.chunk().await {
            body.extend_from_slice(&piece[..piece.len().min(MAX_ERROR_BYTES - body.len())]);
            if body.len() == MAX_ERROR_BYTES {
                return;
            }
        }
    };
    let _ = timeout(ERROR_WAIT, read).await;
    String::from_utf8_lossy(&body).into_owned()
}

/// The content encoding of a compressed response.
fn compression(head: &HeaderMap) -> Option<String> {
    let coding = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
    let mut codings = head.get_all(CONTENT_ENCODING).iter().map(coding);
    codings.find(|coding| !coding.is_empty() && coding != "identity").map(|coding| truncate_message(&coding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_joined_to_any_base() {
        for (base, url) in [
            ("http://a.test/v1", "http://a.test/v1/models/m:x"),
            ("http://a.test/v1/", "http://a.test/v1/models/m:x"),
            ("http://a.test", "http://a.test/models/m:x"),
            ("http://a.test/v1?api-version=1", "http://a.test/v1/models/m:x?api-version=1"),
        ] {
            assert_eq!(join_url(base, "models/m:x").unwrap().as_str(), url);
        }
        assert_eq!(join_url("http://a.test/v1", "../../x?y").unwrap().as_str(), "http://a.test/v1/x%3Fy");
        for invalid in ["nowhere", "mailto:a@b.test", "sk-s3cret"] {
            let error = join_url(invalid, "models").unwrap_err();
            assert_eq!(error.code().as_str(), "MODEL_SETTINGS");
            assert!(!error.to_string().contains(invalid), "{error}");
        }
    }

    #[test]
    fn only_identity_is_uncompressed() {
        let encoding = |codings: &[&'static str]| {
            let mut head = HeaderMap::new();
            for coding in codings {
                head.append(CONTENT_ENCODING, HeaderValue::from_static(coding));
            }
            compression(&head)
        };
        assert_eq!((encoding(&[]), encoding(&["Identity"]), encoding(&[""])), (None, None, None));
        for coding in ["gzip", "br", "zstd", "deflate", "identity, gzip", "x"] {
            assert_eq!(encoding(&["identity", coding]).as_deref(), Some(coding));
        }
    }
}
