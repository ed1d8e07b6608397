//! `parlor serve` as [`OWNER`] at addresses other than loopback, in its own network namespace.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::process::{Child, Command, Stdio};

use parlor_testkit::copy_executable;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

use crate::server::wait_for;
use crate::users::{OWNER, ROOT, as_user, can_switch_users, command_as};

/// The addresses of the machine. They are on the loopback device, so nothing leaves the machine.
const ADDRESSES: [&str; 2] = ["10.9.9.9", "10.9.9.10"];

/// The script inside the namespace: sets up the network and starts the server as the user `$2`.
const INSIDE: &str = "ip link set lo up && ip address add 10.9.9.9/32 dev lo && ip address add 10.9.9.10/32 dev lo \
     && exec setpriv --reuid \"$2\" --regid \"$2\" --clear-groups \"$1\" serve --listen 0.0.0.0:0 --no-supex";

/// A server process, which is killed on drop.
pub(crate) struct ServerAtMachineAddress {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl ServerAtMachineAddress {
    /// Prints a message and returns `None` if this machine allows no network namespace.
    pub(crate) fn start() -> Option<Self> {
        if !can_switch_users() {
            return None;
        }
        let works = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
        if !works.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no network can be created here: {works:?}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (program, home) = (folder.path().join("parlor"), folder.path().join("home"));
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        copy_executable(env!("CARGO_BIN_EXE_parlor"), &program);
        std::fs::create_dir(&home).unwrap();
        chown(&home, Some(OWNER), Some(OWNER)).unwrap();
        let mut command = command_as(ROOT, "unshare".as_ref());
        command.args(["--net", "sh", "-c", INSIDE, "sh"]).arg(&program).arg(OWNER.to_string());
        command.env("PARLOR_HOME", &home).env("HOME", &home).current_dir(&home);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let served: Value = wait_for("the server", || {
            assert!(child.try_wait().unwrap().is_none(), "the server has ended");
            serde_json::from_str(&std::fs::read_to_string(home.join("serve.json")).ok()?).ok()
        });
        let http: SocketAddr = served["http"].as_str().unwrap().parse().unwrap();
        Some(Self { child, port: http.port(), folder })
    }

    /// The addresses of the server.
    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        ADDRESSES.map(|ip| SocketAddr::new(ip.parse().unwrap(), self.port))
    }

    /// The current token.
    pub(crate) fn token(&self) -> String {
        let home = self.folder.path().join("home");
        let mut command = command_as(OWNER, &self.folder.path().join("parlor"));
        let printed = command.arg("token").env("PARLOR_HOME", &home).env("HOME", &home).output().unwrap();
        String::from_utf8(printed.stdout).unwrap().trim().to_owned()
    }

    /// Runs `work` in the network namespace of the server.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let network = File::open(format!("/proc/{}/ns/net", self.child.id())).unwrap();
        as_user(ROOT, || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        })
    }
}

impl Drop for ServerAtMachineAddress {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
