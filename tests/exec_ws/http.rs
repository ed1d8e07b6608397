//! HTTP requests of clients: streamed bodies, and the setting that allows this machine.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::client::Client;
use crate::server::Server;

/// Answers a request, waits until `go` is notified, and ends the body.
async fn serve(listener: TcpListener, go: std::sync::Arc<tokio::sync::Notify>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = vec![0; 4096];
        let _ = stream.read(&mut request).await;
        let head = "HTTP/1.1 200 OK\r\nx-test: yes\r\nconnection: close\r\n\r\nfirst";
        stream.write_all(head.as_bytes()).await.unwrap();
        go.notified().await;
        stream.write_all(b" second").await.unwrap();
    }
}

fn text(params: &Value) -> String {
    let bytes = base64_simd::STANDARD.decode_to_vec(params["deltaBase64"].as_str().unwrap()).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_body_is_streamed_while_other_requests_go_on() {
    let server = Server::with_settings("[exec]\nallow_private_urls = true\n");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let serving = tokio::spawn(serve(listener, std::sync::Arc::clone(&go)));
    let mut client = Client::connect(server.exec).await;
    client.open(None).await.unwrap();
    let params = json!({"method": "GET", "url": url, "requestId": "http-1", "streamResponse": true});
    let reply = client.call("http/request", params.clone()).await.unwrap();
    assert_eq!((&reply["status"], &reply["bodyBase64"]), (&json!(200), &json!("")));
    assert!(reply["headers"].as_array().unwrap().contains(&json!({"name": "x-test", "value": "yes"})));
    assert_eq!(client.call("environment/status", Value::Null).await, Ok(json!({"status": "ready"})));
    assert_eq!(client.call("http/request", params).await, Err(-32602), "the id is in use");
    go.notify_one();
    let (mut body, mut seq) = (String::new(), 0);
    loop {
        let frame = match client.events.is_empty() {
            true => client.frame().await,
            false => client.events.remove(0),
        };
        assert_eq!(frame["method"], "http/request/bodyDelta");
        let params = &frame["params"];
        seq += 1;
        assert_eq!((&params["requestId"], &params["seq"]), (&json!("http-1"), &json!(seq)));
        body.push_str(&text(params));
        if params["done"] == true {
            assert_eq!((params["error"].clone(), text(params)), (Value::Null, String::new()));
            break;
        }
    }
    assert_eq!(body, "first second");
    serving.abort();
}
