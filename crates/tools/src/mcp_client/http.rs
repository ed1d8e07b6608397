//! The HTTP half of a connection to a web service. Every body has a limit, and no error names an address.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, try_unfold};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Error as SseError, Sse, SseStream};

use super::message_budget::{Flood, MessageBudget};
use super::{MCP_MESSAGE_BYTES, MCP_POST_WAIT, McpLogin};

const SESSION_ID: &str = "mcp-session-id";
const LAST_EVENT_ID: &str = "last-event-id";
const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";

/// How many bytes of an answer with an error status are shown.
const SHOWN_ERROR_BYTES: usize = 256;

/// How the error of a service that wants a login begins.
pub(super) const WANTS_LOGIN: &str = "the server wants a login";

/// A stream of events, as `rmcp` wants it.
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Why a request failed, as `rmcp` wants it.
type HttpError = StreamableHttpError<reqwest::Error>;

/// The transport to the web service at `url`.
pub(super) fn http_transport(
    url: &str,
    headers: &BTreeMap<String, String>,
    login: Option<Arc<dyn McpLogin>>,
    budget: Arc<MessageBudget>,
) -> Result<StreamableHttpClientTransport<BoundedClient>, String> {
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let (Ok(parsed), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else {
            return Err(format!("the header {name:?} has a name or a value that HTTP does not allow"));
        };
        custom.insert(parsed, value);
    }
    // A redirect could carry the headers, which are secrets, to another server.
    let client = Client::builder().redirect(reqwest::redirect::Policy::none()).build();
    let client = client.map_err(|error| error.without_url().to_string())?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.custom_headers = custom;
    config.max_sse_event_size = MCP_MESSAGE_BYTES;
    Ok(StreamableHttpClientTransport::with_client(BoundedClient { client, login, budget }, config))
}

/// Makes the requests. The client that `rmcp` has reads bodies of any length.
#[derive(Clone)]
pub(super) struct BoundedClient {
    client: Client,
    login: Option<Arc<dyn McpLogin>>,
    budget: Arc<MessageBudget>,
}

impl StreamableHttpClient for BoundedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let has_session = session_id.is_some();
        let request = with_headers(self.client.post(&*uri), session_id.as_deref(), token, headers)?;
        let request = match &message {
            JsonRpcMessage::Request(_) => request,
            // Nothing follows such a message, so a service has no reason to take long.
            JsonRpcMessage::Response(_) | JsonRpcMessage::Notification(_) | JsonRpcMessage::Error(_) => {
                request.timeout(MCP_POST_WAIT)
            }
        };
        let response = self.send(request.json(&message)).await;
        if matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) {
            self.budget.end_answer();
        }
        let response = response?;
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && has_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let session = response.headers().get(SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let (is_json, is_stream) = (is_of_type(&response, JSON), is_of_type(&response, EVENT_STREAM));
        if status.is_success() && is_stream {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response), session));
        }
        let request_id = match &message {
            JsonRpcMessage::Request(request) => Some(&request.id),
            JsonRpcMessage::Response(_) | JsonRpcMessage::Notification(_) | JsonRpcMessage::Error(_) => None,
        };
        let body = bounded_body(response).await?;
        let answer = serde_json::from_slice::<ServerJsonRpcMessage>(&body);
        match answer {
            Ok(answer) if status.is_success() && is_json => {
                Ok(StreamableHttpPostResponse::Json(answer, session))
            }
            // An error that answers this very request says more than its status.
            Ok(JsonRpcMessage::Error(error))
                if is_json && error.id.is_some() && error.id.as_ref() == request_id =>
            {
                Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session))
            }
            // Nobody waits for the answer to a notification.
            _ if status.is_success() && request_id.is_none() => Ok(StreamableHttpPostResponse::Accepted),
            _ => {
                let shown = body.get(..SHOWN_ERROR_BYTES).unwrap_or(&body);
                Err(unexpected(format!("HTTP {status}: {}", String::from_utf8_lossy(shown))))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        let request = with_headers(self.client.delete(&*uri), Some(&session_id), token, headers)?;
        // The session ends for parlor, whatever the server answers.
        self.send(request).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, HttpError> {
        let mut request = with_headers(self.client.get(&*uri), session_id.as_deref(), token, headers)?;
        if let Some(id) = last_event_id {
            request = request.header(LAST_EVENT_ID, id);
        }
        let response = self.send(request).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if status.is_success() && is_of_type(&response, EVENT_STREAM) => Ok(self.events(response)),
            status => Err(unexpected(format!("HTTP {status} instead of a stream of events"))),
        }
    }
}

