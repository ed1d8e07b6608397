//! Connections that are cut.

use std::sync::Arc;

use parlor_log::{EventLog, LogError, PostgresOptions, random_u128};
use parlor_vocab::Seq;

use super::proxy::Proxy;
use super::{Database, POLL_INTERVAL, ids, in_time, new_entry, open, session};

/// Every acknowledged event is there once, and none is there twice, when connections are cut at random moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_leaves_no_doubt() {
    const SESSIONS: usize = 8;
    const CUTS: u64 = 60;
    in_time(async {
        let database = Database::create().await;
        let proxy = Arc::new(Proxy::start(database.server.port()).await);
        let log = Arc::new(open(PostgresOptions::new(proxy.url(&database.name), "a")).await);
        let mut appenders = tokio::task::JoinSet::new();
        for number in 0..SESSIONS {
            let (log, proxy) = (Arc::clone(&log), Arc::clone(&proxy));
            appenders.spawn(async move {
                let name = format!("s{number}");
                let lease = log.acquire(&session(&name)).await.unwrap();
                let (mut head, mut acknowledged) = (Seq::START, Vec::new());
                while proxy.cuts() < CUTS {
                    let id = format!("e{}", acknowledged.len());
                    let new = [new_entry(&id), new_entry(&format!("{id}_second"))];
                    head = log.append(&lease, head, &new).await.unwrap();
                    acknowledged.extend(new.map(|entry| entry.id.to_string()));
                    // The first of the sessions to go on after a cut arms the next one, at a random moment.
                    if number == 0 {
                        proxy.cut_after(1 + (random_u128() % 8000) as u64);
                    }
                }
                (name, acknowledged)
            });
        }
        let direct = database.log().await;
        for (name, acknowledged) in appenders.join_all().await {
            assert!(acknowledged.len() > 20, "{name} has {} events", acknowledged.len());
            assert_eq!(ids(&direct, &name).await, acknowledged, "{name}");
            let record = direct.session(&session(&name)).await.unwrap();
            assert_eq!(record.head, Seq(acknowledged.len() as u64));
        }
    })
    .await;
}

/// Waits until this many appends wait for a lock.
pub(crate) async fn blocked_appends(database: &Database, count: i64) {
    blocked_statements(database, "Appends events", count).await;
}

/// Waits until this many statements that contain `text` wait for a lock.
async fn blocked_statements(database: &Database, text: &str, count: i64) {
    let client = database.server.client(&database.name).await;
    let sql = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'
            AND pid <> pg_backend_pid()";
    while client.query_one(sql, &[&text]).await.unwrap().get::<_, i64>(0) < count {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The server goes on with a statement whose connection is lost. If it commits after the repeated one has begun, the event
/// is there once nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_commit_of_a_lost_connection_is_found() {
    in_time(async {
        let database = Database::create().await;
        let proxy = Proxy::start(database.server.port()).await;
        let log = open(PostgresOptions::new(proxy.url(&database.name), "a")).await;
        let lease = log.acquire(&session("s")).await.unwrap();
        // The first append creates the session, the others update its record.
        for round in 0..3 {
            let blocker = database.server.client(&database.name).await;
            blocker.batch_execute("BEGIN; LOCK TABLE events IN EXCLUSIVE MODE").await.unwrap();
            let new = [new_entry(&format!("e{round}"))];
            let append = log.append(&lease, Seq(round), &new);
            let release = async {
                blocked_appends(&database, 1).await;
                proxy.cut();
                blocked_appends(&database, 2).await;
                blocker.batch_execute("COMMIT").await.unwrap();
            };
            let (appended, ()) = tokio::join!(append, release);
            assert_eq!(appended.unwrap(), Seq(round + 1));
        }
        assert_eq!(ids(&log, "s").await, ["e0", "e1", "e2"]);
        let record = log.session(&session("s")).await.unwrap();
        assert_eq!(record.head, Seq(3));
    })
    .await;
}

/// A deletion waits for an append that the server still carries out for a lost connection, and deletes its event too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_leaves_nothing_of_an_append_under_way() {
    in_time(async {
        let database = Database::create().await;
        let log = database.log().await;
        let lease = log.acquire(&session("s")).await.unwrap();
        log.append(&lease, Seq::START, &[new_entry("x")]).await.unwrap();
        let late = database.server.client(&database.name).await;
        let append = "BEGIN; SELECT FROM leases WHERE session = 's' FOR SHARE; UPDATE sessions SET head = 2;
            INSERT INTO events SELECT session, 2, 'y', at, version, body FROM events";
        late.batch_execute(append).await.unwrap();
        let commit = async {
            blocked_statements(&database, "DELETE FROM sessions", 1).await;
            late.batch_execute("COMMIT").await.unwrap();
        };
        let (deleted, ()) = tokio::join!(log.delete(&lease), commit);
        deleted.unwrap();
        assert!(late.query("SELECT FROM events", &[]).await.unwrap().is_empty());
    })
    .await;
}

