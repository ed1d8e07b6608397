//! `parlor token` while a server runs.

use crate::client::{Client, Ended};
use crate::server::{Server, TOKEN, command};

#[tokio::test]
async fn the_command_closes_sockets_that_have_the_old_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = serde_json::json!({"token": TOKEN});
    std::fs::write(folder.path().join("supr.json"), file.to_string()).unwrap();
    // The command cannot replace a token that is set by a variable.
    let mut serve = command(folder.path());
    serve.env_remove("SUPRCLAW_CHANNELS_SUPR_TOKEN");
    let server = Server::spawn(serve, folder.path()).unwrap();
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.ping().await;
    let printed = server.prints(&["token", "--rotate", "--evict"]);
    assert_ne!(printed.trim(), TOKEN);
    assert_eq!(client.ended().await, Ended::Closed(4002, "the token was replaced".to_owned()));
}
