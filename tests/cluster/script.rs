//! `make cluster`: what it starts, what it prints, and that Ctrl-C leaves nothing behind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::server::PARLOR;

/// The script with all that it started. On drop, the script gets the signal of Ctrl-C, if it still runs.
struct Script(Child);

impl Script {
    fn interrupt(&self) {
        let group = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        // As a terminal does it: the whole group gets it.
        let _ = kill_process_group(group, Signal::INT);
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.interrupt();
            let _ = self.0.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn make_cluster_serves_three_nodes_and_ctrl_c_removes_everything() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/cluster.sh");
    let folder = tempfile::tempdir().unwrap();
    // The user of the server has to reach its folder in this one.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    let mut script = Script(
        Command::new(script)
            .arg(PARLOR)
            .env("TMPDIR", folder.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut output = BufReader::new(script.0.stdout.take().unwrap());
    let (mut nodes, mut homes, mut shown) = (Vec::new(), Vec::new(), String::new());
    loop {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "it ended early: {shown}");
        shown.push_str(&line);
        if line.starts_with("  node ") {
            let word = |start: &str| {
                let word = line.split_whitespace().find_map(|word| word.strip_prefix(start));
                word.unwrap().to_owned()
            };
            nodes.push(word("http://"));
            homes.push(word("PARLOR_HOME="));
        }
        if line.starts_with("Ctrl-C ends everything") {
            break;
        }
    }
    assert_eq!(nodes.len(), 3, "{shown}");
    for node in &nodes {
        assert_eq!(reqwest::get(format!("http://{node}ready")).await.unwrap().status(), 200);
    }
    let run = |home: &str, args: &[&str]| {
        let output = Command::new(PARLOR).args(args).env("PARLOR_HOME", home).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&homes[0], &["chat", "/say hello"]).contains("hello"));
    assert!(run(&homes[1], &["sessions"]).contains("/say hello"));
    script.interrupt();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(script.0.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("everything has ended"), "{rest}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    for node in &nodes {
        let address = node.trim_end_matches('/');
        assert!(std::net::TcpStream::connect(address).is_err(), "{address} is still served");
    }
}
