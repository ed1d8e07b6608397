//! The HTTP client of the exec door. Like [`Fetcher`](crate::Fetcher), it connects neither to this machine nor to private
//! networks, unless the settings allow that.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use parlor_process::{HttpAnswer, HttpBody, HttpClient, is_public_address};
use parlor_vocab::{HttpError, HttpReply, HttpRequest};
use reqwest::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, StatusCode, Url};

use crate::fetch::{FetchError, FilteringResolver, MAX_REDIRECTS, check_url, fetch_error};

type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes HTTP requests for clients of the exec door.
#[derive(Debug)]
pub struct ExecutorHttp {
    /// Created on first use, since it reads all root certificates.
    client: OnceLock<Client>,
    /// Whether it may connect to an address.
    is_allowed: fn(IpAddr) -> bool,
}

impl ExecutorHttp {
    /// Requests to the public internet, and to this machine and private networks too if `allow_private`.
    pub fn new(allow_private: bool) -> Self {
        Self { client: OnceLock::new(), is_allowed: if allow_private { |_| true } else { is_public_address } }
    }

    fn client(&self) -> Result<&Client, HttpError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(FilteringResolver { is_allowed: self.is_allowed }))
            .build()
            .map_err(|error| failed(fetch_error(error)))?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn follow(&self, request: HttpRequest) -> Result<Response, HttpError> {
        let mut method = Method::from_bytes(request.method.as_bytes())
            .map_err(|_| HttpError::Invalid(format!("`{}` is not an HTTP method", request.method)))?;
        let mut url = Url::parse(&request.url)
            .map_err(|error| HttpError::Invalid(format!("the url is invalid: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            let scheme = url.scheme();
            return Err(HttpError::Invalid(format!(
                "http/request only supports http and https URLs, not {scheme}"
            )));
        }
        let mut headers = headers(&request.headers)?;
        let mut body = request.body;
        for _ in 0..=MAX_REDIRECTS {
            check_url(&url, self.is_allowed).map_err(failed)?;
            let sent = self.client()?.request(method.clone(), url.clone()).headers(headers.clone());
            let sent = if body.is_empty() { sent } else { sent.body(body.clone()) };
            let response = sent.send().await.map_err(|error| failed(fetch_error(error)))?;
            let target = response.headers().get(LOCATION).and_then(|target| target.to_str().ok());
            let target = target.and_then(|target| url.join(target).ok());
            let Some(target) =
                target.filter(|_| request.follows_redirects && response.status().is_redirection())
            else {
                return Ok(response);
            };
            let keeps_method =
                [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT].contains(&response.status());
            if !keeps_method && method != Method::HEAD {
                (method, body) = (Method::GET, Vec::new());
                headers.remove(CONTENT_TYPE);
            }
            if (target.scheme(), target.host(), target.port_or_known_default())
                != (url.scheme(), url.host(), url.port_or_known_default())
            {
                // Another server must not see them.
                headers.remove(AUTHORIZATION);
                headers.remove(COOKIE);
            }
            url = target;
        }
        Err(HttpError::Failed(format!("there are more than {MAX_REDIRECTS} redirects")))
    }
}

/// The headers of a request. Those that the client computes itself are left out.
fn headers(given: &[(String, String)]) -> Result<HeaderMap, HttpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let invalid = || HttpError::Invalid(format!("the header `{name}` is invalid"));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        let value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        if ![HOST, CONTENT_LENGTH].contains(&name) {
            headers.append(name, value);
        }
    }
    Ok(headers)
}

fn failed(error: FetchError) -> HttpError {
    HttpError::Failed(match error {
        FetchError::Private(host) => format!(
            "{host} is on this machine or in a private network; allow_private_urls in [exec] would allow it"
        ),
        error @ (FetchError::InvalidUrl
        | FetchError::Redirects
        | FetchError::Status(_)
        | FetchError::TooLarge(_)
        | FetchError::Slow
        | FetchError::Failed(_)) => error.to_string(),
    })
}

impl HttpClient for ExecutorHttp {
    fn send(&self, request: HttpRequest) -> BoxFuture<'_, HttpAnswer> {
        Box::pin(async {
            let response = self.follow(request).await?;
            let headers = response.headers().iter();
            let headers = headers.map(|(name, value)| {
                (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            });
            let (status, headers) = (response.status().as_u16(), headers.collect());
            let body: Box<dyn HttpBody> = Box::new(ResponseBody(response));
            Ok((HttpReply { status, headers, body: Vec::new() }, body))
        })
    }
}

struct ResponseBody(Response);

