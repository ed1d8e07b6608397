//! `model.openrouter.providers`, against a router on this machine whose answers each test defines.

use parlor_model::provider::MAX_ROUTES_BYTES;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::server::{Home, Server};

/// Starts a router that answers each request by its path until the test ends, and returns settings that use it.
async fn router(respond: impl Fn(&str) -> (u16, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/api/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            let (mut head, mut line) = (String::new(), String::new());
            while stream.read_line(&mut line).await.unwrap_or(0) > 0 && line != "\r\n" {
                head.push_str(&std::mem::take(&mut line));
            }
            assert!(
                !head.to_lowercase().contains("authorization"),
                "this request must not send the key: {head}"
            );
            let (status, body) = respond(head.split(' ').nth(1).unwrap_or_default());
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            // The client closes the connection when a response is too large.
            let _ = stream.get_mut().write_all(answer.as_bytes()).await;
        }
    });
    format!("[models.routed]\nprovider = \"openrouter\"\nmodel = \"a/b\"\nbase_url = \"{base}\"\n")
}

async fn server_with_key(settings: &str) -> (Home, Server) {
    let home = Home::with(settings);
    let mut server = home.server().await;
    server.call("auth.set.openrouter_key", json!({"api_key": "s3cret"})).await;
    (home, server)
}

/// The code, the reason and the message of an error.
fn parts(error: &Value) -> (i64, &str, &str) {
    let message = error["message"].as_str().unwrap_or_default();
    (error["code"].as_i64().unwrap(), error["data"]["reason"].as_str().unwrap_or_default(), message)
}

#[tokio::test]
async fn the_providers_of_a_model_are_normalized_and_sorted() {
    let settings = router(|path| {
        assert_eq!(path, "/api/v1/models/some/model:free/endpoints");
        let names = ["Open_AI", "Google Vertex", "azure", "Azure"];
        let endpoints: Vec<Value> = names.iter().map(|name| json!({"provider_name": name, "x": 1})).collect();
        (200, json!({"data": {"id": "some/model", "endpoints": endpoints}}).to_string())
    });
    let (_home, mut server) = server_with_key(&settings.await).await;
    let result = server.call("model.openrouter.providers", json!({"model_id": " some/model:free "})).await;
    let providers = json!(["azure", "google-vertex", "open-ai"]);
    assert_eq!(result, json!({"model_id": "some/model:free", "providers": providers}));
}

#[tokio::test]
async fn errors_of_the_router_are_reported() {
    let settings = router(|path| match path {
        "/api/v1/models/no/model/endpoints" => (404, "{}".to_owned()),
        "/api/v1/models/bad/gateway/endpoints" => (502, "oops".to_owned()),
        "/api/v1/models/no/json/endpoints" => (200, "oops".to_owned()),
        _ => (200, " ".repeat(MAX_ROUTES_BYTES + 1)),
    });
    let (_home, mut server) = server_with_key(&settings.await).await;
    for (model, expected) in [
        ("no/model", "it does not know this model"),
        ("bad/gateway", "it answers with status 502"),
        ("no/json", "its response cannot be parsed"),
        ("too/much", "its response is larger than"),
    ] {
        let error = server.call_error("model.openrouter.providers", json!({"model_id": model})).await;
        let (code, reason, message) = parts(&error);
        assert_eq!((code, reason), (-32603, "provider_error"));
        assert!(message.contains(expected) && message.contains(model), "{message}");
        assert!(!message.contains("s3cret"), "{message}");
    }
}
