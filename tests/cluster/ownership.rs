//! Sessions that one node has open and clients of others use: messages, live text, stops, and who may open what.

use crate::client::Client;
use crate::node::{Database, NodeHome};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_all_nodes_are_in_one_session_wherever_it_runs() {
    let database = Database::new().await;
    let homes = ["a", "b", "c"].map(|name| NodeHome::of_cluster(&database, name, ""));
    let [a, b, c] = homes.each_ref().map(|home| home.serve(&[]));
    let mut at_b = Client::open(&b, "s").await;
    at_b.send("/wait 600").await;
    at_b.event("run.started").await;
    // The run is that of node b; its text is seen elsewhere while it is written, and it is stopped from elsewhere.
    let mut at_a = Client::open(&a, "s").await;
    let mut at_c = Client::open(&c, "s").await;
    at_a.frame("message.delta").await;
    at_c.frame("message.delta").await;
    at_c.frame("message.delta").await;
    at_a.stop().await;
    for client in [&mut at_a, &mut at_b, &mut at_c] {
        assert_eq!(client.event("run.failed").await.data["error_code"], "RUN_CANCELLED");
    }
    at_a.send("/say hello from a").await;
    for client in [&mut at_a, &mut at_b, &mut at_c] {
        assert_eq!(client.event("message.completed").await.data["text"], "hello from a");
        client.event("run.completed").await;
    }
    // Node b still has the session, and nobody else does.
    let nodes = homes[0].prints(&["nodes", "--json"]);
    let sessions = |line: &str| {
        let node: serde_json::Value = serde_json::from_str(line).unwrap();
        (node["node"].as_str().unwrap().to_owned(), node["sessions"].as_u64().unwrap())
    };
    let sessions: Vec<_> = nodes.lines().map(sessions).collect();
    assert_eq!(sessions, [("a".to_owned(), 0), ("b".to_owned(), 1), ("c".to_owned(), 0)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_opened_only_by_nodes_that_have_its_files() {
    let database = Database::new().await;
    let one = NodeHome::of_cluster(&database, "a", "workspace = \"one\"");
    let two = NodeHome::of_cluster(&database, "b", "workspace = \"two\"");
    let a = one.serve(&[]);
    let mut b = two.serve(&[]);
    let mut at_b = Client::open(&b, "s").await;
    at_b.send("/say first").await;
    at_b.event("run.completed").await;
    // Nobody has the session open after a restart. The message goes to a node that may open it.
    assert!(b.stop().success());
    let mut b = two.serve(&[]);
    let mut at_a = Client::open(&a, "s").await;
    at_a.send("!pwd").await;
    let output = format!("{:?}", at_a.event("tool.completed").await.data);
    assert!(output.contains(two.path().to_str().unwrap()), "{output}");
    at_a.event("run.completed").await;
    assert!(b.stop().success());
    at_a.send("/say nobody").await;
    let refused = format!("{:?}", at_a.event("run.failed").await.data);
    assert!(refused.contains("workspace") && refused.contains("two"), "{refused}");
}
