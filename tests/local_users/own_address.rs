//! `parlor serve` as [`OWNER`] on a machine that has addresses beside loopback, in a network of its own.

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

use crate::server::await_that;
use crate::users::{OWNER, ROOT, as_user, can_become_others, program_of};

/// The addresses of the machine. They are on the loopback device: nothing leaves it.
const ADDRESSES: [&str; 2] = ["10.9.9.9", "10.9.9.10"];

/// What is done inside: the network is set up, and the server begins, as the user `$2`.
const INSIDE: &str = "ip link set lo up && ip address add 10.9.9.9/32 dev lo && ip address add 10.9.9.10/32 dev lo \
     && exec setpriv --reuid \"$2\" --regid \"$2\" --clear-groups \"$1\" serve --listen 0.0.0.0:0 --no-supex";

/// A server. It is killed when this is dropped.
pub(crate) struct ServerAtOwnAddress {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl ServerAtOwnAddress {
    /// None, and a message, where no network can be made.
    pub(crate) fn start() -> Option<Self> {
        if !can_become_others() {
            return None;
        }
        let works = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
        if !works.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no network can be made here: {works:?}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (program, home) = (folder.path().join("parlor"), folder.path().join("home"));
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        copy_executable(env!("CARGO_BIN_EXE_parlor"), &program);
        std::fs::create_dir(&home).unwrap();
        chown(&home, Some(OWNER), Some(OWNER)).unwrap();
        let mut command = program_of(ROOT, "unshare".as_ref());
        command.args(["--net", "sh", "-c", INSIDE, "sh"]).arg(&program).arg(OWNER.to_string());
        command.env("PARLOR_HOME", &home).env("HOME", &home).current_dir(&home);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let served: Value = await_that("the server", || {
            assert!(child.try_wait().unwrap().is_none(), "the server has ended");
            serde_json::from_str(&std::fs::read_to_string(home.join("serve.json")).ok()?).ok()
        });
        let http: SocketAddr = served["http"].as_str().unwrap().parse().unwrap();
        Some(Self { child, port: http.port(), folder })
    }

    /// Where it can be reached.
    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        ADDRESSES.map(|ip| SocketAddr::new(ip.parse().unwrap(), self.port))
    }

    /// The token that holds now.
    pub(crate) fn token(&self) -> String {
        let home = self.folder.path().join("home");
        let mut command = program_of(OWNER, &self.folder.path().join("parlor"));
        let printed = command.arg("token").env("PARLOR_HOME", &home).env("HOME", &home).output().unwrap();
        String::from_utf8(printed.stdout).unwrap().trim().to_owned()
    }

    /// Does `work` in the network of the server.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let network = File::open(format!("/proc/{}/ns/net", self.child.id())).unwrap();
        as_user(ROOT, || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        })
    }
}

impl Drop for ServerAtOwnAddress {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
