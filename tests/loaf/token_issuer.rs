//! An OAuth token issuer on this machine whose answers each test defines. `tests/auth` logs in to a real one.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The status and body with which the token endpoint answers: arguments are the form and the number of earlier requests.
type TokenEndpoint = Arc<dyn Fn(&str, usize) -> (u16, Value) + Send + Sync>;

/// An issuer that runs until it is dropped.
pub(crate) struct TokenIssuer {
    address: String,
    task: JoinHandle<()>,
}

impl TokenIssuer {
    /// Starts an issuer with this token endpoint, see [`TokenEndpoint`].
    pub(crate) async fn start(
        token_endpoint: impl Fn(&str, usize) -> (u16, Value) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let token_endpoint: TokenEndpoint = Arc::new(token_endpoint);
        let base = address.clone();
        let task = tokio::spawn(async move {
            let mut token_requests = 0;
            while let Ok((stream, _)) = listener.accept().await {
                token_requests = serve(stream, &base, &token_endpoint, token_requests).await;
            }
        });
        Self { address, task }
    }

    /// Settings with which the logins of both providers use this issuer.
    pub(crate) fn settings(&self) -> String {
        let base = &self.address;
        ["openai", "antigravity"]
            .map(|name| {
                format!(
                    "[auth.{name}]\nclient_id = \"us\"\nauthorize_url = \"{base}/authorize\"\n\
                     token_url = \"{base}/token\"\ndevice_url = \"{base}/device\"\nscopes = [\"openid\"]\n"
                )
            })
            .concat()
    }
}

impl Drop for TokenIssuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The answer of a token endpoint with an ID token that has these claims.
pub(crate) fn token(claims: &Value) -> Value {
    let claims = base64_simd::URL_SAFE_NO_PAD.encode_to_string(claims.to_string());
    json!({"access_token": "access-s3cret", "refresh_token": "refresh-s3cret", "token_type": "bearer",
           "expires_in": 3600, "id_token": format!("e30.{claims}.sig")})
}

/// Serves one request, and returns the new number of requests to the token endpoint.
async fn serve(
    stream: TcpStream,
    base: &str,
    token_endpoint: &TokenEndpoint,
    token_requests: usize,
) -> usize {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    if stream.read_exact(&mut body).await.is_err() {
        return token_requests;
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    let is_token = head.starts_with("POST /token");
    let (status, answer) = if is_token {
        token_endpoint(&body, token_requests)
    } else {
        let answer = json!({"device_code": "dc", "user_code": "ABCD-EFGH", "verification_uri": format!("{base}/enter"),
                            "interval": 1, "expires_in": 900});
        (200, answer)
    };
    let answer = answer.to_string();
    let response = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    );
    let _ = stream.get_mut().write_all(response.as_bytes()).await;
    token_requests + usize::from(is_token)
}
