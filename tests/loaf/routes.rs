//! Who runs a model behind a router: asked of a router on this machine that says what a test wants.

use parlor_model::provider::MAX_ROUTES_BYTES;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::server::{Home, Server};

/// A router that answers each request by its path, and the settings with it. It ends with the test.
async fn router(says: impl Fn(&str) -> (u16, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/api/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            let (mut head, mut line) = (String::new(), String::new());
            while stream.read_line(&mut line).await.unwrap_or(0) > 0 && line != "\r\n" {
                head.push_str(&std::mem::take(&mut line));
            }
            assert!(!head.to_lowercase().contains("authorization"), "the key is nobody's business: {head}");
            let (status, body) = says(head.split(' ').nth(1).unwrap_or_default());
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            // One that has heard enough may have gone.
            let _ = stream.get_mut().write_all(answer.as_bytes()).await;
        }
    });
    format!("[models.routed]\nprovider = \"openrouter\"\nmodel = \"a/b\"\nbase_url = \"{base}\"\n")
}

async fn with_key(settings: &str) -> (Home, Server) {
    let home = Home::with(settings);
    let mut server = home.server().await;
    server.call("auth.set.openrouter_key", json!({"api_key": "s3cret"})).await;
    (home, server)
}

fn because(error: &Value) -> (i64, &str, &str) {
    let words = error["message"].as_str().unwrap_or_default();
    (error["code"].as_i64().unwrap(), error["data"]["reason"].as_str().unwrap_or_default(), words)
}

#[tokio::test]
async fn the_router_tells_who_runs_a_model_and_they_are_sorted() {
    let settings = router(|path| {
        assert_eq!(path, "/api/v1/models/some/model:free/endpoints");
        let names = ["Open_AI", "Google Vertex", "azure", "Azure"];
        let endpoints: Vec<Value> = names.iter().map(|name| json!({"provider_name": name, "x": 1})).collect();
        (200, json!({"data": {"id": "some/model", "endpoints": endpoints}}).to_string())
    });
    let (_home, mut server) = with_key(&settings.await).await;
    let told = server.call("model.openrouter.providers", json!({"model_id": " some/model:free "})).await;
    let providers = json!(["azure", "google-vertex", "open-ai"]);
    assert_eq!(told, json!({"model_id": "some/model:free", "providers": providers}));
}

#[tokio::test]
async fn a_router_that_does_not_say_it_is_told_of() {
    let settings = router(|path| match path {
        "/api/v1/models/no/model/endpoints" => (404, "{}".to_owned()),
        "/api/v1/models/bad/gateway/endpoints" => (502, "oops".to_owned()),
        "/api/v1/models/no/json/endpoints" => (200, "oops".to_owned()),
        _ => (200, " ".repeat(MAX_ROUTES_BYTES + 1)),
    });
    let (_home, mut server) = with_key(&settings.await).await;
    for (model, words) in [
        ("no/model", "it does not know this model"),
        ("bad/gateway", "it answers with status 502"),
        ("no/json", "its response cannot be parsed"),
        ("too/much", "its response is larger than"),
    ] {
        let error = server.refused("model.openrouter.providers", json!({"model_id": model})).await;
        let (code, reason, told) = because(&error);
        assert_eq!((code, reason), (-32603, "provider_error"));
        assert!(told.contains(words) && told.contains(model) && !told.contains("s3cret"), "{told}");
    }
}
