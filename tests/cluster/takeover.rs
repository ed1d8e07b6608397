//! What happens to the sessions of a node that is killed, paused, or asked to end.

use std::path::Path;

use parlor_log::postgres::test_server::TestServer;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::TIMEOUT;
use crate::client::Client;
use crate::node::{Database, NodeHome};
use crate::server::Server;

/// Writes the id of its process into `tool.pid`, and runs for longer than any test.
pub(crate) const LONG_TOOL: &str = "!echo $$ > tool.pid.new; mv tool.pid.new tool.pid; exec sleep 1000";

/// Two nodes, and a session of the second one with an active run and an input that waits.
async fn busy_node(database: &Database, run: &str) -> ([NodeHome; 2], [Server; 2], Client) {
    let homes = ["a", "b"].map(|name| NodeHome::of_cluster(database, name, ""));
    let servers = homes.each_ref().map(|home| home.serve(&[]));
    let mut client = Client::open(&servers[1], "s").await;
    client.send(run).await;
    client.event("run.started").await;
    (homes, servers, client)
}

/// Counts the runs that ended as interrupted in what `parlor replay --json` printed.
fn interruptions(replayed: &str) -> usize {
    let is_end = |line: &&str| line.contains("\"run.ended\"") && line.contains("RUN_INTERRUPTED");
    replayed.lines().filter(is_end).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clients_of_a_killed_node_go_on_elsewhere_without_a_gap() {
    let database = Database::new().await;
    let (_homes, [a, mut b], _at_b) = busy_node(&database, "/wait 600").await;
    let mut at_a = Client::replay(&a, "s").await;
    let interrupted = at_a.event("run.started").await.run_id;
    at_a.send("/say it goes on").await;
    // The message waits at the other node when that is killed.
    at_a.frame("run.queued").await;
    b.kill();
    let failed = at_a.event("run.failed").await;
    assert_eq!((failed.run_id, &failed.data["error_code"]), (interrupted, &"RUN_INTERRUPTED".into()));
    at_a.event("run.started").await;
    assert_eq!(at_a.event("message.completed").await.data["text"], "it goes on");
    at_a.event("run.completed").await;
    assert_eq!(at_a.count("run.failed"), 1);
    // A client that begins later sees the same events.
    let mut later = Client::replay(&a, "s").await;
    later.event("run.completed").await;
    assert_eq!(later.event_ids(), at_a.event_ids());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_nobody_watches_is_taken_over_too() {
    let database = Database::new().await;
    let (homes, [_a, mut b], mut at_b) = busy_node(&database, "/wait 600").await;
    at_b.send("/say what waited").await;
    at_b.frame("run.queued").await;
    b.kill();
    let replayed = homes[0].wait_for_replay("s", "\"ending\":\"completed\"").await;
    assert!(replayed.contains("what waited"), "{replayed}");
    assert_eq!(interruptions(&replayed), 1, "{replayed}");
}

/// More sessions than are taken over at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_cannot_be_read_does_not_keep_the_others_from_being_taken_over() {
    let database = Database::new().await;
    let (homes, [_a, mut b], _at_b) = busy_node(&database, "/wait 600").await;
    let mut clients = Vec::new();
    for number in 0..12 {
        let mut client = Client::open(&b, &format!("s{number}")).await;
        client.send("/wait 600").await;
        client.event("run.started").await;
        clients.push(client);
    }
    let events = TestServer::shared().client(database.url.rsplit('/').next().unwrap()).await;
    // As if a newer parlor had written them.
    let changed = events.execute("UPDATE events SET version = 999 WHERE session = 's'", &[]).await.unwrap();
    assert!(changed > 0);
    b.kill();
    for number in 0..12 {
        let replayed = homes[0].wait_for_replay(&format!("s{number}"), "RUN_INTERRUPTED").await;
        assert_eq!(interruptions(&replayed), 1, "{replayed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_ends_hands_over_what_waits() {
    let database = Database::new().await;
    let (homes, [_a, mut b], mut at_b) = busy_node(&database, "/wait 600").await;
    at_b.send("/say what waited").await;
    at_b.frame("run.queued").await;
    assert!(b.stop().success());
    let replayed = homes[0].wait_for_replay("s", "\"ending\":\"completed\"").await;
    assert!(replayed.contains("what waited"), "{replayed}");
    // The node recorded the end of its run itself.
    assert_eq!(interruptions(&replayed), 0, "{replayed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_paused_for_too_long_ends_its_tools_and_writes_nothing() {
    let database = Database::new().await;
    let (homes, [a, b], _at_b) = busy_node(&database, LONG_TOOL).await;
    let tool = wait_for_pid(&homes[1].path().join("tool.pid")).await;
    let node = Pid::from_raw(b.pid().try_into().unwrap()).unwrap();
    kill_process(node, Signal::STOP).unwrap();
    let mut at_a = Client::replay(&a, "s").await;
    let failed = at_a.event("run.failed").await;
    assert_eq!(failed.data["error_code"], "RUN_INTERRUPTED");
    assert!(test_kill_process(tool).is_ok(), "a paused node cannot end its tool");
    kill_process(node, Signal::CONT).unwrap();
    wait_for_end(tool).await;
    // The node that was paused follows what the other writes, and its client is not disconnected.
    let mut at_b = Client::open(&b, "s").await;
    at_b.send("/say again").await;
    assert_eq!(at_b.event("message.completed").await.data["text"], "again");
    let replayed = homes[0].prints(&["replay", "s", "--json"]);
    assert_eq!(interruptions(&replayed), 1, "{replayed}");
    assert_eq!(replayed.matches("\"run.ended\"").count(), 2, "{replayed}");
}

pub(crate) async fn wait_for_end(process: Pid) {
    let ended = async {
        while test_kill_process(process).is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, ended).await.expect("the tool's process ends");
}

/// The process whose id a tool writes into this file.
pub(crate) async fn wait_for_pid(file: &Path) -> Pid {
    let found = async {
        loop {
            if let Ok(text) = std::fs::read_to_string(file) {
                return Pid::from_raw(text.trim().parse().unwrap()).unwrap();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, found).await.expect("the tool starts")
}

/// Commits wait for a standby of this name; an empty one is none.
async fn set_standby(postgres: &TestServer, name: &str) {
    postgres.execute("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'")).await;
    postgres.execute("postgres", "SELECT pg_reload_conf()").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_a_killed_node_recorded_and_did_not_answer_runs_once() {
    let postgres = TestServer::start("");
    let database = Database::on(&postgres).await;
    // It writes no text, which the node would keep with the same statement as events.
    let (homes, [a, mut b], _at_b) = busy_node(&database, "!exec sleep 1000").await;
    let mut at_a = Client::replay(&a, "s").await;
    let interrupted = at_a.event("run.started").await.run_id;
    // From now on, what is recorded is not acknowledged: the commit waits.
    set_standby(&postgres, "nobody").await;
    at_a.send("/say only once").await;
    let sql =
        "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '/* Appends events. */%'";
    let observer = postgres.client("postgres").await;
    let recorded = async {
        while observer.query(sql, &[]).await.unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, recorded).await.expect("the message is recorded");
    b.kill();
    set_standby(&postgres, "").await;
    // The node of the client does not know whether the lost one recorded it. The next owner does.
    let failed = at_a.event("run.failed").await;
    assert_eq!((failed.run_id, &failed.data["error_code"]), (interrupted, &"RUN_INTERRUPTED".into()));
    assert_eq!(at_a.event("message.completed").await.data["text"], "only once");
    at_a.event("run.completed").await;
    at_a.send("/say the end").await;
    assert_eq!(at_a.event("message.completed").await.data["text"], "the end");
    let replayed = homes[0].prints(&["replay", "s", "--json"]);
    assert_eq!(replayed.matches("\"run.started\"").count(), 3, "{replayed}");
    assert_eq!(at_a.count("run.failed"), 1);
}
