//! A node of a cluster: `parlor serve` with a state folder of its own and the log that all nodes share.

use std::process::{Command, Output};

use parlor_log::postgres::test_server::TestServer;
use tempfile::TempDir;

use crate::TIMEOUT;
use crate::server::{self, PARLOR, Server};

/// The name of the database of a test.
pub(crate) struct Database {
    pub(crate) url: String,
}

impl Database {
    /// A new database on the server that all tests share.
    pub(crate) async fn new() -> Self {
        Self::on(TestServer::shared()).await
    }

    pub(crate) async fn on(server: &TestServer) -> Self {
        Self { url: server.url(&server.new_database().await) }
    }
}

/// A state folder whose settings name the shared log.
pub(crate) struct NodeHome {
    folder: TempDir,
}

impl NodeHome {
    /// A folder with these settings.
    pub(crate) fn new(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("parlor.toml"), settings).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Starts the server of this node.
    pub(crate) fn serve(&self, args: &[&str]) -> Server {
        let mut command = server::command(self.path());
        // Read by nobody while the server runs, so that it must not fill.
        command.args(args).current_dir(self.path()).stderr(log_file(self.path()));
        Server::spawn(command, self.path()).unwrap_or_else(|error| panic!("{error}{}", self.log()))
    }

    /// Starts the server with the token in its state folder, instead of that of these tests.
    pub(crate) fn serve_with_own_token(&self) -> Server {
        let mut command = server::command(self.path());
        command.env_remove("SUPRCLAW_CHANNELS_SUPR_TOKEN");
        command.current_dir(self.path()).stderr(log_file(self.path()));
        Server::spawn(command, self.path()).unwrap_or_else(|error| panic!("{error}{}", self.log()))
    }

    /// A node of the cluster on `database`, with these further settings in `[cluster]`.
    pub(crate) fn of_cluster(database: &Database, name: &str, settings: &str) -> Self {
        Self::new(&format!("[log]\nurl = {:?}\n[cluster]\nnode = {name:?}\n{settings}\n", database.url))
    }

    /// Waits until what the command `parlor replay SESSION` prints has this text.
    pub(crate) async fn wait_for_replay(&self, session: &str, text: &str) -> String {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let replayed = self.prints(&["replay", session, "--json"]);
            if replayed.contains(text) {
                return replayed;
            }
            assert!(tokio::time::Instant::now() < deadline, "no {text:?} in {replayed}");
        }
    }

    /// What the server has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("stderr")).unwrap_or_default()
    }

    /// Runs another command on the state folder of this node.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(PARLOR);
        command.args(args).env("PARLOR_HOME", self.path()).env_remove("PGPASSWORD").current_dir(self.path());
        command.output().unwrap()
    }

    /// The stdout of a command that must succeed.
    pub(crate) fn prints(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for NodeHome {
    /// Shows what the server logged, if the test fails.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {}", self.path().display(), self.log());
        }
    }
}

fn log_file(folder: &std::path::Path) -> std::fs::File {
    std::fs::File::create(folder.join("stderr")).unwrap()
}

/// Asks for `path` of a server until `is_done` accepts the status and the body.
pub(crate) async fn wait_for_http(
    server: &Server,
    path: &str,
    is_done: impl Fn(u16, &str) -> bool,
) -> String {
    let url = format!("http://{}{path}", server.http);
    let asked = async {
        loop {
            if let Ok(response) = reqwest::get(&url).await {
                let status = response.status().as_u16();
                let body = response.text().await.unwrap_or_default();
                if is_done(status, &body) {
                    return body;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, asked).await.unwrap_or_else(|_| panic!("no such answer of {path}"))
}