/// An append that ends its connection each time fails alone, and is not repeated for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_ends_every_connection_fails_alone() {
    in_time(async {
        let database = Database::create().await;
        let log = database.log().await;
        let poison = "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
            CREATE TRIGGER poison BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.id = 'poison')
                EXECUTE FUNCTION poison()";
        database.server.execute(&database.name, poison).await;
        let (bad, good) =
            (log.acquire(&session("bad")).await.unwrap(), log.acquire(&session("good")).await.unwrap());
        let entries = ["poison", "x"].map(|id| [new_entry(id)]);
        let (failed, appended) = tokio::join!(
            log.append(&bad, Seq::START, &entries[0]),
            log.append(&good, Seq::START, &entries[1])
        );
        assert!(matches!(failed, Err(LogError::Unavailable { .. })), "{failed:?}");
        assert_eq!(appended.unwrap(), Seq(1));
        log.append(&bad, Seq::START, &[new_entry("y")]).await.unwrap();
        assert_eq!(ids(&log, "bad").await, ["y"]);
    })
    .await;
}

/// A host that accepts connections and says nothing, such as a server that is paused, does not keep the next from being used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_host_is_passed_over() {
    in_time(async {
        let database = Database::create().await;
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let hosts = format!("{},127.0.0.1:{}", silent.local_addr().unwrap(), database.server.port());
        let log =
            open(PostgresOptions::new(format!("postgres://parlor@{hosts}/{}", database.name), "a")).await;
        let lease = log.acquire(&session("s")).await.unwrap();
        log.append(&lease, Seq::START, &[new_entry("x")]).await.unwrap();
    })
    .await;
}

/// Leases, partial text and deletions are repeated until they are certain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_deletions_survive_cuts() {
    in_time(async {
        let database = Database::create().await;
        let proxy = Proxy::start(database.server.port()).await;
        let log = open(PostgresOptions::new(proxy.url(&database.name), "a")).await;
        for round in 0..30 {
            let name = format!("s{round}");
            proxy.cut_after(1 + (random_u128() % 6000) as u64);
            let lease = log.acquire(&session(&name)).await.unwrap();
            log.append(&lease, Seq::START, &[new_entry("x")]).await.unwrap();
            log.release(lease).await.unwrap();
            let lease = log.acquire(&session(&name)).await.unwrap();
            log.delete(&lease).await.unwrap();
            let lease = log.acquire(&session(&name)).await.unwrap();
            log.append(&lease, Seq::START, &[new_entry("y")]).await.unwrap();
        }
        proxy.cut_after(0);
        assert!(proxy.cuts() > 5, "{}", proxy.cuts());
        for round in 0..30 {
            assert_eq!(ids(&log, &format!("s{round}")).await, ["y"]);
        }
    })
    .await;
}

/// Notifications are lost while the connection is, as in a failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_are_woken_after_a_reconnect() {
    in_time(async {
        let database = Database::create().await;
        let proxy = Proxy::start(database.server.port()).await;
        let follower = open(PostgresOptions::new(proxy.url(&database.name), "a")).await;
        let writer = database.log().await;
        let lease = writer.acquire(&session("s")).await.unwrap();
        let mut head = follower.head(&session("s"));
        for round in 0..5 {
            proxy.block();
            writer.append(&lease, Seq(round), &[new_entry(&format!("e{round}"))]).await.unwrap();
            proxy.unblock();
            head.wait_for(|head| *head > Seq(round)).await.unwrap();
            assert_eq!(ids(&follower, "s").await.len() as u64, round + 1);
        }
        proxy.block();
        writer.delete(&lease).await.unwrap();
        proxy.unblock();
        head.wait_for(|head| *head == Seq::START).await.unwrap();
    })
    .await;
}

/// The notification of an own append comes later than the wake-up, and is ignored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_wakes_followers_of_its_own_process_once() {
    in_time(async {
        let database = Database::create().await;
        let (log, other) = (database.log().await, database.log().await);
        let (lease, lease_of_other) =
            (log.acquire(&session("s")).await.unwrap(), other.acquire(&session("t")).await.unwrap());
        let (mut own, mut foreign) = (log.head(&session("s")), log.head(&session("t")));
        for round in 0..10 {
            log.append(&lease, Seq(round), &[new_entry("x")]).await.unwrap();
            own.wait_for(|head| *head == Seq(round + 1)).await.unwrap();
            // Notifications come in the order of the commits.
            other.append(&lease_of_other, Seq(round), &[new_entry("y")]).await.unwrap();
            foreign.wait_for(|head| *head == Seq(round + 1)).await.unwrap();
            assert!(!own.has_changed().unwrap());
        }
    })
    .await;
}

/// Reads take another connection at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_survive_a_cut() {
    in_time(async {
        let database = Database::create().await;
        let proxy = Proxy::start(database.server.port()).await;
        let log = open(PostgresOptions::new(proxy.url(&database.name), "a")).await;
        let lease = log.acquire(&session("s")).await.unwrap();
        log.append(&lease, Seq::START, &[new_entry("x")]).await.unwrap();
        for _ in 0..10 {
            assert_eq!(ids(&log, "s").await, ["x"]);
            proxy.cut();
        }
    })
    .await;
}
