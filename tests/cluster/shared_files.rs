//! Files that a client attaches at one node, read and deleted at another.

use parlor_log::postgres::test_server::TestServer;

use crate::client::Client;
use crate::node::{Database, NodeHome};
use crate::server::{Server, TOKEN};

fn node(database: &Database) -> NodeHome {
    NodeHome::new(&format!("[log]\nurl = {:?}\n", database.url))
}

async fn download(server: &Server, id: &str) -> reqwest::Response {
    reqwest::Client::new()
        .get(format!("http://{}/api/media/{id}", server.http))
        .bearer_auth(TOKEN)
        .send()
        .await
        .unwrap()
}

/// The number of stored files and pieces.
async fn stored(database: &Database) -> (i64, i64) {
    let client = TestServer::shared().client(database.url.rsplit('/').next().unwrap()).await;
    let sql = "SELECT (SELECT count(*) FROM media_files), (SELECT count(*) FROM media_pieces)";
    let row = client.query_one(sql, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_one_node_is_read_and_deleted_at_another() {
    let database = Database::new().await;
    let (first, second) = (node(&database), node(&database));
    let (mut server, other) = (first.serve(&[]), second.serve(&[]));
    let content: Vec<u8> = (0..700_000_u32).map(|number| (number / 3) as u8).collect();
    let mut client = Client::open(&server, "with-file").await;
    client.send_file(&content, "/say thanks").await;
    let started = client.event("run.started").await;
    client.event("run.completed").await;
    let id = started.data["input"]["media"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(stored(&database).await, (1, 3));
    assert!(!second.path().join("media").exists());
    let answer = download(&other, &id).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.bytes().await.unwrap(), content);
    assert!(second.path().join("media").join(&id).exists(), "the folder is a cache");
    // The session is closed where it was, and deleted elsewhere.
    assert!(server.stop().success());
    second.prints(&["sessions", "delete", "with-file", "--yes"]);
    assert_eq!(stored(&database).await, (0, 0));
    assert_eq!(download(&other, &id).await.status(), 404);
}
