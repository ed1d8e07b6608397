//! Questions over HTTP, and what is taken for an answer.
//!
//! Whoever is asked need not mean well: a redirect is not followed, since whoever is named there would be handed the
//! key and all that was said; nothing that is packed is unpacked; and of a text no more is read than is wanted.

use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, Url};
use tokio::time::timeout;

use super::error::short;
use super::trouble::{failed, refusal, said_in};
use super::{FIRST_BYTE_WAIT, Key, MAX_ERROR_BYTES, ProviderError, ProviderKind};

/// How long it may take to reach a server.
pub const CONNECT_WAIT: Duration = Duration::from_secs(20);

/// How long the text of an error may take. What has come until then is told.
pub const ERROR_WAIT: Duration = Duration::from_secs(20);

/// The version of Anthropic's API that is spoken.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Opens connections, and keeps them.
pub(super) fn client() -> Result<Client, ProviderError> {
    let client = Client::builder().connect_timeout(CONNECT_WAIT).redirect(Policy::none());
    // Also if a crate of others asks reqwest to unpack.
    client.no_gzip().no_brotli().no_zstd().no_deflate().build().map_err(failed)
}

/// The address of `path` below `base_url`. A query of the base, as some servers want one, stays.
pub(super) fn address(base_url: &str, path: &str) -> Result<Url, ProviderError> {
    let wrong = || ProviderError::Settings { said: "base_url is no address of a provider".to_owned() };
    let mut url = Url::parse(base_url).map_err(|_| wrong())?;
    url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().extend(path.split('/'));
    Ok(url)
}

/// Says who asks, as this kind of provider wants it. The user of an address, if it has one, stands beside.
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
        let said = "the key holds what no request can: give another".to_owned();
        return Err(ProviderError::Settings { said });
    };
    value.set_sensitive(true);
    Ok(request.header(own_header.unwrap_or(AUTHORIZATION.as_str()), value))
}

/// Asks, and waits until the answer begins, whatever it is.
pub(super) async fn send(request: RequestBuilder) -> Result<Response, ProviderError> {
    let request = request.header(ACCEPT_ENCODING, "identity").send();
    let Ok(response) = timeout(FIRST_BYTE_WAIT, request).await else {
        let seconds = FIRST_BYTE_WAIT.as_secs();
        return Err(ProviderError::broken(format!(
            "the request timed out: no answer began within {seconds} seconds"
        )));
    };
    response.map_err(failed)
}

/// An answer that is a success and can be read. Another one is an error, with what its text says.
pub(super) async fn accept(response: Response) -> Result<Response, ProviderError> {
    let (status, packed) = (response.status(), packing(response.headers()));
    if !status.is_success() {
        let head = response.headers().clone();
        let said = match packed {
            Some(packed) => format!("its text is packed (content-encoding: {packed}), and not read"),
            None => said_in(&error_text(response).await),
        };
        return Err(refusal(status.as_u16(), &head, &said));
    }
    let Some(packed) = packed else { return Ok(response) };
    let said = format!(
        "the answer is packed (content-encoding: {packed}), which was not asked for and is not unpacked; check base_url, \
         and what stands between"
    );
    Err(ProviderError::Refused { said })
}

/// A whole text, if it has no more than `most` bytes.
pub(super) async fn whole(mut response: Response, most: usize) -> Result<Vec<u8>, ProviderError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(failed)? {
        if body.len() + piece.len() > most {
            return Err(ProviderError::broken("it tells more than can be read"));
        }
        body.extend_from_slice(&piece);
        tokio::task::consume_budget().await;
    }
    Ok(body)
}

/// The beginning of the text of an error.
async fn error_text(mut response: Response) -> String {
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

/// How an answer is packed, if it is.
fn packing(head: &HeaderMap) -> Option<String> {
    let said = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
    let mut codings = head.get_all(CONTENT_ENCODING).iter().map(said);
    codings.find(|coding| !coding.is_empty() && coding != "identity").map(|coding| short(&coding))
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
            assert_eq!(address(base, "models/m:x").unwrap().as_str(), url);
        }
        assert_eq!(address("http://a.test/v1", "../../x?y").unwrap().as_str(), "http://a.test/v1/x%3Fy");
        for wrong in ["nowhere", "mailto:a@b.test", "sk-s3cret"] {
            let error = address(wrong, "models").unwrap_err();
            assert_eq!(error.code().as_str(), "MODEL_SETTINGS");
            assert!(!error.to_string().contains(wrong), "{error}");
        }
    }

    #[test]
    fn only_identity_is_not_packed() {
        let packing = |codings: &[&'static str]| {
            let mut head = HeaderMap::new();
            for coding in codings {
                head.append(CONTENT_ENCODING, HeaderValue::from_static(coding));
            }
            packing(&head)
        };
        assert_eq!((packing(&[]), packing(&["Identity"]), packing(&[""])), (None, None, None));
        for coding in ["gzip", "br", "zstd", "deflate", "identity, gzip", "x"] {
            assert_eq!(packing(&["identity", coding]).as_deref(), Some(coding));
        }
    }
}
