//! A running `parlor serve` with the supex doors, and plain TCP clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use parlor_testkit::STEP_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// How often a helper looks whether another process has written a file.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A server process with its own state folder. The process is killed on drop.
pub(crate) struct Server {
    child: Child,
    pub(crate) home: PathBuf,
    pub(crate) supex: SocketAddr,
    pub(crate) repl: SocketAddr,
    /// Deleted when the server is dropped.
    _folder: Option<TempDir>,
}

/// `parlor serve` on free ports, without the `SUPEX_` variables of this process.
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

    /// A server whose command line and state folder `prepare` has changed.
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
        let deadline = Instant::now() + STEP_TIMEOUT;
        let served = loop {
            if let Ok(text) = std::fs::read_to_string(home.join("serve.json")) {
                break serde_json::from_str::<Value>(&text).map_err(|error| error.to_string())?;
            }
            let has_ended = child.try_wait().map_err(|error| error.to_string())?.is_some();
            if has_ended || Instant::now() > deadline {
                let _ = child.kill();
                let mut log = String::new();
                let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut log));
                return Err(format!("the server does not start: {log}"));
            }
            std::thread::sleep(POLL_INTERVAL);
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

    /// A client that has sent hello with this process id.
    pub(crate) fn client_after_hello(&self, pid: u32) -> Client {
        let mut client = self.client();
        let reply = client.request(&hello(pid));
        assert_eq!(reply["result"]["success"], true, "{reply}");
        client
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        // The process may have ended already.
        let _ = kill_process(pid, Signal::TERM);
        self.child.wait().unwrap()
    }

    /// Closes the reading end of the server's stderr.
    pub(crate) fn close_stderr(&mut self) {
        self.child.stderr = None;
    }

    /// All that the server wrote to stderr. Call it after the server has stopped.
    pub(crate) fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// A value in KiB from `/proc/PID/status`, such as `VmRSS`.
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

/// A client on a plain TCP socket.
pub(crate) struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(4 * STEP_TIMEOUT)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        self.send(format!("{line}\n").as_bytes());
    }

    /// The next line without its newline, or `None` when the connection was closed or reset.
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
        serde_json::from_str(&self.line().expect("the server has not closed the connection")).unwrap()
    }

    pub(crate) fn request(&mut self, line: &str) -> Value {
        self.send_line(line);
        self.reply()
    }

    /// Evaluates Ruby code and returns its value or its error message.
    pub(crate) fn eval(&mut self, id: u64, code: &str) -> Result<String, String> {
        outcome(&self.request(&eval(id, code)))
    }

    pub(crate) fn half_close(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

/// The value or the error message in the reply to an evaluation.
pub(crate) fn outcome(reply: &Value) -> Result<String, String> {
    match reply["result"]["result"].as_str() {
        Some(value) => Ok(value.to_owned()),
        None => Err(reply["error"]["message"].as_str().expect("a result or an error").to_owned()),
    }
}
