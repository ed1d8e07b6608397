//! A running `parlor serve` with its HTTP address and without the supex door.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use parlor_testkit::STEP_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// The token of the server in these tests.
pub(crate) const TOKEN: &str = "s3cret-0f-these-tests";

/// How often a helper looks whether another process has written a file.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// `small`, or `large` if `PARLOR_SOAK` is set.
pub(crate) fn soak<T>(small: T, large: T) -> T {
    if std::env::var_os("PARLOR_SOAK").is_some() { large } else { small }
}

/// A server process, which is killed on drop.
pub(crate) struct Server {
    child: Child,
    pub(crate) home: PathBuf,
    pub(crate) http: SocketAddr,
    /// Deleted when the server is dropped.
    _folder: Option<TempDir>,
}

/// `parlor serve` on a free port, without the `SUPRCLAW_` variables of this process.
pub(crate) fn command(home: &Path) -> Command {
    let mut command = Command::new(PARLOR);
    command.args(["serve", "--listen", "127.0.0.1:0", "--no-supex"]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SUPRCLAW_") {
            command.env_remove(name);
        }
    }
    command.env("PARLOR_HOME", home).env("SUPRCLAW_CHANNELS_SUPR_TOKEN", TOKEN);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// A server with these settings in `[channels.supr]` and a script agent that is not the default.
    pub(crate) fn with(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/supr/home/script");
        let mut config = std::fs::read_to_string(script.join("parlor.toml")).unwrap();
        config = config.replace("default_agent = \"script\"", "default_agent = \"local\"");
        config.push_str(&format!("\n[channels.supr]\n{settings}\n"));
        std::fs::write(folder.path().join("parlor.toml"), config).unwrap();
        std::fs::copy(script.join("script.toml"), folder.path().join("script.toml")).unwrap();
        let mut server = Self::on(folder.path());
        server._folder = Some(folder);
        server
    }

    /// A server on an existing state folder.
    pub(crate) fn on(home: &Path) -> Self {
        let mut command = command(home);
        command.current_dir(home);
        Self::spawn(command, home).unwrap()
    }

    pub(crate) fn spawn(mut command: Command, home: &Path) -> Result<Self, String> {
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let deadline = Instant::now() + STEP_TIMEOUT;
        let http = loop {
            if let Some(address) = served_address(home, child.id()) {
                break address;
            }
            let has_ended = child.try_wait().map_err(|error| error.to_string())?.is_some();
            if has_ended || Instant::now() > deadline {
                let _ = child.kill();
                let mut log = String::new();
                let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut log));
                return Err(format!("the server does not start: {log}"));
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        Ok(Self { child, home: home.to_owned(), http, _folder: None })
    }

    #[allow(dead_code, reason = "the tests of shared sessions use it")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.send_sigterm();
        self.child.wait().unwrap()
    }

    /// The same, and returns what the process wrote to stderr.
    pub(crate) fn stop_and_read_log(&mut self) -> String {
        assert!(self.stop().success());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }

    pub(crate) fn send_sigterm(&self) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        // The process may have ended already.
        let _ = kill_process(pid, Signal::TERM);
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills it with SIGKILL and starts another server on the same state folder.
    pub(crate) fn kill_and_restart(&mut self) {
        self.kill();
        let mut next = Self::on(&self.home);
        std::mem::swap(&mut self.child, &mut next.child);
        self.http = next.http;
    }

    /// A value in KiB from `/proc/PID/status`, such as `VmRSS`.
    pub(crate) fn status_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Runs `parlor` on this state folder and returns its stdout. Panics if it fails.
    pub(crate) fn prints(&self, args: &[&str]) -> String {
        let output = Command::new(PARLOR).args(args).env("PARLOR_HOME", &self.home).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The HTTP address of the server with this process id, once `serve.json` has it. The file may still be that of a killed
/// server.
fn served_address(home: &Path, pid: u32) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(home.join("serve.json")).ok()?;
    let served: Value = serde_json::from_str(&text).ok()?;
    if served["pid"] != pid {
        return None;
    }
    served["http"].as_str()?.parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
