//! Children in a sandbox: streams, terminals, signals, and what is left when they have ended.

#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod common;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use common::{TestProcess, is_running, script, terminal};
use parlor_process::{
    ProcessNumber, ProxyAddresses, ProxyDecision, ProxyRules, Sandbox, SandboxNetwork, SpawnError,
    TERMINATE_GRACE, spawn_in,
};
use parlor_testkit::folder_outside_tmp;
use parlor_vocab::{PolicyMode, ProcessExit, StartProcess};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A project folder with its sandbox.
struct Project {
    folder: tempfile::TempDir,
    sandbox: Sandbox,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::new(PolicyMode::Workspace, folder.path(), None);
        Self { folder, sandbox }
    }

    fn start(&self, start: StartProcess) -> Result<TestProcess, SpawnError> {
        let start = StartProcess { folder: self.folder.path().to_path_buf(), ..start };
        let (sender, reports) = mpsc::channel(4);
        let process = spawn_in(Some(&self.sandbox), &start, ProcessNumber(7), sender)?;
        Ok(TestProcess::new(process, reports))
    }

    async fn run(&self, start: StartProcess) -> (TestProcess, ProcessExit) {
        let mut process = self.start(start).expect("the process starts");
        let exit = process.end().await;
        (process, exit)
    }
}

#[tokio::test]
async fn a_sandboxed_child_writes_its_project_and_nothing_else() {
    let project = Project::new();
    let (process, exit) =
        project.run(script("echo in > file && cat file; echo out > /etc/file || exit 3")).await;
    assert_eq!(exit, ProcessExit::Code(3));
    assert_eq!(process.shown(), "in\n");
    assert!(project.folder.path().join("file").exists());
}

#[tokio::test]
async fn a_read_only_sandbox_writes_only_temporary_files() {
    let mut project = Project::new();
    project.sandbox.mode = PolicyMode::ReadOnly;
    let (process, _) =
        project.run(script("echo x > file || echo refused; echo y > $TMPDIR/y; cat /tmp/y")).await;
    assert_eq!(process.shown(), "refused\ny\n");
}

#[tokio::test]
async fn a_sandboxed_child_has_a_terminal_with_a_name() {
    let project = Project::new();
    let (process, exit) = project.run(terminal("tty; echo typed > /dev/tty; stty size")).await;
    assert_eq!(process.shown().replace('\r', ""), "/dev/console\ntyped\n24 80\n");
    assert_eq!(exit, ProcessExit::Code(0));
}

#[tokio::test]
async fn a_sandboxed_child_gets_signals_and_dies_of_them() {
    let project = Project::new();
    let mut process =
        project.start(script("trap 'echo got; exit 5' TERM; echo ready; sleep 60 & wait")).unwrap();
    process.until("ready").await;
    assert!(process.process.terminate(TERMINATE_GRACE));
    assert_eq!(process.end().await, ProcessExit::Code(5));
    assert!(process.shown().ends_with("got\n"));
    let (_, exit) = project.run(script("kill -9 $$")).await;
    assert_eq!(exit, ProcessExit::Signal(9));
}

#[tokio::test]
async fn daemons_end_with_the_child() {
    let project = Project::new();
    // The pid inside is another than ours, so it is found by its arguments.
    let mark = "86399.25";
    let daemon = format!(
        "setsid sh -c 'echo started > started; exec sleep {mark}' > /dev/null 2>&1 & while ! [ -s started ]; do :; done"
    );
    let (_, exit) = project.run(script(&daemon)).await;
    assert_eq!(exit, ProcessExit::Code(0));
    let arguments = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
    assert!(!arguments.into_iter().any(|text| text.contains(mark)));
}

#[tokio::test]
async fn a_temp_folder_is_shared_by_children_and_seen_by_nobody_else() {
    let mut project = Project::new();
    let temp = tempfile::tempdir().unwrap();
    project.sandbox.temp_folder = Some(temp.path().to_path_buf());
    project.run(script("echo kept > /tmp/a")).await;
    let (process, _) = project.run(script("cat /tmp/a")).await;
    assert_eq!(process.shown(), "kept\n");
    project.sandbox.temp_folder = None;
    let (process, _) = project.run(script("ls /tmp/a || echo none")).await;
    assert_eq!(process.shown(), "none\n");
}

#[tokio::test]
async fn paths_have_the_rights_of_the_nearest_folder() {
    let mut project = Project::new();
    // Not in /tmp, which is private in a sandbox.
    let other = folder_outside_tmp(env!("CARGO_TARGET_TMPDIR"));
    for name in ["open/locked", "secret/public"] {
        std::fs::create_dir_all(other.path().join(name)).unwrap();
        std::fs::write(other.path().join(name).join("file"), "text\n").unwrap();
    }
    let at = |name: &str| other.path().join(name);
    project.sandbox.writable = vec![at("open")];
    project.sandbox.protected = vec![at("open/locked")];
    project.sandbox.readable = vec![at("secret/public"), at("missing")];
    project.sandbox.hidden = vec![at("secret"), at("missing/too")];
    let test = format!(
        "cd {} && echo x > open/x && cat secret/public/file && ls secret && \
         ! touch open/locked/file && ! touch open/locked/new && ! mv open/locked open/moved && ! touch secret/new",
        other.path().display()
    );
    let (process, exit) = project.run(script(&test)).await;
    assert_eq!(process.shown(), "text\npublic\n");
    assert_eq!(exit, ProcessExit::Code(0), "{}", String::from_utf8_lossy(&process.stderr));
}

