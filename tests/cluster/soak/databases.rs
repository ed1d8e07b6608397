//! A primary and its synchronous standby. When the primary is lost, the standby takes its place and gets a new standby.

use std::time::Duration;

use parlor_log::postgres::test_server::{Place, TestServer};
use tokio::time::sleep;

use super::network::DATABASES;

/// The port of both servers.
const PORT: u16 = 5432;

/// The name of the standby, which it replicates under.
const SYNCHRONOUS: &str = "ALTER SYSTEM SET synchronous_standby_names = 'standby'";

pub(super) struct Databases {
    primary: Option<TestServer>,
    standby: Option<TestServer>,
    /// The address of the primary is the one with this number.
    place: usize,
    database: String,
}

impl Databases {
    /// Starts both.
    pub(super) async fn start() -> Self {
        let primary = TestServer::start_at(&place(0), "");
        let database = primary.new_database().await;
        let mut databases = Self { primary: Some(primary), standby: None, place: 0, database };
        databases.add_standby().await;
        databases
    }

    /// The address with both hosts, for the nodes.
    pub(super) fn url(&self) -> String {
        let [one, other] = DATABASES;
        let database = &self.database;
        format!(
            "postgres://parlor@{one}:{PORT},{other}:{PORT}/{database}?target_session_attrs=read-write&sslmode=disable"
        )
    }

    /// Kills the primary and promotes the standby, which has all that was acknowledged.
    pub(super) fn lose_primary(&mut self) {
        let primary = self.primary.take().unwrap();
        tokio::task::block_in_place(|| primary.kill_hard());
        let standby = self.standby.take().unwrap();
        tokio::task::block_in_place(|| standby.promote());
        self.primary = Some(standby);
        self.place = 1 - self.place;
        tokio::task::block_in_place(|| drop(primary));
    }

    /// Gives the primary a new standby, and waits until commits wait for it.
    pub(super) async fn add_standby(&mut self) {
        let primary = self.primary.as_ref().unwrap();
        let place = place(1 - self.place);
        self.standby = Some(tokio::task::block_in_place(|| primary.start_standby_at(&place)));
        self.wait_for_standby().await;
    }

    /// Kills both servers.
    pub(super) fn kill_all(&self) {
        for server in self.servers() {
            tokio::task::block_in_place(|| server.kill_hard());
        }
    }

    /// Starts both servers again.
    pub(super) async fn restart_all(&self) {
        for server in self.servers() {
            tokio::task::block_in_place(|| server.restart());
        }
        self.wait_for_standby().await;
    }

    fn servers(&self) -> impl Iterator<Item = &TestServer> {
        self.primary.iter().chain(&self.standby)
    }

    async fn wait_for_standby(&self) {
        let primary = self.primary.as_ref().unwrap();
        let client = primary.client("postgres").await;
        client.batch_execute(SYNCHRONOUS).await.unwrap();
        client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let sql = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'";
        while client.query(sql, &[]).await.unwrap().is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn place(number: usize) -> Place {
    Place { host: DATABASES[number].to_owned(), port: PORT }
}
