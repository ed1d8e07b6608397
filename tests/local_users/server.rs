//! `parlor serve` as [`OWNER`], with all of its doors.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use parlor_testkit::{PATIENCE, copy_executable};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::users::{OWNER, can_become_others, program_of};

/// How long between two looks at something that another process changes.
const LOOK: Duration = Duration::from_millis(5);

/// A copy of the program that all users can start, and a state folder of [`OWNER`].
pub(crate) struct Place {
    program: PathBuf,
    pub(crate) home: PathBuf,
    folder: TempDir,
}

impl Place {
    /// One with these settings. None if this process cannot become other users.
    pub(crate) fn new(settings: &str) -> Option<Self> {
        if !can_become_others() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        // Other users may not be allowed to look into the folder where it was built.
        let program = folder.path().join("parlor");
        copy_executable(env!("CARGO_BIN_EXE_parlor"), &program);
        // Others can look into this home, as into one that was made by hand.
        let home = folder.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::fs::set_permissions(&home, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::write(home.join("parlor.toml"), settings).unwrap();
        for path in [&home, &home.join("parlor.toml")] {
            chown(path, Some(OWNER), Some(OWNER)).unwrap();
        }
        Some(Self { program, home, folder })
    }

    /// A folder that everybody can look into, for files of all users.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// `parlor` as `user` runs it on this state folder.
    pub(crate) fn command(&self, user: u32, args: &[&str]) -> Command {
        let mut command = program_of(user, &self.program);
        command.args(args).env("PARLOR_HOME", &self.home).env("HOME", &self.home);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Starts `parlor serve` with these arguments as [`OWNER`].
    pub(crate) fn serve(&self, args: &[&str]) -> Child {
        let mut command = program_of(OWNER, Path::new("/bin/sh"));
        // What a careless user sets must not matter.
        command.args(["-c", "umask 000; exec \"$@\"", "sh"]).arg(&self.program).arg("serve").args(args);
        command.env("PARLOR_HOME", &self.home).env("HOME", &self.home).current_dir(&self.home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

/// A server. It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    place: Place,
    pub(crate) home: PathBuf,
    pub(crate) http: SocketAddr,
    pub(crate) bridge: SocketAddr,
    pub(crate) repl: SocketAddr,
}

impl Server {
    /// One at 127.0.0.1 with these settings. None if this process cannot become other users.
    pub(crate) fn start(settings: &str) -> Option<Self> {
        Self::listening(Ipv4Addr::LOCALHOST.into(), settings)
    }

    /// One whose doors all listen at `ip`.
    pub(crate) fn listening(ip: std::net::IpAddr, settings: &str) -> Option<Self> {
        let place = Place::new(settings)?;
        let home = place.home.clone();
        let anywhere = SocketAddr::new(ip, 0).to_string();
        let mut child =
            place.serve(&["--listen", &anywhere, "--supex", &anywhere, "--supex-repl", &anywhere]);
        let mut said = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::stderr()));
        let served = await_that("the server", || {
            assert!(child.try_wait().unwrap().is_none(), "the server has ended");
            let text = std::fs::read_to_string(home.join("serve.json")).ok()?;
            serde_json::from_str::<Value>(&text).ok()
        });
        let at = |door: &str| served[door].as_str().unwrap().parse().unwrap();
        let (http, bridge, repl) = (at("http"), at("supex"), at("supex_repl"));
        Some(Self { child, place, home, http, bridge, repl })
    }

    /// `parlor`, started by `user` on this server's state folder.
    pub(crate) fn parlor(&self, user: u32, args: &[&str]) -> Output {
        self.place.command(user, args).output().unwrap()
    }

    /// The token that holds now.
    pub(crate) fn token(&self) -> String {
        let printed = self.parlor(OWNER, &["token"]);
        assert!(printed.status.success(), "{printed:?}");
        String::from_utf8(printed.stdout).unwrap().trim().to_owned()
    }

    /// A file that anybody may write: who runs code as the owner can show it there.
    pub(crate) fn marker(&self, name: &str) -> PathBuf {
        let folder = self.place.folder().join("markers");
        if !folder.exists() {
            std::fs::create_dir(&folder).unwrap();
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        }
        folder.join(name)
    }

    /// Does `work` while the server does nothing: what is sent to it meanwhile waits in the kernel.
    pub(crate) fn while_stopped<T>(&self, work: impl FnOnce() -> T) -> T {
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

/// Looks until there is something.
pub(crate) fn await_that<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(LOOK);
    }
}
