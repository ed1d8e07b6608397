//! A reader who follows a page: a home folder, a shell, and a server when the page needs one.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use parlor_testkit::STEP_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::markdown::{Block, matches};

const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A block that takes longer hangs. Generous, for a machine that does many other things.
const BLOCK_SECONDS: &str = "120";

/// The addresses that pages name. The server of the test listens elsewhere, so that it disturbs no other.
const HTTP: &str = "127.0.0.1:18790";
const SUPEX: &str = "9876";
const SUPEX_CONSOLE: &str = "4433";

/// `sleep` on a page stands for "until the answer has arrived", so it waits for as many lines as the page shows.
const SLEEP: &str = r#"
sleep() {
  local tries
  for tries in {1..1000}; do
    [ "$(wc -l <"$DOCS_OUTPUT")" -lt "$DOCS_LINES" ] || return 0
    command sleep 0.05
  done
}
"#;

/// Removes everything that it started and wrote when it is dropped.
pub(crate) struct Reader {
    folder: tempfile::TempDir,
    server: Option<Server>,
}

struct Server {
    process: Child,
    /// What `serve.json` says.
    addresses: Value,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin", "home", "home/project"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        symlink(PARLOR, folder.path().join("bin/parlor")).unwrap();
        Self { folder, server: None }
    }

    /// Runs a block, and says what differs from the page.
    pub(crate) fn run(&mut self, block: &Block) -> Result<(), String> {
        let needs_server = [HTTP, &format!(" {SUPEX}"), &format!(" {SUPEX_CONSOLE}"), "parlor supex"]
            .iter()
            .any(|sign| block.commands.contains(sign));
        if needs_server && self.server.is_none() {
            self.server = Some(Server::start(self.folder.path(), self.command(PARLOR)));
        }
        // The server of a page runs in another terminal.
        let lines = block.commands.lines().filter(|line| !line.starts_with("parlor serve"));
        let commands = self.with_real_addresses(&lines.collect::<Vec<_>>().join("\n"));
        let expected = block.output.as_ref().map(|output| self.with_real_addresses(output));
        let expected_lines = expected.as_ref().map_or(0, |expected| expected.lines().count());

        let output = self.path("output");
        let mut shell = self.command("timeout");
        shell
            .args(["--kill-after=5", BLOCK_SECONDS, "bash", "-c"])
            .arg(format!("set -e\n{SLEEP}{commands}\n"));
        shell.env("DOCS_OUTPUT", &output).env("DOCS_LINES", expected_lines.to_string());
        shell.stdin(Stdio::null()).stdout(std::fs::File::create(&output).unwrap()).stderr(Stdio::piped());
        let done = shell.output().unwrap();
        let printed = std::fs::read_to_string(&output).unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        if !done.status.success() {
            return Err(format!("{}\n{commands}\nprinted\n{printed}{errors}", done.status));
        }
        match expected {
            Some(expected) if !same_lines(&expected, &printed) => {
                Err(format!("\n{commands}\nprinted\n{printed}{errors}\nthe page says\n{expected}"))
            }
            _ => Ok(()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program in the project of the reader, with nothing of the developer's environment but the path.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env_clear().env("PATH", format!("{}:{path}", self.path("bin").display()));
        command.env("HOME", self.path("home")).env("LANG", "C.UTF-8").current_dir(self.path("home/project"));
        command
    }

    fn with_real_addresses(&self, text: &str) -> String {
        let Some(server) = &self.server else { return text.to_owned() };
        let mut text = text.replace(HTTP, server.address("http"));
        for (port, door) in [(SUPEX, "supex"), (SUPEX_CONSOLE, "supex_repl")] {
            for before in ["127.0.0.1 ", "127.0.0.1:"] {
                text = text.replace(&format!("{before}{port}"), &format!("{before}{}", server.port(door)));
            }
        }
        text
    }
}

fn same_lines(expected: &str, printed: &str) -> bool {
    let (expected, printed): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), printed.lines().collect());
    expected.len() == printed.len()
        && expected.iter().zip(&printed).all(|(expected, printed)| matches(expected, printed))
}

impl Server {
    /// Starts a server on free ports and waits until its doors are open.
    fn start(folder: &Path, mut serve: Command) -> Self {
        let socket = folder.join("notify");
        let messages = UnixDatagram::bind(&socket).unwrap();
        messages.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
        let free = "127.0.0.1:0";
        serve.args(["serve", "--listen", free, "--supex", free, "--supex-repl", free]);
        serve.env("NOTIFY_SOCKET", &socket).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = serve.spawn().unwrap();
        let mut server = Self { process, addresses: Value::Null };
        let mut buffer = [0; 64];
        let length = messages.recv(&mut buffer).expect("parlor serve reports that it is ready");
        assert_eq!(&buffer[..length], b"READY=1");
        let text = std::fs::read_to_string(folder.join("home/.parlor/serve.json")).unwrap();
        server.addresses = serde_json::from_str(&text).unwrap();
        server
    }

    fn address(&self, door: &str) -> &str {
        self.addresses[door].as_str().expect("an address of the door in serve.json")
    }

    fn port(&self, door: &str) -> &str {
        self.address(door).rsplit_once(':').expect("an address with a port").1
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It also ends the Ruby that it started. If it is gone already, there is nothing to end.
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        let _ = self.process.wait();
    }
}