impl HttpBody for ResponseBody {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Vec<u8>, String>>> {
        Box::pin(async {
            match self.0.chunk().await {
                Ok(piece) => piece.map(|piece| Ok(piece.to_vec())),
                Err(error) => Some(Err(fetch_error(error).to_string())),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each request with what `answer` makes of its text.
    async fn server(answer: fn(&str, SocketAddr) -> String) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut text = String::new();
                let mut buffer = vec![0; 4096];
                // The requests of these tests end with an empty line or with `!`.
                while !text.ends_with("\r\n\r\n") && !text.ends_with('!')
                    || text.contains("content-length") && !text.ends_with('!')
                {
                    let count = stream.read(&mut buffer).await.unwrap();
                    text.push_str(&String::from_utf8_lossy(&buffer[..count]));
                }
                stream.write_all(answer(&text, address).as_bytes()).await.unwrap();
            }
        });
        address
    }

    fn request(method: &str, url: String) -> HttpRequest {
        HttpRequest {
            id: "r".to_owned(),
            method: method.to_owned(),
            url,
            headers: vec![
                ("authorization".to_owned(), "secret".to_owned()),
                ("x-a".to_owned(), "1".to_owned()),
            ],
            body: if method == "POST" { b"body!".to_vec() } else { Vec::new() },
            time_limit: None,
            follows_redirects: true,
            is_streamed: false,
        }
    }

    fn echo(text: &str, _: SocketAddr) -> String {
        format!(
            "HTTP/1.1 201 Created\r\nx-b: 2\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        )
    }

    async fn answer(client: &ExecutorHttp, request: HttpRequest) -> Result<(HttpReply, String), HttpError> {
        let (reply, mut body) = client.send(request).await?;
        let mut text = Vec::new();
        while let Some(piece) = body.next().await {
            text.extend(piece.unwrap());
        }
        Ok((reply, String::from_utf8(text).unwrap()))
    }

    #[tokio::test]
    async fn a_request_is_sent_as_it_is_and_its_answer_is_returned() {
        let address = server(echo).await;
        let client = ExecutorHttp::new(true);
        let (reply, seen) = answer(&client, request("POST", format!("http://{address}/p?q"))).await.unwrap();
        assert_eq!(reply.status, 201);
        assert!(reply.headers.contains(&("x-b".to_owned(), "2".to_owned())), "{reply:?}");
        assert!(seen.starts_with("POST /p?q HTTP/1.1\r\n") && seen.ends_with("\r\n\r\nbody!"), "{seen}");
        assert!(seen.contains("x-a: 1\r\n") && seen.contains("authorization: secret\r\n"), "{seen}");
    }

    #[tokio::test]
    async fn this_machine_is_refused_whatever_its_spelling() {
        let address = server(echo).await;
        let client = ExecutorHttp::new(false);
        for host in ["localhost", "127.0.0.1", "2130706433", "[::ffff:127.0.0.1]"] {
            let refused = answer(&client, request("GET", format!("http://{host}:{}/", address.port()))).await;
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("allow_private_urls in [exec]"), "{host}: {text}");
        }
    }

    #[tokio::test]
    async fn redirects_are_followed_if_the_client_wants_it_and_lose_their_secrets_elsewhere() {
        fn redirecting(text: &str, address: SocketAddr) -> String {
            match text.contains("/first") {
                true => format!(
                    "HTTP/1.1 302 Found\r\nlocation: http://localhost:{}/second\r\ncontent-length: 0\r\n\
                     connection: close\r\n\r\n",
                    address.port()
                ),
                false => echo(text, address),
            }
        }
        let address = server(redirecting).await;
        let client = ExecutorHttp::new(true);
        let first = request("POST", format!("http://{address}/first"));
        let (reply, seen) = answer(&client, first.clone()).await.unwrap();
        assert_eq!(reply.status, 201);
        assert!(
            seen.starts_with("GET /second ") && !seen.contains("secret") && !seen.contains("body!"),
            "{seen}"
        );
        let (reply, _) = answer(&client, HttpRequest { follows_redirects: false, ..first }).await.unwrap();
        assert_eq!(reply.status, 302);

        // A redirect leads to this machine only if the settings allow it.
        let only_first =
            ExecutorHttp { client: OnceLock::new(), is_allowed: |ip| ip == IpAddr::from([127, 0, 0, 9]) };
        let refused = answer(&only_first, request("GET", format!("http://{address}/first"))).await;
        assert!(matches!(refused, Err(HttpError::Failed(_))), "{refused:?}");
    }

    #[tokio::test]
    async fn invalid_requests_are_refused() {
        let client = ExecutorHttp::new(true);
        let mut bad_header = request("GET", "http://localhost/".to_owned());
        bad_header.headers.push(("a b".to_owned(), String::new()));
        for invalid in [
            request("GET", "ftp://a/".to_owned()),
            request("GET", "nonsense".to_owned()),
            request("G T", "http://localhost/".to_owned()),
            bad_header,
        ] {
            let refused = answer(&client, invalid.clone()).await;
            assert!(matches!(refused, Err(HttpError::Invalid(_))), "{invalid:?}: {refused:?}");
        }
    }
}
