//! `parlor serve`, running, and plain connections to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use parlor_testkit::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// How long between two looks for a file of another process.
const LOOK: Duration = Duration::from_millis(5);

/// A server with a state folder of its own. It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) home: PathBuf,
    pub(crate) supex: SocketAddr,
    pub(crate) repl: SocketAddr,
    /// Kept for as long as the server needs it.
    _folder: Option<TempDir>,
}

/// The program on free ports, with none of our own variables.
pub(crate) fn command(home: &Path) -> Command {
    let mut command = Command::new(PARLOR);
    command.args(["serve", "--no-http", "--supex", "127.0.0.1:0", "--supex-repl", "127.0.0.1:0"]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SUPEX_") {
            command.env_remove(name);
        }
    }
    command.env("PARLOR_HOME", home).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(|_, _| {})
    }

    /// A server whose command line and state folder were prepared.
    pub(crate) fn with(prepare: impl FnOnce(&mut Command, &Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = command(folder.path());
        command.current_dir(folder.path());
        prepare(&mut command, folder.path());
        let mut server = Self::spawn(command, folder.path()).unwrap();
        server._folder = Some(folder);
        server
    }

    pub(crate) fn spawn(mut command: Command, home: &Path) -> Result<Self, String> {
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let deadline = Instant::now() + PATIENCE;
        let served = loop {
            if let Ok(text) = std::fs::read_to_string(home.join("serve.json")) {
                break serde_json::from_str::<Value>(&text).map_err(|error| error.to_string())?;
            }
            let has_ended = child.try_wait().map_err(|error| error.to_string())?.is_some();
            if has_ended || Instant::now() > deadline {
                let _ = child.kill();
                let mut said = String::new();
                let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
                return Err(format!("it does not serve: {said}"));
            }
            std::thread::sleep(LOOK);
        };
        assert_eq!(served["pid"], child.id());
        let address = |door: &str| served[door].as_str().and_then(|text| text.parse().ok());
        let none = SocketAddr::from(([0, 0, 0, 0], 0));
        Ok(Self {
            child,
            home: home.to_owned(),
            supex: address("supex").unwrap_or(none),
            repl: address("supex_repl").unwrap_or(none),
            _folder: None,
        })
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.supex)
    }

    /// A client that has said hello as this process.
    pub(crate) fn greeted(&self, pid: u32) -> Client {
        let mut client = self.client();
        let reply = client.ask(&hello(pid));
        assert_eq!(reply["result"]["success"], true, "{reply}");
        client
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        // It may have ended already.
        let _ = kill_process(pid, Signal::TERM);
        self.child.wait().unwrap()
    }

    /// Looks away from what it says on stderr.
    pub(crate) fn close_stderr(&mut self) {
        self.child.stderr = None;
    }

    /// All that it said on stderr, after its end.
    pub(crate) fn stderr(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    /// How much the process has of something, in KiB, by its name in `/proc/PID/status`.
    pub(crate) fn status_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The text of the console log.
    pub(crate) fn console_log(&self) -> String {
        std::fs::read_to_string(self.home.join("supex/console.log")).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn hello(pid: u32) -> String {
    let params = json!({"name": "supex-driver", "version": "0.2.0", "agent": "user", "pid": pid});
    json!({"jsonrpc": "2.0", "method": "hello", "params": params, "id": "hello"}).to_string()
}

pub(crate) fn eval(id: u64, code: &str) -> String {
    let params = json!({"name": "eval_ruby", "arguments": {"code": code}});
    json!({"jsonrpc": "2.0", "method": "tools/call", "params": params, "id": id}).to_string()
}

/// A client on a plain socket.
pub(crate) struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(4 * PATIENCE)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        self.send(format!("{line}\n").as_bytes());
    }

    /// The next line as it is, without its newline; none at the end, however abrupt.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end_matches('\n').to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no line: {error}"),
        }
    }

    pub(crate) fn reply(&mut self) -> Value {
        serde_json::from_str(&self.line().expect("a reply, not the end")).unwrap()
    }

    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.send_line(line);
        self.reply()
    }

    /// The value of an evaluation, or its error.
    pub(crate) fn eval(&mut self, id: u64, code: &str) -> Result<String, String> {
        outcome(&self.ask(&eval(id, code)))
    }

    pub(crate) fn half_close(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

/// What a reply to an evaluation says.
pub(crate) fn outcome(reply: &Value) -> Result<String, String> {
    match reply["result"]["result"].as_str() {
        Some(value) => Ok(value.to_owned()),
        None => Err(reply["error"]["message"].as_str().expect("a result or an error").to_owned()),
    }
}
