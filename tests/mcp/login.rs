//! `parlor mcp login` at a server and an authorization server on loopback.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::server::PARLOR;

/// A process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn parlor(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PARLOR);
    command.args(args).env("PARLOR_HOME", home).env("CI", "1").stdin(Stdio::null());
    command
}

fn run(home: &Path, args: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } = parlor(home, args).output().expect("parlor runs");
    (status.success(), String::from_utf8([stdout, stderr].concat()).expect("text"))
}

#[tokio::test]
async fn a_login_to_a_server_is_found_used_renewed_and_deleted() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mcp/login_server.py");
    let mut server =
        Command::new("python3").arg(script).stdout(Stdio::piped()).spawn().expect("python3 starts");
    let mut port = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut port).expect("a line");
    let _server = Running(server);
    let address = format!("http://127.0.0.1:{}", port.trim());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let home = folder.path();
    assert!(run(home, &["mcp", "add", "locked", &format!("{address}/mcp")]).0);

    let (is_ok, text) = run(home, &["mcp", "test", "locked"]);
    assert!(!is_ok && text.contains("wants a login"), "{text}");
    assert!(text.contains("run: parlor mcp login locked --scope files:read"), "{text}");

    let mut login = Running(
        parlor(home, &["mcp", "login", "locked"]).stdout(Stdio::piped()).spawn().expect("parlor starts"),
    );
    let mut lines = BufReader::new(login.0.stdout.take().expect("piped"));
    let mut url = String::new();
    lines.read_line(&mut url).expect("a line");
    assert!(url.starts_with(&format!("{address}/authorize?")) && url.contains("scope=files%3Aread"), "{url}");
    // A browser follows the redirect to the callback.
    let page = reqwest::get(url.trim()).await.expect("the callback answers");
    assert!(page.status().is_success(), "{page:?}");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("text");
    assert!(login.0.wait().expect("it ends").success() && rest.contains("Logged in to locked"), "{rest}");

    let works = || {
        let (is_ok, text) = run(home, &["mcp", "test", "locked"]);
        assert!(is_ok && text.contains("secret_tool"), "{text}");
    };
    works();
    reqwest::get(format!("{address}/revoke")).await.expect("it answers");
    works();

    // The login counts for this address only.
    let settings = std::fs::read_to_string(home.join("parlor.toml")).expect("the settings");
    std::fs::write(home.join("parlor.toml"), settings.replace("/mcp\"", "/other\"")).expect("written");
    let (is_ok, text) = run(home, &["mcp", "test", "locked"]);
    assert!(!is_ok && text.contains("wants a login"), "{text}");
    std::fs::write(home.join("parlor.toml"), settings).expect("written");
    works();
    assert!(run(home, &["mcp", "logout", "locked"]).1.contains("Logged out of locked"));
    let (is_ok, text) = run(home, &["mcp", "test", "locked"]);
    assert!(!is_ok && !text.contains("access-number"), "{text}");
}