impl BoundedClient {
    async fn send(&self, request: RequestBuilder) -> Result<Response, HttpError> {
        if self.budget.is_exceeded() {
            return Err(unexpected(Flood.to_string()));
        }
        let Some(login) = &self.login else { return send_once(request, None).await };
        let token = login.token().await.map_err(unexpected)?;
        // Every body of a request here is in memory.
        let again = request.try_clone();
        let mut response = send_once(request, token.as_deref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let (Some(token), Some(again)) = (token, again)
            && let Some(other) = login.replacement(&token).await.map_err(unexpected)?
            && other != token
        {
            response = send_once(again, Some(&other)).await?;
        }
        if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let headers = response.headers().get_all(WWW_AUTHENTICATE).iter();
            let headers: Vec<String> =
                headers.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
            if response.status() == StatusCode::UNAUTHORIZED || !headers.is_empty() {
                let advice = login.advice(&headers);
                return Err(unexpected(format!("{WANTS_LOGIN} (HTTP {}); {advice}", response.status())));
            }
        }
        Ok(response)
    }

    fn events(&self, response: Response) -> Events {
        let begin = (response, EventSize::default(), Arc::clone(&self.budget));
        let chunks = try_unfold(begin, |(mut response, mut size, budget)| async move {
            let chunk = response.chunk().await.map_err(|error| io::Error::other(error.without_url()))?;
            let Some(chunk) = chunk else { return Ok(None) };
            let Some(events) = size.count(&chunk) else { return Err(io::Error::other(too_long())) };
            budget.charge(events, chunk.len()).map_err(io::Error::other)?;
            Ok(Some((chunk, (response, size, budget))))
        });
        SseStream::from_bytes_stream(chunks).boxed()
    }
}

fn with_headers(
    request: RequestBuilder,
    session: Option<&str>,
    token: Option<String>,
    headers: HashMap<HeaderName, HeaderValue>,
) -> Result<RequestBuilder, HttpError> {
    let mut request = request.header(ACCEPT, format!("{EVENT_STREAM}, {JSON}"));
    if let Some(session) = session {
        request = request.header(SESSION_ID, session);
    }
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    for (name, value) in headers {
        if name == ACCEPT || name == SESSION_ID || name == LAST_EVENT_ID {
            return Err(StreamableHttpError::ReservedHeaderConflict(name.to_string()));
        }
        request = request.header(name, value);
    }
    Ok(request)
}

async fn send_once(request: RequestBuilder, token: Option<&str>) -> Result<Response, HttpError> {
    let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
    // The query of an address can be a secret.
    request.send().await.map_err(|error| StreamableHttpError::Client(error.without_url()))
}

fn is_of_type(response: &Response, kind: &str) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|found| found.as_bytes().starts_with(kind.as_bytes()))
}

fn unexpected(text: String) -> HttpError {
    StreamableHttpError::UnexpectedServerResponse(text.into())
}

async fn bounded_body(mut response: Response) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    let error = |error: reqwest::Error| StreamableHttpError::Client(error.without_url());
    while let Some(chunk) = response.chunk().await.map_err(error)? {
        if body.len() + chunk.len() > MCP_MESSAGE_BYTES {
            return Err(unexpected(too_long()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn too_long() -> String {
    format!("the server sent a message of more than {MCP_MESSAGE_BYTES} bytes")
}

/// The size of the event that is being read. Only an empty line that ends with a line feed ends an event here, so a server
/// that separates lines otherwise has the limit for the whole stream.
#[derive(Default)]
struct EventSize {
    bytes: usize,
    line_bytes: usize,
}

impl EventSize {
    /// How many events end in `chunk`, or `None` if one of them is longer than the limit.
    fn count(&mut self, chunk: &[u8]) -> Option<usize> {
        let mut ended = 0;
        for byte in chunk {
            match byte {
                b'\n' if self.line_bytes == 0 => {
                    self.bytes = 0;
                    ended += 1;
                }
                b'\n' => self.line_bytes = 0,
                b'\r' => {}
                _ => self.line_bytes += 1,
            }
            self.bytes += 1;
            if self.bytes > MCP_MESSAGE_BYTES {
                return None;
            }
        }
        Some(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_line_ends_an_event() {
        let line = format!("data: {}\r\n", "x".repeat(1 << 20));
        let event = format!("{line}\r\n");
        let mut size = EventSize::default();
        assert!((0..64).all(|_| size.count(event.as_bytes()) == Some(1)), "each event is short");
        let mut size = EventSize::default();
        assert!(
            (0..64).any(|_| size.count(line.as_bytes()).is_none()),
            "one event of many lines is too long"
        );
        let mut size = EventSize::default();
        assert!((0..64).any(|_| size.count(line.replace('\n', "").as_bytes()).is_none()), "one long line");
    }
}
