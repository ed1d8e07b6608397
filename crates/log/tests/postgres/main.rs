//! The log on PostgreSQL passes the conformance tests, and keeps its promises when processes, connections and the server
//! fail.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod child;
mod cluster;
mod connections;
mod copying;
mod groups;
mod proxy;
mod server;
mod sync_wait;
mod takeover;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use parlor_log::conformance::LogFactory;
use parlor_log::postgres::test_server::TestServer;
use parlor_log::{EventLog, Lease, LogError, PostgresLog, PostgresOptions, SystemClock};
use parlor_vocab::{EventId, NewEntry, Seq, SessionEvent, SessionId, Timestamp};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

/// Ends a test that hangs. A working test takes much less.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The pause between two looks at something that reports no change.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A database of its own for a test.
struct Database {
    server: &'static TestServer,
    name: String,
}

impl Database {
    async fn create() -> Self {
        let server = block_in_place(TestServer::shared);
        Self { server, name: server.new_database().await }
    }

    fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Opens the log with the usual options.
    async fn log(&self) -> PostgresLog {
        open(PostgresOptions::new(self.url(), "a")).await
    }
}

impl LogFactory for Database {
    fn open(&self) -> Arc<dyn EventLog> {
        Arc::new(block_in_place(|| Handle::current().block_on(self.log())))
    }
}

parlor_log::conformance_tests!(Database::create().await);

async fn open(options: PostgresOptions) -> PostgresLog {
    PostgresLog::open(options, Arc::new(SystemClock)).await.unwrap()
}

/// Options with which a process counts as dead after a short time, but not on a busy machine.
fn quick_options(url: &str, node: &str) -> PostgresOptions {
    PostgresOptions {
        heartbeat_interval: Duration::from_millis(200),
        renew_limit: Duration::from_millis(1800),
        lease_wait: Duration::from_secs(3),
        ..PostgresOptions::new(url, node)
    }
}

fn session(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

/// An event whose id is its text.
fn new_entry(text: &str) -> NewEntry {
    let event = SessionEvent::Renamed { title: text.to_owned() };
    NewEntry { id: EventId::parse(text).unwrap(), at: Timestamp(1), event }
}

/// The ids of a session's events. Checks that their numbers have no gaps.
async fn ids(log: &PostgresLog, name: &str) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let entries = log.read(&session(name), Seq(ids.len() as u64), usize::MAX).await.unwrap();
        if entries.is_empty() {
            return ids;
        }
        for entry in entries {
            assert_eq!(entry.seq.0, ids.len() as u64 + 1, "dense");
            ids.push(entry.id.to_string());
        }
    }
}

/// Takes a lease as soon as nobody has it.
async fn acquire_when_free(log: &PostgresLog, name: &str) -> Lease {
    loop {
        match log.acquire(&session(name)).await {
            Ok(lease) => return lease,
            Err(LogError::Held { .. } | LogError::Unavailable { .. }) => {
                tokio::time::sleep(POLL_INTERVAL).await
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Fails a test that hangs.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, test).await.expect("the test ends in time")
}
