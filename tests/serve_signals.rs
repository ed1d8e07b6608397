//! Signals to `parlor serve`, what they change, and what it tells its supervisor.
#![expect(clippy::disallowed_methods, reason = "the program is started on a terminal as a user would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod home;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use home::{Home, PARLOR};
use parlor_testkit::STEP_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How often a test looks whether another process has written or removed a file.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A server whose supervisor is the test.
struct Supervised {
    home: Home,
    messages: UnixDatagram,
    child: Child,
}

impl Supervised {
    /// Starts `command` with a socket for messages and a file for its log, and waits until the server is ready.
    fn start(home: Home, mut command: Command) -> Self {
        let socket = home.folder().join("notify");
        let messages = UnixDatagram::bind(&socket).unwrap();
        messages.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
        let log = File::create(home.folder().join("log")).unwrap();
        command.env("NOTIFY_SOCKET", &socket).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        let server = Self { home, messages, child };
        assert_eq!(server.message(), "READY=1");
        server
    }

    /// The next message to the supervisor.
    fn message(&self) -> String {
        let mut buffer = [0; 256];
        let length = self.messages.recv(&mut buffer).expect("the server sends a message");
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    fn serve_file(&self) -> PathBuf {
        self.home.state().join("serve.json")
    }

    fn member(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.serve_file()).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()[name].clone()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.member("pid").as_i64().unwrap()).unwrap()).unwrap()
    }

    /// Asks the server to read its settings again, and waits until it has.
    fn reload(&self) {
        kill_process(self.pid(), Signal::HUP).unwrap();
        self.is_reloaded();
    }

    fn is_reloaded(&self) {
        let reloading = self.message();
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        assert_eq!(self.message(), "READY=1");
    }

    /// The complete lines of the log, once they have `text`. A thread of the server writes the log, so lines may come after
    /// what they report.
    fn log_with(&self, text: &str) -> String {
        let read = || {
            let log = std::fs::read_to_string(self.home.folder().join("log")).unwrap();
            log.rfind('\n').map_or(String::new(), |end| log.get(..=end).unwrap().to_owned())
        };
        wait_until(&format!("the log lacks {text}: {}", read()), || read().contains(text));
        read()
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.member("http").as_str().unwrap()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // Each fails if the process has ended, which is the usual case.
        if self.serve_file().exists() {
            let _ = kill_process(self.pid(), Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(home: &Home) -> Command {
    home.command(&["serve", "--listen", "127.0.0.1:0", "--no-supex"])
}

/// A server on a terminal that the test can close by killing its first process.
fn serve_on_terminal(home: &Home, prefix: &str) -> Command {
    let mut command = home.command(&[]);
    let environment: Vec<_> =
        command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    command = Command::new("script");
    let shell = format!("exec {prefix}{PARLOR} serve --listen 127.0.0.1:0 --no-supex");
    command.args(["-qec", &shell, "/dev/null"]).current_dir(home.folder()).stdin(Stdio::null());
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn wait_until(what: &str, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + STEP_TIMEOUT;
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[test]
fn a_hang_up_reads_the_settings_again() {
    let home = Home::new();
    home.configure("parlor.toml", "default_agent = \"a\"\n[agents.a]\nkind = \"local\"\nname = \"First\"\n");
    let command = serve(&home);
    let mut server = Supervised::start(home, command);
    assert!(server.get("/api/choices").contains("First"));

    let changed = "default_agent = \"b\"\n[agents.b]\nkind = \"local\"\nname = \"Second\"\n[serve]\nallow_local = \"token\"\n\
                   [channels.supr]\ntoken = \"a-new-token-for-later\"\n";
    server.home.configure("parlor.toml", changed);
    server.reload();
    let choices = server.get("/api/choices");
    assert!(choices.contains("Second") && !choices.contains("First"), "{choices}");
    server.log_with("changed: agents.a.commands, agents.a.kind, agents.a.name, agents.b.commands, agents.b.kind, agents.b.name, default_agent");
    let log = server.log_with("take effect after a restart: channels.supr, serve.allow_local");
    assert!(!log.contains("a-new-token"), "{log}");

    server.home.configure("parlor.toml", "[agents.c]\nkind = \"modle\"\n");
    server.reload();
    let log = server.log_with("line 2: agents.c.kind takes");
    assert!(log.contains("the old ones stay in force"), "{log}");
    assert!(server.get("/api/choices").contains("Second"));

    kill_process(server.pid(), Signal::TERM).unwrap();
    assert_eq!(server.message(), "STOPPING=1");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_server_deletes_old_sessions_by_itself_if_the_settings_say_so() {
    let home = Home::new();
    home.prints(&["chat", "/say old"]);
    let old = home.last_session();
    home.prints(&["chat", "/say new"]);
    home.age(&old, 91);
    let command = serve(&home);
    let server = Supervised::start(home, command);
    let titles = || server.home.prints(&["sessions", "--json"]);
    server.reload();
    assert!(titles().contains("/say old"), "{}", titles());

    server.home.configure("parlor.toml", "[retention]\nautomatic = true\n");
    server.reload();
    wait_until("the old session is deleted", || !titles().contains("/say old"));
    assert!(titles().contains("/say new"), "{}", titles());
    server.home.age(&server.home.last_session(), 80);
    server.home.configure("parlor.toml", "[retention]\nautomatic = true\ndays = 79\n");
    server.reload();
    wait_until("the new limit deletes the other session", || !titles().contains("/say new"));
}

#[test]
fn a_script_that_is_no_regular_file_does_not_stop_a_reload_or_the_end() {
    let home = Home::new();
    let command = serve(&home);
    let mut server = Supervised::start(home, command);
    let fifo = server.home.folder().join("script.toml");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    server.home.configure("parlor.toml", &format!("[agents.a]\nkind = \"script\"\nfile = {fifo:?}\n"));
    server.reload();
    server.log_with("it is not a regular file");
    kill_process(server.pid(), Signal::TERM).unwrap();
    assert_eq!(server.message(), "STOPPING=1");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn the_log_has_one_json_object_a_line_on_request() {
    let home = Home::new();
    home.configure("parlor.toml", "[channels.supr]\ntoken = \"a-secret-token-of-this-test\"\n");
    let mut command =
        home.command(&["serve", "--listen", "127.0.0.1:0", "--no-supex", "--log-format", "json"]);
    command.env("PARLOR_LOG", "info");
    let server = Supervised::start(home, command);
    server.reload();
    let log = server.log_with("the settings were read again");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let serving = lines.iter().find(|line| line["message"] == "serving").unwrap();
    assert_eq!((&serving["level"], &serving["http"]), (&"INFO".into(), &server.member("http")));
    assert!(serving["timestamp"].is_string() && !log.contains("a-secret-token"), "{log}");
}

#[test]
fn a_server_ends_with_its_terminal() {
    let home = Home::new();
    let command = serve_on_terminal(&home, "");
    let mut server = Supervised::start(home, command);
    // With a terminal, the signal still means a reload.
    server.reload();
    server.child.kill().unwrap();
    assert_eq!(server.message(), "STOPPING=1");
    wait_until("the server has not ended", || !server.serve_file().exists());
}

#[test]
fn a_server_of_nohup_outlives_its_terminal() {
    let home = Home::new();
    let command = serve_on_terminal(&home, "nohup ");
    let mut server = Supervised::start(home, command);
    let pid = server.pid();
    server.child.kill().unwrap();
    server.is_reloaded();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(server.message(), "STOPPING=1");
    wait_until("the server has not ended", || !server.serve_file().exists());
}
