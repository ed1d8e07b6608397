//! The programs of these tests: parlor, and the proxies, each with its part of `docs/proxy.md`.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parlor_testkit::STEP_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// The name of the server in the blocks.
pub(crate) const NAME: &str = "chat.example.org";

pub(crate) const TOKEN: &str = "s3cret-0f-the-proxy-tests";

/// The address of parlor in the blocks.
const PARLOR_ADDRESS: &str = "127.0.0.1:18790";

/// How often a helper looks whether a program has started.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How many ports to try: another program may take a free port before the proxy does.
const PORT_TRIES: usize = 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxyKind {
    program: &'static str,
    /// The language of its block in the document.
    language: &'static str,
    /// Writes the configuration: the block, the port, the folder with `cert.pem` and `key.pem`.
    configuration: fn(&str, u16, &Path) -> String,
    arguments: fn(&Path) -> Vec<String>,
}

pub(crate) const NGINX: ProxyKind = ProxyKind {
    program: "nginx",
    language: "nginx",
    configuration: nginx_configuration,
    arguments: |folder| {
        let folder = folder.display();
        vec![
            "-p".into(),
            format!("{folder}"),
            "-c".into(),
            format!("{folder}/config"),
            "-e".into(),
            "stderr".into(),
        ]
    },
};

pub(crate) const CADDY: ProxyKind = ProxyKind {
    program: "caddy",
    language: "caddyfile",
    configuration: caddy_configuration,
    arguments: |folder| {
        let file = format!("{}/config", folder.display());
        ["run", "--adapter", "caddyfile", "--config", &file].map(str::to_owned).to_vec()
    },
};

/// Replaces `from`, which has to be there: a test of a block that was not used would say nothing.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "docs/proxy.md has no {from:?}");
    text.replace(from, to)
}

fn nginx_configuration(block: &str, port: u16, folder: &Path) -> String {
    let folder = folder.display();
    let block = replaced(block, "listen 443 ssl;", &format!("listen 127.0.0.1:{port} ssl;"));
    let block = replaced(&block, "/etc/ssl/chat.example.org.pem", &format!("{folder}/cert.pem"));
    let block = replaced(&block, "/etc/ssl/chat.example.org.key", &format!("{folder}/key.pem"));
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {folder}/{name};\n"))
        .collect();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nevents {{}}\n\
         http {{\naccess_log off;\n{paths}{block}\n}}\n"
    )
}

fn caddy_configuration(block: &str, port: u16, folder: &Path) -> String {
    let folder = folder.display();
    let site = format!("{NAME}:{port} {{\n    bind 127.0.0.1\n    tls {folder}/cert.pem {folder}/key.pem");
    let block = replaced(block, &format!("{NAME} {{"), &site);
    format!("{{\n    admin off\n    auto_https disable_redirects\n}}\n{block}")
}

/// The only block of this language in `docs/proxy.md`, or the first of several.
fn block(language: &str) -> String {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/proxy.md")).unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// A program in `PATH`, among the system's, or where `scripts/setup.sh` has unpacked it.
fn find(program: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/proxies");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin".into(), target.join("usr/sbin"), target.join("usr/bin")];
    let mut files = std::env::split_paths(&path).chain(more).map(|folder| folder.join(program));
    files.find(|file| file.is_file()).unwrap_or_else(|| panic!("{program} is missing: run make setup"))
}

/// A program that is killed and waited for when the test ends.
struct Running(Child);

impl Running {
    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    fn log(&mut self) -> String {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let mut log = Vec::new();
        self.0.stderr.take().map(|mut stderr| stderr.read_to_end(&mut log));
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `parlor serve` with the settings of the document.
pub(crate) struct Parlor {
    running: Running,
    pub(crate) http: SocketAddr,
    home: TempDir,
}

impl Parlor {
    pub(crate) fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let settings = format!("{}token = {TOKEN:?}\n", block("toml"));
        std::fs::write(home.path().join("parlor.toml"), settings).unwrap();
        let mut command = Self::command(&home);
        command.args(["serve", "--listen", "127.0.0.1:0", "--no-supex"]).stdout(Stdio::null());
        let mut running = Running(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let pid = running.0.id();
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            let text = std::fs::read_to_string(home.path().join("serve.json")).unwrap_or_default();
            let served: Value = serde_json::from_str(&text).unwrap_or_default();
            if served["pid"] == pid {
                let http = served["http"].as_str().unwrap().parse().unwrap();
                return Self { running, http, home };
            }
            if running.has_ended() || Instant::now() > deadline {
                panic!("the server does not start: {}", running.log());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn command(home: &TempDir) -> Command {
        let mut command = Command::new(PARLOR);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SUPRCLAW_") {
                command.env_remove(name);
            }
        }
        command.env("PARLOR_HOME", home.path()).env("PARLOR_LOG", "info").current_dir(home.path());
        command
    }

    /// Runs another command with the same state folder.
    pub(crate) fn run(&self, arguments: &[&str]) {
        let output = Self::command(&self.home).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Ends the server and returns its log.
    pub(crate) fn stop(mut self) -> String {
        let pid = Pid::from_raw(self.running.0.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        self.running.0.wait().unwrap();
        self.running.log()
    }
}

/// A proxy with its block of the document.
pub(crate) struct Proxy {
    _running: Running,
    pub(crate) address: SocketAddr,
    _folder: TempDir,
}

impl Proxy {
    pub(crate) fn start(kind: ProxyKind, parlor: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        make_certificate(folder.path());
        let block = replaced(&block(kind.language), PARLOR_ADDRESS, &parlor.to_string());
        let mut log = String::new();
        for _ in 0..PORT_TRIES {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            let configuration = (kind.configuration)(&block, address.port(), folder.path());
            std::fs::write(folder.path().join("config"), configuration).unwrap();
            let mut command = Command::new(find(kind.program));
            command.args((kind.arguments)(folder.path())).current_dir(folder.path());
            // Caddy keeps its files in the home folder.
            command
                .env("HOME", folder.path())
                .env("XDG_DATA_HOME", folder.path())
                .env("XDG_CONFIG_HOME", folder.path());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut running = Running(command.spawn().unwrap());
            match wait_until_it_listens(&mut running, address) {
                true => return Self { _running: running, address, _folder: folder },
                false => log = running.log(),
            }
        }
        panic!("{} does not start: {log}", kind.program);
    }
}

/// Whether the program serves at the address. If it cannot, it ends.
fn wait_until_it_listens(running: &mut Running, address: SocketAddr) -> bool {
    let deadline = Instant::now() + STEP_TIMEOUT;
    while Instant::now() < deadline && !running.has_ended() {
        if TcpStream::connect(address).is_ok() {
            // It is not another program that has taken the port in between: that would make this one end.
            return !running.has_ended();
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    false
}

/// Makes `cert.pem` and `key.pem` for [`NAME`].
fn make_certificate(folder: &Path) {
    let output = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", &format!("/CN={NAME}"), "-addext", &format!("subjectAltName=DNS:{NAME}")])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(folder)
        .output()
        .expect("openssl is missing: run make setup");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
