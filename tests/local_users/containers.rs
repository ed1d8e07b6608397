//! A server in a container with users, processes and a network of its own, and whoever forwards a port into it.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::server::await_that;
use crate::users::can_become_others;

/// What is done inside: the loopback device is switched on, then the server begins.
const INSIDE: &str = "ip link set lo up && exec \"$0\" serve --listen 127.0.0.1:0 --no-supex";

/// The same without IPv6.
const INSIDE_WITHOUT_IPV6: &str = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && ip link set lo up && \
     exec \"$0\" serve --listen 127.0.0.1:0 --supex 127.0.0.1:0 --supex-repl 127.0.0.1:0";

/// A container and the server in it. Both are killed when this is dropped.
struct Container(Child);

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server in a container, as rootless containers are made: its root is the user who made it. None, and a
/// message, where that is not allowed.
fn start(home: &Path, inside: &str) -> Option<(Container, Value)> {
    let isolated = ["--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let works = Command::new("unshare").args(isolated).args(["ip", "link", "set", "lo", "up"]).output();
    if !works.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no container can be made here: {works:?}");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(isolated).args(["/bin/sh", "-c", inside, env!("CARGO_BIN_EXE_parlor")]);
    command.env("PARLOR_HOME", home).stdin(Stdio::null()).stdout(Stdio::null());
    let mut container = Container(command.spawn().unwrap());
    let served = await_that("the server", || {
        assert!(container.0.try_wait().unwrap().is_none(), "the container has ended");
        serde_json::from_str(&std::fs::read_to_string(home.join("serve.json")).ok()?).ok()
    });
    Some((container, served))
}

/// Asks for the token in the network and as the root of the container; `more` says what else is shared with it.
fn ask(container: &Container, port: u16, more: &[&str]) -> String {
    // The first process inside is the one that `unshare` has forked.
    let unshare = container.0.id();
    let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    let inside = children.trim().to_owned();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; \
         printf 'GET /api/supr/token HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    );
    let mut command = Command::new("nsenter");
    command.args(["--target", &inside, "--user", "--net"]).args(more).args(["bash", "-c", &script]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_port_that_is_forwarded_into_a_container_needs_the_token() {
    if !can_become_others() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some((container, served)) = start(folder.path(), INSIDE) else { return };
    let port: u16 = served["http"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    let forwarded = ask(&container, port, &[]);
    assert!(forwarded.starts_with("HTTP/1.1 401"), "{forwarded}");
    let inside = ask(&container, port, &["--pid", "--mount"]);
    assert!(inside.starts_with("HTTP/1.1 200"), "{inside}");
}

#[test]
fn a_machine_without_ipv6_is_served_by_ipv4_alone() {
    if !can_become_others() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some((container, served)) = start(folder.path(), INSIDE_WITHOUT_IPV6) else { return };
    for door in ["http", "supex", "supex_repl"] {
        assert!(served[door].as_str().unwrap().starts_with("127.0.0.1:"), "{served}");
    }
    let port: u16 = served["http"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    let answer = ask(&container, port, &["--pid", "--mount"]);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
