//! A running `parlor serve` with the exec door.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use parlor_testkit::STEP_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// How often the helper looks whether the server has written its addresses.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A server process with its own state folder. The process is killed on drop.
pub(crate) struct Server {
    child: Child,
    pub(crate) exec: SocketAddr,
    /// The address of the HTTP API, if it is open.
    pub(crate) http: Option<SocketAddr>,
    folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with_settings("")
    }

    pub(crate) fn with_settings(settings: &str) -> Self {
        Self::launch(settings, &["--no-http"])
    }

    /// A server with the HTTP API too, which has sessions.
    pub(crate) fn with_http() -> Self {
        Self::launch("", &["--listen", "127.0.0.1:0"])
    }

    fn launch(settings: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("parlor.toml"), settings).unwrap();
        let mut child = Command::new(PARLOR)
            .args(["serve", "--no-supex", "--exec", "ws://127.0.0.1:0"])
            .args(args)
            .env("PARLOR_HOME", folder.path())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + STEP_TIMEOUT;
        let served = loop {
            if let Ok(text) = std::fs::read_to_string(folder.path().join("serve.json")) {
                break serde_json::from_str::<Value>(&text).unwrap();
            }
            assert!(child.try_wait().unwrap().is_none(), "the server has ended");
            assert!(Instant::now() < deadline, "the server does not start");
            std::thread::sleep(POLL_INTERVAL);
        };
        assert_eq!(served["pid"], child.id());
        let exec = served["exec"].as_str().unwrap().parse().unwrap();
        let http = served["http"].as_str().map(|address| address.parse().unwrap());
        Self { child, exec, http, folder }
    }

    pub(crate) fn home(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `parlor token` with more arguments, and returns the token.
    pub(crate) fn token(&self, args: &[&str]) -> String {
        let mut command = Command::new(PARLOR);
        let output = command.arg("token").args(args).env("PARLOR_HOME", self.home()).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().lines().next().unwrap().trim().to_owned()
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
