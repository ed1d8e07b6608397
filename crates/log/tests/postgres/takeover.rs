//! Leases of processes that are dead, paused or too slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parlor_log::postgres::MAX_NODE_BYTES;
use parlor_log::{Announcement, EventLog, LogError, PostgresLog, PostgresOptions, SystemClock};
use parlor_vocab::{Clock, Seq, Timestamp};
use rustix::process::Signal;

use super::child::ChildProcess;
use super::{
    Database, POLL_INTERVAL, acquire_when_free, ids, in_time, new_entry, open, quick_options, session,
};

/// A process that is paused for longer than its lease lasts, and goes on after somebody else has taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_holder_is_refused() {
    in_time(async {
        let database = Database::create().await;
        let log = open(quick_options(&database.url(), "b")).await;
        let mut child = ChildProcess::start(&database.url());
        child.append("child_1");
        assert_eq!(child.line(), "appended");
        child.signal(Signal::STOP);
        let lease = acquire_when_free(&log, "s").await;
        log.append(&lease, Seq(1), &[new_entry("parent_1")]).await.unwrap();
        child.append("child_2");
        child.signal(Signal::CONT);
        let mut lines = [child.line(), child.line()];
        lines.sort();
        assert_eq!(lines, ["lost", "not held"]);
        log.append(&lease, Seq(2), &[new_entry("parent_2")]).await.unwrap();
        assert_eq!(ids(&log, "s").await, ["child_1", "parent_1", "parent_2"]);
    })
    .await;
}

/// Not before the time of its lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_followed_in_time() {
    in_time(async {
        let database = Database::create().await;
        let options = quick_options(&database.url(), "b");
        let (lease_wait, renew_limit) = (options.lease_wait, options.renew_limit);
        let log = open(options).await;
        let mut child = ChildProcess::start(&database.url());
        child.append("child_1");
        assert_eq!(child.line(), "appended");
        let error = log.acquire(&session("s")).await.unwrap_err();
        let text = format!("session s is in use by process {} on node child;", child.pid());
        assert!(error.to_string().starts_with(&text), "{error}");
        child.signal(Signal::KILL);
        let killed = Instant::now();
        let lease = acquire_when_free(&log, "s").await;
        let waited = killed.elapsed();
        // The last heartbeat was sent before the kill, but not longer before it than the child would bear.
        assert!(waited > lease_wait - renew_limit, "{waited:?}");
        log.append(&lease, Seq(1), &[new_entry("parent_1")]).await.unwrap();
        assert_eq!(ids(&log, "s").await, ["child_1", "parent_1"]);
    })
    .await;
}

/// A holder that believes in its lease for ever is refused by the database, not by itself: each writer has one block.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stolen_lease_is_refused_whatever_its_holder_believes() {
    const ROUNDS: usize = 10;
    in_time(async {
        let database = Database::create().await;
        let deluded = PostgresOptions {
            heartbeat_interval: Duration::from_secs(100),
            renew_limit: Duration::from_secs(200),
            lease_wait: Duration::from_secs(300),
            ..PostgresOptions::new(database.url(), "deluded")
        };
        let mut writers = tokio::task::JoinSet::new();
        let observer = database.log().await;
        for round in 0..ROUNDS {
            // As if the holder had been silent for long, by the clock of the database.
            let age = "UPDATE nodes SET heartbeat = heartbeat - interval '1 hour' WHERE node = 'deluded'";
            database.server.execute(&database.name, age).await;
            let log = Arc::new(open(deluded.clone()).await);
            let lease = log.acquire(&session("s")).await.unwrap();
            let mut head = observer.session(&session("s")).await.map_or(Seq::START, |record| record.head);
            writers.spawn(async move {
                let mut acknowledged = Vec::new();
                loop {
                    let id = format!("{round}_{}", acknowledged.len());
                    match log.append(&lease, head, &[new_entry(&id)]).await {
                        Ok(new_head) => {
                            head = new_head;
                            acknowledged.push(id);
                        }
                        Err(LogError::NotHeld { .. }) => return (round, acknowledged),
                        Err(error) => panic!("{error}"),
                    }
                    if round == ROUNDS - 1 && acknowledged.len() == 20 {
                        return (round, acknowledged);
                    }
                }
            });
        }
        let mut acknowledged = writers.join_all().await;
        acknowledged.sort_by_key(|(round, _)| *round);
        let all: Vec<String> = acknowledged.into_iter().flat_map(|(_, ids)| ids).collect();
        assert_eq!(ids(&observer, "s").await, all);
    })
    .await;
}

