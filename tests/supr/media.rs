//! Media files: their size limit, where the server stores them, downloads from URLs, and `/api/media`.

use std::net::SocketAddr;

use parlor_doors::supr::MAX_MEDIA_BYTES;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::client::Client;
use crate::server::Server;

fn max_media_bytes() -> usize {
    usize::try_from(MAX_MEDIA_BYTES).unwrap()
}

/// Sends a media message and returns the first frame of its outcome: an error, or the start of a run.
async fn outcome(client: &mut Client, payload: Value) -> Value {
    client.send(&json!({"type": "media.send", "payload": payload})).await;
    loop {
        let frame = client.next().await.unwrap();
        if frame["type"] == "error" || frame["event_type"] == "run.started" {
            return frame;
        }
    }
}

#[tokio::test]
async fn a_file_of_25_mib_is_accepted_and_one_byte_more_is_refused() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    let data = |size: usize| base64_simd::STANDARD.encode_to_string(vec![7; size]);
    let accepted = outcome(&mut client, json!({"data": data(max_media_bytes())})).await;
    assert_eq!(accepted["data"]["input"]["media"][0]["size"], MAX_MEDIA_BYTES, "{accepted}");
    client.until("run.completed").await;
    let refused = outcome(&mut client, json!({"data": data(max_media_bytes() + 1)})).await;
    assert_eq!(refused["payload"]["code"], "media_write_failed");
    assert_eq!(refused["payload"]["message"], "media payload exceeds maximum allowed size");
}

#[tokio::test]
async fn files_are_stored_in_the_media_folder_whatever_their_name() {
    let server = Server::start();
    let before = files(&server);
    let mut client = Client::connect(server.http, "session_id=a").await;
    for name in
        ["../../stray-media", "/tmp/stray-media", "..", "a\\..\\stray-media", "media/../../stray-media"]
    {
        let accepted = outcome(&mut client, json!({"data": "aGk=", "filename": name})).await;
        assert_eq!(accepted["event_type"], "run.started", "{accepted}");
        client.until("run.completed").await;
    }
    let new: Vec<String> = files(&server).into_iter().filter(|file| !before.contains(file)).collect();
    let elsewhere: Vec<&String> =
        new.iter().filter(|file| !file.starts_with("media") && !file.starts_with("parlor.db")).collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
    assert!(!server.home.parent().unwrap().join("stray-media").exists());
}

#[tokio::test]
async fn the_files_of_a_refused_message_do_not_stay() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    let stored = || std::fs::read_dir(server.home.join("media")).unwrap().count();
    let second_is_bad = json!({"attachments": [{"data": "aGk="}, {"data": "*"}]});
    assert_eq!(outcome(&mut client, second_is_bad).await["payload"]["code"], "media_write_failed");
    // The next frame is carried out after the files are removed.
    outcome(&mut client, json!({"data": "aGV5"})).await;
    assert_eq!(stored(), 1);
    client.until("run.completed").await;
    // A file that an accepted message has stays.
    let second_is_bad = json!({"attachments": [{"data": "aGV5"}, {"data": "*"}]});
    assert_eq!(outcome(&mut client, second_is_bad).await["payload"]["code"], "media_write_failed");
    outcome(&mut client, json!({"data": "aG8="})).await;
    assert_eq!(stored(), 2);
}

/// The names of the entries of the state folder.
fn files(server: &Server) -> Vec<String> {
    let entries = std::fs::read_dir(&server.home).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A web server that answers `/size/N` with N bytes, `/endless` for ever, and all else with 404.
async fn web_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let count = stream.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..count]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let ok = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
                if let Some(size) = path.strip_prefix("/size/").and_then(|size| size.parse::<usize>().ok()) {
                    let head = format!("{ok}Content-Length: {size}\r\n\r\n");
                    let _ = stream.write_all(head.as_bytes()).await;
                    let _ = stream.write_all(&vec![7; size]).await;
                } else if path == "/endless" {
                    let _ = stream.write_all(format!("{ok}\r\n").as_bytes()).await;
                    while stream.write_all(&[7; 65536]).await.is_ok() {}
                } else {
                    let _ = stream.write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n").await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn downloads_have_the_same_limit_when_private_urls_are_allowed() {
    let server = Server::with("allow_private_urls = true");
    let web = web_server().await;
    let mut client = Client::connect(server.http, "session_id=a").await;
    for (path, expected) in [
        (format!("size/{}", max_media_bytes()), Ok(MAX_MEDIA_BYTES)),
        ("size/2".to_owned(), Ok(2)),
        (format!("size/{}", max_media_bytes() + 1), Err("media payload exceeds maximum allowed size")),
        ("endless".to_owned(), Err("media payload exceeds maximum allowed size")),
        ("nothing".to_owned(), Err("failed to download media from url")),
    ] {
        let frame =
            outcome(&mut client, json!({"url": format!("http://{web}/{path}"), "filename": "f"})).await;
        match expected {
            Ok(size) => {
                assert_eq!(frame["data"]["input"]["media"][0]["size"], size, "{path}: {frame}");
                client.until("run.completed").await;
            }
            Err(message) => assert_eq!(frame["payload"]["message"], message, "{path}: {frame}"),
        }
    }
}

#[tokio::test]
async fn nothing_is_downloaded_from_this_machine_unless_private_urls_are_allowed() {
    let server = Server::start();
    let web = web_server().await;
    let mut client = Client::connect(server.http, "session_id=a").await;
    let frame = outcome(&mut client, json!({"url": format!("http://{web}/size/2")})).await;
    assert_eq!(frame["payload"]["message"], "failed to download media from url");
}

#[tokio::test]
async fn a_sent_file_can_be_downloaded_and_only_images_are_shown_inline() {
    let server = Server::start();
    let mut client = Client::connect(server.http, "session_id=a").await;
    let get = async |id: &str| reqwest::get(format!("http://{}/api/media/{id}", server.http)).await.unwrap();
    let gif = b"GIF89a\x01\0\x01\0\0\0\0;";
    let script = b"<script>alert(1)</script>";
    for (bytes, name, kind, disposition) in [
        (gif.as_slice(), "a.html", "image/gif", "inline"),
        (script.as_slice(), "b.gif", "application/octet-stream", "attachment"),
    ] {
        let data = base64_simd::STANDARD.encode_to_string(bytes);
        let started = outcome(&mut client, json!({"data": data, "filename": name})).await;
        client.until("run.completed").await;
        let answer = get(started["data"]["input"]["media"][0]["id"].as_str().unwrap()).await;
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(
            (header("content-type"), header("content-disposition")),
            (kind.to_owned(), disposition.to_owned())
        );
        assert_eq!(answer.bytes().await.unwrap(), bytes);
    }
    for id in ["..%2Fsupr.json", "none"] {
        assert_eq!(get(id).await.status(), 404, "{id}");
    }
}