#[tokio::test]
async fn a_hidden_path_is_not_freed_by_a_rename_of_a_folder_around_it() {
    let mut project = Project::new();
    let at = |name: &str| project.folder.path().join(name);
    std::fs::create_dir_all(at("conf/deep/keys")).unwrap();
    std::fs::create_dir_all(at("conf/kept/rules")).unwrap();
    std::fs::write(at("conf/deep/keys/key"), "hidden text\n").unwrap();
    std::fs::write(at("conf/secret"), "hidden text\n").unwrap();
    project.sandbox.hidden = vec![at("conf/deep/keys"), at("conf/secret")];
    project.sandbox.protected = vec![at("conf/kept/rules")];
    let test = "mv conf conf2 || mv conf/deep conf/deep2 || mv conf/kept conf/kept2 || echo busy; \
                grep -rs 'hidden text' .; touch conf/kept/rules/new || echo kept; \
                echo x > conf/deep/x && mv conf/deep/x conf/y && cat conf/y";
    let (process, _) = project.run(script(test)).await;
    assert_eq!(process.shown(), "busy\nkept\nx\n");
}

#[tokio::test]
async fn what_is_hidden_stays_hidden_whatever_else_is_said_of_it() {
    let mut project = Project::new();
    let at = |name: &str| project.folder.path().join(name);
    for name in [".git/hooks", ".codex", "both", "linked"] {
        std::fs::create_dir_all(at(name)).unwrap();
        std::fs::write(at(name).join("file"), "hidden text\n").unwrap();
    }
    std::fs::write(at(".git/config"), "hidden text\n").unwrap();
    std::os::unix::fs::symlink("linked", at("link")).unwrap();
    project.sandbox.hidden = vec![at(".git"), at(".codex"), at("both"), at("link")];
    project.sandbox.readable = vec![at("both")];
    project.sandbox.writable = vec![at("both"), at("linked")];
    project.sandbox.protected = vec![at("both"), at("linked/file")];
    let (process, _) = project.run(script("grep -rs 'hidden text' . || echo none")).await;
    assert_eq!(process.shown(), "none\n");
    project.sandbox.hidden = vec![project.folder.path().to_path_buf()];
    assert!(
        matches!(project.start(script("")), Err(SpawnError::Sandbox(text)) if text.contains("is hidden"))
    );
}

#[tokio::test]
async fn paths_in_the_machines_temp_folder_can_be_hidden() {
    let mut project = Project::new();
    let secret = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::create_dir(secret.path().join("deep")).unwrap();
    std::fs::write(secret.path().join("deep/key"), "hidden text\n").unwrap();
    std::fs::write(secret.path().join("seen"), "seen\n").unwrap();
    project.sandbox.temp_folder = Some("/tmp".into());
    project.sandbox.hidden = vec![secret.path().join("deep")];
    let name = secret.path().file_name().unwrap().to_str().unwrap();
    let test = format!(
        "cat /tmp/{name}/seen; mv /tmp/{name} /tmp/{name}-moved; mv /tmp/{name}/deep /tmp/{name}/d; \
         grep -rs 'hidden text' /tmp/{name}* /var/tmp/{name}* || echo none"
    );
    let (process, _) = project.run(script(&test)).await;
    assert_eq!(process.shown(), "seen\nnone\n");
}

#[tokio::test]
async fn a_failed_start_leaves_nothing() {
    let project = Project::new();
    let start = StartProcess { program: "/no/such".to_owned(), ..script("") };
    assert!(matches!(project.start(start), Err(SpawnError::Program { .. })));
    let mut nowhere = Project::new();
    nowhere.sandbox.project = "/no/such".into();
    assert!(matches!(nowhere.start(script("")), Err(SpawnError::Sandbox(_))));
    nowhere.sandbox.project = "/".into();
    assert!(matches!(nowhere.start(script("")), Err(SpawnError::Sandbox(_))));
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    for child in children.split_whitespace() {
        let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        assert!(!name.starts_with("parlor-sandbox") || is_running(child.parse().unwrap()));
    }
}

/// Allows `allowed.test`, which is this machine.
#[derive(Debug)]
struct OneHost;

impl ProxyRules for OneHost {
    fn allows<'a>(&'a self, host: &'a str, _: u16) -> ProxyDecision<'a> {
        Box::pin(async move { host == "allowed.test" })
    }

    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> ProxyAddresses<'a> {
        Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
    }

    fn allows_address(&self, _: IpAddr) -> bool {
        true
    }
}

#[tokio::test]
async fn a_sandbox_reaches_allowed_hosts_through_its_proxy_only() {
    let mut project = Project::new();
    project.sandbox.network = SandboxNetwork::Proxy(Arc::new(OneHost));
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = server.accept().await {
            let mut request = [0; 4096];
            let _ = peer.read(&mut request).await;
            let _ = peer.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").await;
        }
    });
    let test = format!(
        r#"
import socket, urllib.request
def get(url):
    try: return urllib.request.urlopen(url, timeout=20).read().decode()
    except Exception as error: return str(error)
print(get("http://allowed.test:{port}/"))
print(get("http://other.test:{port}/"))
print(get("http://10.1.1.1:{port}/"))
try: socket.create_connection(("127.0.0.1", {port}), 5); print("reached")
except OSError: print("not reached")
"#
    );
    std::fs::write(project.folder.path().join("test.py"), test).unwrap();
    let (process, _) = project.run(script("python3 test.py")).await;
    let expected = "hello\nHTTP Error 403: Forbidden\nHTTP Error 400: Bad Request\nnot reached\n";
    assert_eq!(process.shown(), expected, "{}", String::from_utf8_lossy(&process.stderr));
}