/// Also while it writes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_learns_from_its_heartbeat_that_a_lease_was_taken() {
    in_time(async {
        let database = Database::create().await;
        let holder = open(quick_options(&database.url(), "a")).await;
        let leases =
            [holder.acquire(&session("s")).await.unwrap(), holder.acquire(&session("t")).await.unwrap()];
        let mut lost = leases.each_ref().map(|lease| holder.lost(lease));
        database.server.execute(&database.name, "UPDATE nodes SET expired = true WHERE node = 'a'").await;
        for lost in &mut lost {
            lost.wait_for(|is_lost| *is_lost).await.unwrap();
        }
        let refused = holder.append(&leases[0], Seq::START, &[new_entry("x")]).await;
        assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
        // The old leases stay invalid, and a new incarnation can take the sessions.
        let again = acquire_when_free(&holder, "s").await;
        holder.append(&again, Seq::START, &[new_entry("y")]).await.unwrap();
        let refused = holder.append(&leases[0], Seq(1), &[new_entry("x")]).await;
        assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
        assert!(*holder.lost(&leases[0]).borrow(), "a loss is also reported afterwards");
    })
    .await;
}

/// Of several processes that want the lease of a dead one, one gets it, and the others are told who has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_losers_of_a_race_for_a_lease_are_told_the_winner() {
    in_time(async {
        let database = Database::create().await;
        let racers = [
            open(PostgresOptions::new(database.url(), "b")).await,
            open(PostgresOptions::new(database.url(), "c")).await,
            open(PostgresOptions::new(database.url(), "d")).await,
        ];
        let dead = open(PostgresOptions::new(database.url(), "dead")).await;
        let sessions: Vec<_> = (0..20).map(|number| session(&format!("s{number}"))).collect();
        let mut leases = Vec::new();
        for session in &sessions {
            leases.push(dead.acquire(session).await.unwrap());
        }
        let expire = "UPDATE nodes SET expired = true WHERE node = 'dead'";
        database.server.execute(&database.name, expire).await;
        for session in &sessions {
            let [first, second, third] = racers.each_ref().map(|racer| racer.acquire(session));
            let results = tokio::join!(first, second, third);
            let results = [results.0, results.1, results.2];
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
            for result in &results {
                let Err(LogError::Held { by, .. }) = result else { continue };
                assert_ne!(by.node.as_deref(), Some("dead"));
            }
        }
    })
    .await;
}

/// A panic of the writer ends the leases as well: nothing could be written any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_learn_of_a_panic_of_the_writer() {
    struct PanickingClock(AtomicBool);
    impl Clock for PanickingClock {
        fn now(&self) -> Timestamp {
            assert!(!self.0.load(Ordering::SeqCst), "as asked");
            Timestamp(1)
        }
    }
    in_time(async {
        let database = Database::create().await;
        let clock = Arc::new(PanickingClock(AtomicBool::new(false)));
        let options = quick_options(&database.url(), "a");
        let log = PostgresLog::open(options, Arc::<PanickingClock>::clone(&clock)).await.unwrap();
        let lease = log.acquire(&session("s")).await.unwrap();
        let mut lost = log.lost(&lease);
        clock.0.store(true, Ordering::SeqCst);
        let failed = log.acquire(&session("t")).await;
        assert!(matches!(failed, Err(LogError::Closed)), "{failed:?}");
        lost.wait_for(|is_lost| *is_lost).await.unwrap();
        let other = open(quick_options(&database.url(), "b")).await;
        acquire_when_free(&other, "s").await;
    })
    .await;
}

