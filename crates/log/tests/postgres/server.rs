//! A server that goes away and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parlor_log::postgres::test_server::TestServer;
use parlor_log::{EventLog, LogError, PostgresOptions};
use parlor_vocab::Seq;
use tokio::task::block_in_place;

use super::{POLL_INTERVAL, acquire_when_free, ids, in_time, new_entry, open, quick_options, session};

/// The process gives up its leases in time, says so, and goes on by itself when the server is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_goes_on_when_the_server_is_back() {
    in_time(async {
        let server = block_in_place(|| TestServer::start(""));
        let database = server.new_database().await;
        let log = open(quick_options(&server.url(&database), "a")).await;
        let lease = log.acquire(&session("s")).await.unwrap();
        log.append(&lease, Seq::START, &[new_entry("before")]).await.unwrap();
        let mut lost = log.lost(&lease);
        let mut head = log.head(&session("s"));
        block_in_place(|| server.kill());
        let failed = log.append(&lease, Seq(1), &[new_entry("during")]).await;
        assert!(matches!(failed, Err(LogError::Unavailable { .. })), "{failed:?}");
        lost.wait_for(|is_lost| *is_lost).await.unwrap();
        let refused = log.append(&lease, Seq(1), &[new_entry("during")]).await;
        assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
        for failed in [
            log.acquire(&session("t")).await.map(|_| ()),
            log.session(&session("s")).await.map(|_| ()),
            log.check().await,
        ] {
            assert!(matches!(failed, Err(LogError::Unavailable { .. })), "{failed:?}");
        }
        block_in_place(|| server.restart());
        let lease = acquire_when_free(&log, "s").await;
        log.append(&lease, Seq(1), &[new_entry("after")]).await.unwrap();
        log.check().await.unwrap();
        assert_eq!(ids(&log, "s").await, ["before", "after"]);
        head.wait_for(|head| *head == Seq(2)).await.unwrap();
    })
    .await;
}

/// A primary that is killed while sessions append, and its synchronous standby that is promoted: no append fails, nothing
/// acknowledged is lost, nothing is there twice, and followers go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_go_on_when_a_standby_is_promoted() {
    const SESSIONS: usize = 4;
    in_time(async {
        let primary = block_in_place(|| TestServer::start(""));
        let standby = block_in_place(|| primary.start_standby());
        let database = primary.new_database().await;
        primary.execute("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'standby'").await;
        primary.execute("postgres", "SELECT pg_reload_conf()").await;
        let client = primary.client("postgres").await;
        let sql = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";
        while client.query(sql, &[]).await.unwrap().is_empty() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), standby.port());
        let options = |node| PostgresOptions::new(format!("postgres://parlor@{hosts}/{database}"), node);
        let (log, other) = (Arc::new(open(options("a")).await), open(options("b")).await);
        let appended = Arc::new(AtomicUsize::new(0));
        let is_promoted = Arc::new(AtomicUsize::new(usize::MAX));
        let mut appenders = tokio::task::JoinSet::new();
        let mut heads = Vec::new();
        for number in 0..SESSIONS {
            let name = format!("s{number}");
            heads.push(other.head(&session(&name)));
            let (log, appended, last) = (Arc::clone(&log), Arc::clone(&appended), Arc::clone(&is_promoted));
            appenders.spawn(async move {
                let lease = log.acquire(&session(&name)).await.unwrap();
                let (mut head, mut acknowledged) = (Seq::START, Vec::new());
                while appended.load(Ordering::SeqCst) < last.load(Ordering::SeqCst) {
                    let id = format!("e{}", acknowledged.len());
                    head = log.append(&lease, head, &[new_entry(&id)]).await.unwrap();
                    acknowledged.push(id);
                    appended.fetch_add(1, Ordering::SeqCst);
                }
                (name, acknowledged)
            });
        }
        while appended.load(Ordering::SeqCst) < 100 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        block_in_place(|| primary.kill());
        let before = appended.load(Ordering::SeqCst);
        block_in_place(|| standby.promote());
        is_promoted.store(before + 100, Ordering::SeqCst);
        let mut finished = appenders.join_all().await;
        finished.sort();
        for ((name, acknowledged), mut head) in finished.into_iter().zip(heads) {
            head.wait_for(|head| head.0 == acknowledged.len() as u64).await.unwrap();
            assert_eq!(ids(&other, &name).await, acknowledged, "{name}");
        }
    })
    .await;
}
