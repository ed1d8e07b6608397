//! `parlor serve` as [`OWNER`], with all its doors.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use parlor_testkit::{STEP_TIMEOUT, copy_executable};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::users::{OWNER, can_switch_users, command_as};

/// How often a helper looks whether another process has changed something.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A copy of the program that all users can start, and a state folder of [`OWNER`], both in a temporary folder.
pub(crate) struct Installation {
    program: PathBuf,
    pub(crate) home: PathBuf,
    folder: TempDir,
}

impl Installation {
    /// An installation with these settings. `None` if this process cannot switch users.
    pub(crate) fn new(settings: &str) -> Option<Self> {
        if !can_switch_users() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        // Other users may have no access to the folder where the program was built.
        let program = folder.path().join("parlor");
        copy_executable(env!("CARGO_BIN_EXE_parlor"), &program);
        // Others can enter this home, as a home that was created by hand.
        let home = folder.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::fs::set_permissions(&home, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::write(home.join("parlor.toml"), settings).unwrap();
        for path in [&home, &home.join("parlor.toml")] {
            chown(path, Some(OWNER), Some(OWNER)).unwrap();
        }
        Some(Self { program, home, folder })
    }

    /// A folder that every user can enter, for files of all users.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// `parlor` as `user` runs it on this state folder.
    pub(crate) fn command(&self, user: u32, args: &[&str]) -> Command {
        let mut command = command_as(user, &self.program);
        command.args(args).env("PARLOR_HOME", &self.home).env("HOME", &self.home);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Starts `parlor serve` with these arguments as [`OWNER`].
    pub(crate) fn serve(&self, args: &[&str]) -> Child {
        let mut command = command_as(OWNER, Path::new("/bin/sh"));
        // The files of the server must be private even with an open umask.
        command.args(["-c", "umask 000; exec \"$@\"", "sh"]).arg(&self.program).arg("serve").args(args);
        command.env("PARLOR_HOME", &self.home).env("HOME", &self.home).current_dir(&self.home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

/// A server process, which is killed on drop.
pub(crate) struct Server {
    child: Child,
    installation: Installation,
    pub(crate) home: PathBuf,
    pub(crate) http: SocketAddr,
    pub(crate) bridge: SocketAddr,
    pub(crate) repl: SocketAddr,
    pub(crate) exec: SocketAddr,
}

impl Server {
    /// A server at 127.0.0.1 with these settings. `None` if this process cannot switch users.
    pub(crate) fn start(settings: &str) -> Option<Self> {
        Self::listening(Ipv4Addr::LOCALHOST.into(), settings)
    }

    /// A server whose doors all listen at `ip`.
    pub(crate) fn listening(ip: std::net::IpAddr, settings: &str) -> Option<Self> {
        let installation = Installation::new(settings)?;
        let home = installation.home.clone();
        let any_port = SocketAddr::new(ip, 0).to_string();
        let doors = ["--listen", "--supex", "--supex-repl", "--exec"];
        let args: Vec<&str> = doors.into_iter().flat_map(|door| [door, &any_port]).collect();
        let mut child = installation.serve(&args);
        let mut stderr = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::stderr()));
        let served = wait_for("the server", || {
            assert!(child.try_wait().unwrap().is_none(), "the server has ended");
            let text = std::fs::read_to_string(home.join("serve.json")).ok()?;
            serde_json::from_str::<Value>(&text).ok()
        });
        let address = |door: &str| served[door].as_str().unwrap().parse().unwrap();
        let (http, bridge, repl) = (address("http"), address("supex"), address("supex_repl"));
        let exec = address("exec");
        Some(Self { child, installation, home, http, bridge, repl, exec })
    }

    /// Runs `parlor` as `user` on this server's state folder.
    pub(crate) fn parlor(&self, user: u32, args: &[&str]) -> Output {
        self.installation.command(user, args).output().unwrap()
    }

    /// The current token.
    pub(crate) fn token(&self) -> String {
        let printed = self.parlor(OWNER, &["token"]);
        assert!(printed.status.success(), "{printed:?}");
        String::from_utf8(printed.stdout).unwrap().trim().to_owned()
    }

    /// A path in a folder that every user may write to. An attack that runs code creates the file.
    pub(crate) fn marker(&self, name: &str) -> PathBuf {
        let folder = self.installation.folder().join("markers");
        if !folder.exists() {
            std::fs::create_dir(&folder).unwrap();
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        }
        folder.join(name)
    }

    /// Runs `work` while the server is suspended (SIGSTOP). Bytes that are sent to it wait in the kernel.
    pub(crate) fn while_suspended<T>(&self, work: impl FnOnce() -> T) -> T {
        self.signal(Signal::STOP);
        let done = work();
        self.signal(Signal::CONT);
        done
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until `poll` returns a value, and returns it. Panics with `what` after a timeout.
pub(crate) fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + STEP_TIMEOUT;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < deadline, "timeout while waiting for {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}
