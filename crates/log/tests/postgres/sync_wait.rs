//! Commits that wait for a standby, and waits that somebody cancels.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use parlor_log::postgres::test_server::TestServer;
use parlor_log::{Announcement, EventLog, PostgresOptions};
use parlor_vocab::Seq;
use tokio::task::block_in_place;

use super::{POLL_INTERVAL, ids, in_time, new_entry, open, session};

/// Waits until a connection whose statement contains `text` waits for the standby, and returns its process id.
async fn waiting_backend(server: &TestServer, text: &str) -> i32 {
    let client = server.client("postgres").await;
    let sql = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%' || $1 || '%'";
    loop {
        if let Some(row) = client.query(sql, &[&text]).await.unwrap().first() {
            return row.get(0);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn set_standbys(server: &TestServer, names: &str) {
    server.execute("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).await;
    server.execute("postgres", "SELECT pg_reload_conf()").await;
}

/// Makes all commits wait for a standby that does not exist, and returns when they do.
async fn require_missing_standby(server: &TestServer) {
    set_standbys(server, "nobody").await;
    let client = server.client("postgres").await;
    loop {
        let write = client.batch_execute("DROP TABLE IF EXISTS settled; CREATE TABLE settled ()");
        tokio::select! {
            written = write => written.unwrap(),
            pid = waiting_backend(server, "settled") => {
                let client = server.client("postgres").await;
                client.execute("SELECT pg_cancel_backend($1)", &[&pid]).await.unwrap();
                return;
            }
        }
    }
}

/// Neither do heartbeats wait for the standby, nor does what a process tells others of itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_announcement_needs_no_standby() {
    in_time(async {
        let server = block_in_place(|| TestServer::start(""));
        let database = server.new_database().await;
        let log = open(PostgresOptions::new(server.url(&database), "a")).await;
        let lease = log.acquire(&session("s")).await.unwrap();
        require_missing_standby(&server).await;
        for number in 0..10 {
            let announcement = Announcement { version: None, address: Some(number.to_string()) };
            log.announce(announcement).await.unwrap();
        }
        assert!(!*log.lost(&lease).borrow());
        set_standbys(&server, "").await;
    })
    .await;
}

/// A wait for a standby that is cancelled, or ended with its connection, leaves an event that only the primary has. It is
/// not acknowledged before a later commit has waited in full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_did_not_wait_for_the_standby_is_not_acknowledged() {
    in_time(async {
        let server = block_in_place(|| TestServer::start(""));
        let database = server.new_database().await;
        let log = open(PostgresOptions::new(server.url(&database), "a")).await;
        let lease = log.acquire(&session("s")).await.unwrap();
        for (round, end) in ["pg_cancel_backend", "pg_terminate_backend"].into_iter().enumerate() {
            require_missing_standby(&server).await;
            let id = format!("e{round}");
            let new = [new_entry(&id)];
            let mut append = pin!(log.append(&lease, Seq(round as u64), &new));
            let mut is_pending =
                || append.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
            assert!(is_pending());
            let client = server.client("postgres").await;
            for statement in ["Appends events", "INSERT INTO write_probes", "INSERT INTO write_probes"] {
                let pid = waiting_backend(&server, statement).await;
                assert!(is_pending());
                client.execute(&format!("SELECT {end}({pid})"), &[]).await.unwrap();
            }
            waiting_backend(&server, "INSERT INTO write_probes").await;
            assert!(is_pending(), "no commit has waited for the standby in full");
            assert_eq!(ids(&log, "s").await.len(), round + 1, "the primary has the event");
            set_standbys(&server, "").await;
            assert_eq!(append.await.unwrap(), Seq(round as u64 + 1));
        }
        assert_eq!(ids(&log, "s").await, ["e0", "e1"]);
    })
    .await;
}
