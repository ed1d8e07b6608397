//! A server in a container with its own user, process and network namespaces, and connections that are forwarded into it.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::server::wait_for;
use crate::users::can_switch_users;

/// The script inside the container: switches on the loopback device and starts the server.
const INSIDE: &str = "ip link set lo up && exec \"$0\" serve --listen 127.0.0.1:0 --no-supex";

/// The same without IPv6.
const INSIDE_WITHOUT_IPV6: &str = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && ip link set lo up && \
     exec \"$0\" serve --listen 127.0.0.1:0 --supex 127.0.0.1:0 --supex-repl 127.0.0.1:0";

/// A container and the server in it. Both are killed on drop.
struct Container(Child);

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server in a rootless container, whose root is the user who created it. Prints a message and returns `None` if
/// this machine does not allow that.
fn start(home: &Path, inside: &str) -> Option<(Container, Value)> {
    let isolated = ["--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let works = Command::new("unshare").args(isolated).args(["ip", "link", "set", "lo", "up"]).output();
    if !works.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no container can be created here: {works:?}");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(isolated).args(["/bin/sh", "-c", inside, env!("CARGO_BIN_EXE_parlor")]);
    command.env("PARLOR_HOME", home).stdin(Stdio::null()).stdout(Stdio::null());
    let mut container = Container(command.spawn().unwrap());
    let served = wait_for("the server", || {
        assert!(container.0.try_wait().unwrap().is_none(), "the container has ended");
        serde_json::from_str(&std::fs::read_to_string(home.join("serve.json")).ok()?).ok()
    });
    Some((container, served))
}

/// Requests the token from within the network namespace of the container and as its root. `namespaces` are the flags of
/// further namespaces to enter.
fn request_token(container: &Container, port: u16, namespaces: &[&str]) -> String {
    // The first process inside is the one that `unshare` forked.
    let unshare = container.0.id();
    let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    let inside = children.trim().to_owned();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; \
         printf 'GET /api/supr/token HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    );
    let mut command = Command::new("nsenter");
    command.args(["--target", &inside, "--user", "--net"]).args(namespaces).args(["bash", "-c", &script]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_connection_forwarded_into_a_container_needs_the_token() {
    if !can_switch_users() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some((container, served)) = start(folder.path(), INSIDE) else { return };
    let port: u16 = served["http"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    let forwarded = request_token(&container, port, &[]);
    assert!(forwarded.starts_with("HTTP/1.1 401"), "{forwarded}");
    let inside = request_token(&container, port, &["--pid", "--mount"]);
    assert!(inside.starts_with("HTTP/1.1 200"), "{inside}");
}

#[test]
fn on_a_machine_without_ipv6_the_server_listens_on_ipv4_only() {
    if !can_switch_users() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some((container, served)) = start(folder.path(), INSIDE_WITHOUT_IPV6) else { return };
    for door in ["http", "supex", "supex_repl"] {
        assert!(served[door].as_str().unwrap().starts_with("127.0.0.1:"), "{served}");
    }
    let port: u16 = served["http"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    let response = request_token(&container, port, &["--pid", "--mount"]);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}
