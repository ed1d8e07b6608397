//! The token of the supr door, which all nodes share.

use crate::TIMEOUT;
use crate::node::{Database, NodeHome};
use crate::server::Server;

/// The status that a node answers with to a client that shows this token.
async fn status(server: &Server, token: &str) -> u16 {
    let url = format!("http://{}/api/sessions", server.http);
    let request = reqwest::Client::new().get(url).bearer_auth(token);
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_replaced_at_one_node_is_replaced_at_all() {
    let database = Database::new().await;
    // Without this, local clients need no token.
    let settings = "[serve]\nallow_local = \"token\"";
    let homes = ["a", "b"].map(|name| NodeHome::of_cluster(&database, name, settings));
    let servers = homes.each_ref().map(NodeHome::serve_with_own_token);
    let token = |home: &NodeHome, args: &[&str]| home.prints(args).trim().to_owned();
    let old = token(&homes[0], &["token"]);
    assert_eq!(token(&homes[1], &["token"]), old);
    for server in &servers {
        assert_eq!(status(server, &old).await, 200);
    }
    let new = token(&homes[0], &["token", "--rotate"]);
    assert_ne!(new, old);
    assert_eq!(token(&homes[1], &["token"]), new);
    let replaced = async {
        for server in &servers {
            while (status(server, &new).await, status(server, &old).await) != (200, 401) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, replaced)
        .await
        .expect("the new token is valid everywhere, and the old one nowhere");
}
