//! The log on PostgreSQL passes the conformance tests, and keeps its promises when processes and connections fail.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::sync::Arc;

use parlor_log::conformance::LogFactory;
use parlor_log::postgres::test_server::TestServer;
use parlor_log::{EventLog, PostgresLog, PostgresOptions, SystemClock};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

/// A database of its own for a test.
struct Database(String);

impl Database {
    fn new() -> Self {
        let server = TestServer::shared();
        block_in_place(|| {
            Handle::current().block_on(async { Self(server.url(&server.new_database().await)) })
        })
    }
}

impl LogFactory for Database {
    fn open(&self) -> Arc<dyn EventLog> {
        let options = PostgresOptions::new(&self.0, "a");
        let open = PostgresLog::open(options, Arc::new(SystemClock));
        Arc::new(block_in_place(|| Handle::current().block_on(open)).unwrap())
    }
}

parlor_log::conformance_tests!(Database::new());
