//! An issuer of tokens on this machine that says what a test wants. `tests/auth` logs in to a real one.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What the token endpoint says to a form.
type Says = Arc<dyn Fn(&str, usize) -> (u16, Value) + Send + Sync>;

/// An issuer that runs until it is dropped.
pub(crate) struct Issuer {
    address: String,
    task: JoinHandle<()>,
}

impl Issuer {
    /// One whose token endpoint answers the form of its so-manieth question like this.
    pub(crate) async fn start(says: impl Fn(&str, usize) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let says: Says = Arc::new(says);
        let base = address.clone();
        let task = tokio::spawn(async move {
            let mut asked = 0;
            while let Ok((stream, _)) = listener.accept().await {
                asked = serve(stream, &base, &says, asked).await;
            }
        });
        Self { address, task }
    }

    /// Settings with logins to both providers here.
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

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A token for this account.
pub(crate) fn token(claims: &Value) -> Value {
    let claims = base64_simd::URL_SAFE_NO_PAD.encode_to_string(claims.to_string());
    json!({"access_token": "access-s3cret", "refresh_token": "refresh-s3cret", "token_type": "bearer",
           "expires_in": 3600, "id_token": format!("e30.{claims}.sig")})
}

/// Serves one request; counts those of the token endpoint.
async fn serve(stream: TcpStream, base: &str, says: &Says, asked: usize) -> usize {
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
        return asked;
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    let is_token = head.starts_with("POST /token");
    let (status, answer) = if is_token {
        says(&body, asked)
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
    asked + usize::from(is_token)
}
