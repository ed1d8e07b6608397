//! The peer door between nodes: who may open it, and who may use it.

use std::os::unix::fs::PermissionsExt;

use crate::client::Client;
use crate::node::{Database, NodeHome};

pub(crate) fn write_secret(home: &NodeHome, secret: &str) {
    let file = home.path().join("cluster.key");
    std::fs::write(&file, secret).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_different_secrets_refuse_each_other() {
    let database = Database::new().await;
    let homes = ["a", "b", "c"].map(|name| {
        let home = NodeHome::of_cluster(&database, name, "secret_file = \"cluster.key\"");
        write_secret(&home, &"the secret of a and c".repeat(2));
        home
    });
    write_secret(&homes[1], &"another secret".repeat(3));
    let [a, b, c] = homes.each_ref().map(|home| home.serve(&[]));
    let mut at_a = Client::open(&a, "s").await;
    at_a.send("/say hello").await;
    at_a.event("run.completed").await;
    let mut at_c = Client::open(&c, "s").await;
    at_c.send("/say from c").await;
    assert_eq!(at_c.event("message.completed").await.data["text"], "from c");
    let mut at_b = Client::open(&b, "s").await;
    at_b.send("/say from b").await;
    let refused = format!("{:?}", at_b.event("run.failed").await.data);
    assert!(refused.contains("on node a") && refused.contains("another cluster secret"), "{refused}");
    assert!(!homes[0].prints(&["replay", "s"]).contains("from b"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_does_not_listen_beyond_loopback_without_a_secret() {
    let database = Database::new().await;
    let serve = ["serve", "--listen", "127.0.0.1:0", "--no-supex"];
    let open = NodeHome::of_cluster(&database, "a", "listen = \"192.0.2.1:0\"");
    let refused = open.run(&serve);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("[cluster] secret_file"), "{text}");
    let weak = NodeHome::of_cluster(&database, "a", "secret_file = \"cluster.key\"");
    write_secret(&weak, "guess me");
    let refused = weak.run(&serve);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("can be guessed"), "{text}");
    assert!(!text.contains("guess me"), "{text}");
}