/// A release that the server refused is tried again, also if the process writes nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_release_is_tried_again() {
    in_time(async {
        let database = Database::create().await;
        let (holder, other) = (
            open(quick_options(&database.url(), "a")).await,
            open(quick_options(&database.url(), "b")).await,
        );
        let lease = holder.acquire(&session("s")).await.unwrap();
        let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM nextval('refusals'); RAISE EXCEPTION 'refused'; END $$;
            CREATE SEQUENCE refusals;
            CREATE TRIGGER refuse BEFORE UPDATE ON leases FOR EACH STATEMENT EXECUTE FUNCTION refuse()";
        database.server.execute(&database.name, refuse).await;
        drop(lease);
        let client = database.server.client(&database.name).await;
        let refused = "SELECT is_called FROM refusals";
        while !client.query_one(refused, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        client.batch_execute("DROP TRIGGER refuse ON leases").await.unwrap();
        acquire_when_free(&other, "s").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_that_would_break_a_promise_are_refused() {
    in_time(async {
        let database = Database::create().await;
        let usual = || PostgresOptions::new(database.url(), "a");
        let limits = |heartbeat_interval, renew_limit, lease_wait| {
            let [heartbeat_interval, renew_limit, lease_wait] =
                [heartbeat_interval, renew_limit, lease_wait].map(Duration::from_secs);
            PostgresOptions { heartbeat_interval, renew_limit, lease_wait, ..usual() }
        };
        let long_name = PostgresOptions { node: "n".repeat(MAX_NODE_BYTES + 1), ..usual() };
        for options in [limits(1, 5, 5), limits(3, 3, 5), long_name] {
            let refused = PostgresLog::open(options, Arc::new(SystemClock)).await.err();
            assert!(matches!(refused, Some(LogError::Database { .. })), "{refused:?}");
        }
    })
    .await;
}

/// Leases and the node's row go with a log that is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_a_log_frees_its_leases_at_once() {
    in_time(async {
        let database = Database::create().await;
        let (first, second) = (database.log().await, database.log().await);
        let lease = first.acquire(&session("s")).await.unwrap();
        first.append(&lease, Seq::START, &[new_entry("x")]).await.unwrap();
        let lost = first.lost(&lease);
        first.close().await;
        assert!(*lost.borrow(), "the holder learns of it");
        let lease_of_second = second.acquire(&session("s")).await.expect("the lease is free");
        second.append(&lease_of_second, Seq(1), &[new_entry("y")]).await.unwrap();
        drop(lease);
        let rows =
            database.server.client(&database.name).await.query("SELECT FROM nodes", &[]).await.unwrap();
        assert_eq!(rows.len(), 1, "only the second log has a row");
    })
    .await;
}

/// Others see what a process announced, with the name of its node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_of_a_lease_is_seen_with_its_node_and_announcement() {
    in_time(async {
        let database = Database::create().await;
        let (log, other) = (database.log().await, database.log().await);
        let announcement =
            Announcement { version: Some("1.2.3".to_owned()), address: Some("10.0.0.1:1".to_owned()) };
        let _lease = log.acquire(&session("s")).await.unwrap();
        log.announce(announcement.clone()).await.unwrap();
        let holder = other.holder(&session("s")).await.unwrap().unwrap();
        assert_eq!((holder.node.as_deref(), &holder.announcement), (Some("a"), &announcement));
        let LogError::Held { by, .. } = other.acquire(&session("s")).await.unwrap_err() else { panic!() };
        assert_eq!(by, holder);
    })
    .await;
}
