//! What nodes see of each other: their list, the sessions of dead ones, workspaces, and values that they share.

use parlor_log::{Announcement, EventLog, LogError, PostgresLog, PostgresOptions};
use parlor_vocab::Seq;

use super::{Database, in_time, new_entry, open, quick_options, session};

fn options(database: &Database, node: &str, workspace: &str) -> PostgresOptions {
    PostgresOptions { workspace: Some(workspace.to_owned()), ..quick_options(&database.url(), node) }
}

async fn create(log: &PostgresLog, name: &str) {
    let lease = log.acquire(&session(name)).await.unwrap();
    log.append(&lease, Seq::START, &[new_entry("1")]).await.unwrap();
    log.release(lease).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_nodes_of_its_workspace_lease_a_session() {
    in_time(async {
        let database = Database::create().await;
        let one = open(options(&database, "a", "one")).await;
        let (two, also_one) =
            (open(options(&database, "b", "two")).await, open(options(&database, "c", "one")).await);
        let any = open(quick_options(&database.url(), "d")).await;
        create(&one, "s").await;
        create(&any, "free").await;
        let refused = two.acquire(&session("s")).await.unwrap_err();
        assert!(
            matches!(&refused, LogError::OtherWorkspace { workspace, .. } if workspace == "one"),
            "{refused}"
        );
        for log in [&also_one, &any] {
            let lease = log.acquire(&session("s")).await.unwrap();
            // Who holds it matters more than who might.
            assert!(matches!(two.acquire(&session("s")).await, Err(LogError::Held { .. })));
            log.release(lease).await.unwrap();
        }
        two.release(two.acquire(&session("free")).await.unwrap()).await.unwrap();
        two.release(two.acquire(&session("new")).await.unwrap()).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_dead_nodes_and_abandoned_ones_are_orphans_of_their_workspace() {
    in_time(async {
        let database = Database::create().await;
        let (here, elsewhere) =
            (open(options(&database, "a", "one")).await, open(options(&database, "b", "two")).await);
        let dead = open(options(&database, "c", "one")).await;
        for name in ["abandoned", "kept", "released"] {
            create(&dead, name).await;
        }
        dead.abandon(dead.acquire(&session("abandoned")).await.unwrap()).await.unwrap();
        dead.release(dead.acquire(&session("released")).await.unwrap()).await.unwrap();
        let kept = dead.acquire(&session("kept")).await.unwrap();
        assert_eq!(here.orphans().await.unwrap(), [session("abandoned")]);
        // A closed log leaves its leases, as a killed process does.
        dead.close().await;
        let mut orphans = here.orphans().await.unwrap();
        orphans.sort();
        assert_eq!(orphans, [session("abandoned"), session("kept")]);
        assert!(elsewhere.orphans().await.unwrap().is_empty());
        drop(kept);
        for orphan in orphans {
            here.release(here.acquire(&orphan).await.unwrap()).await.unwrap();
        }
        assert!(here.orphans().await.unwrap().is_empty());
    })
    .await;
}

/// Opening a session can fail or be cancelled after the lease was acquired, and the session may have a run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_of_a_dropped_lease_is_an_orphan_and_free() {
    in_time(async {
        let database = Database::create().await;
        let (a, b) = (open(options(&database, "a", "one")).await, open(options(&database, "b", "one")).await);
        create(&a, "s").await;
        drop(a.acquire(&session("s")).await.unwrap());
        // The writer carries requests out in their order.
        create(&a, "later").await;
        assert_eq!(b.orphans().await.unwrap(), [session("s")]);
        b.release(b.acquire(&session("s")).await.unwrap()).await.unwrap();
        assert!(b.orphans().await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_others_reach_are_listed_with_their_sessions() {
    in_time(async {
        let database = Database::create().await;
        let (log, unseen) =
            (open(options(&database, "a", "one")).await, open(options(&database, "b", "two")).await);
        let announcement =
            Announcement { version: Some("1.2".to_owned()), address: Some("tcp:x".to_owned()) };
        log.announce(announcement.clone()).await.unwrap();
        create(&log, "s").await;
        let _lease = log.acquire(&session("s")).await.unwrap();
        let nodes = unseen.nodes().await.unwrap();
        let [node] = &nodes[..] else { panic!("{nodes:?}") };
        assert_eq!((node.node.as_str(), node.workspace.as_deref()), ("a", Some("one")));
        assert_eq!(
            (&node.announcement, node.is_alive, node.sessions, node.runs),
            (&announcement, true, 1, 0)
        );
        assert_eq!(node.pid, std::process::id());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_value_is_created_once_and_replaced_by_whoever_knows_it() {
    in_time(async {
        let database = Database::create().await;
        let (a, b) = (open(options(&database, "a", "one")).await, open(options(&database, "b", "one")).await);
        assert_eq!(a.shared_value("x").await.unwrap(), None);
        let (first, second) =
            tokio::join!(a.create_shared_value("x", b"a"), b.create_shared_value("x", b"b"));
        let value = first.unwrap();
        assert_eq!(second.unwrap(), value);
        assert!(!a.replace_shared_value("x", b"wrong", b"new").await.unwrap());
        assert!(a.replace_shared_value("x", &value, b"new").await.unwrap());
        // The answer to the first attempt may have been lost.
        assert!(a.replace_shared_value("x", &value, b"new").await.unwrap());
        assert_eq!(b.shared_value("x").await.unwrap().as_deref(), Some(&b"new"[..]));
    })
    .await;
}
