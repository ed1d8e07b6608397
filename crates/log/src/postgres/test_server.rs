//! A PostgreSQL server for tests, from the programs of the machine. It ends with the test process, however that ends.

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::random_u128;

/// The user `nobody`, because PostgreSQL refuses to run as root.
const UNPRIVILEGED_USER: u32 = 65534;

/// A server with any number of databases. The folder of its data is removed with it.
pub struct TestServer {
    place: Place,
    folder: PathBuf,
    databases: AtomicU64,
    supervisor: Mutex<Supervisor>,
}

/// Where a server listens, beside its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// An address of this machine. On one beyond loopback, all machines of its network may use the server.
    pub host: String,
    /// The port at that address.
    pub port: u16,
}

impl Place {
    /// A free port on 127.0.0.1.
    fn on_loopback() -> Self {
        Self { host: "127.0.0.1".to_owned(), port: free_port() }
    }
}

/// The shell that started the server. It stops the server when the pipe to it is closed.
struct Supervisor {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl TestServer {
    /// The server that all tests of this process share.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<TestServer> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(""))
    }

    /// Starts a server with further lines for `postgresql.conf`. Takes about two seconds.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is not installed, or does not start.
    pub fn start(settings: &str) -> Self {
        Self::start_as(&Place::on_loopback(), settings, None)
    }

    /// Starts a server at this address.
    pub fn start_at(place: &Place, settings: &str) -> Self {
        Self::start_as(place, settings, None)
    }

    /// Starts a standby of this server, which replicates under the name `standby`.
    pub fn start_standby(&self) -> Self {
        self.start_standby_at(&Place::on_loopback())
    }

    /// Starts such a standby at this address.
    pub fn start_standby_at(&self, place: &Place) -> Self {
        Self::start_as(place, "", Some(&self.place))
    }

    fn start_as(place: &Place, settings: &str, primary: Option<&Place>) -> Self {
        let programs = find_programs().unwrap_or_else(|| {
            panic!("PostgreSQL is not installed: neither PATH nor /usr/lib/postgresql has initdb; run scripts/setup.sh")
        });
        let folder = std::env::temp_dir().join(format!("parlor-postgres-{:x}", random_u128()));
        DirBuilder::new().mode(0o700).create(&folder).expect("a folder for the server");
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            chown(&folder, Some(UNPRIVILEGED_USER), Some(UNPRIVILEGED_USER)).expect("root may change owners");
        }
        let (primary_host, primary_port) =
            primary.map(|primary| (primary.host.clone(), primary.port.to_string())).unwrap_or_default();
        let mut child = shell(is_root)
            .arg(include_str!("test_server.sh"))
            .arg("test_server.sh")
            .args([&programs, &folder])
            .args([&place.host, &place.port.to_string(), settings, &primary_host, &primary_port])
            .current_dir(&folder)
            // A signal for the tests, such as that of Ctrl-C, is not for the server.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut supervisor = Supervisor { child, commands, answers };
        supervisor.expect_ok();
        Self {
            place: place.clone(),
            folder,
            databases: AtomicU64::new(0),
            supervisor: Mutex::new(supervisor),
        }
    }

    /// The port of the server.
    pub fn port(&self) -> u16 {
        self.place.port
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        let Place { host, port } = &self.place;
        format!("postgres://parlor@{host}:{port}/{database}")
    }

    /// Creates an empty database and returns its name.
    pub async fn new_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.execute("postgres", &format!("CREATE DATABASE {name}")).await;
        name
    }

    /// Runs statements in a database.
    pub async fn execute(&self, database: &str, sql: &str) {
        self.client(database).await.batch_execute(sql).await.expect("the statements of a test are right");
    }

    /// A direct connection to a database.
    pub async fn client(&self, database: &str) -> tokio_postgres::Client {
        let url = self.url(database);
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("the server runs");
        // It ends with the client.
        tokio::spawn(connection);
        client
    }

    /// Kills the server, so that it has to recover when it starts again.
    pub fn kill(&self) {
        self.command("kill");
    }

    /// Kills all processes of the server with SIGKILL.
    pub fn kill_hard(&self) {
        self.command("sigkill");
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        self.command("promote");
    }

    /// Starts the server again.
    pub fn restart(&self) {
        self.command("start");
    }

    fn command(&self, command: &str) {
        let mut supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner);
        let commands = supervisor.commands.as_mut().expect("the pipe is open until the drop");
        writeln!(commands, "{command}").expect("the supervisor runs");
        supervisor.expect_ok();
    }

    /// The folder of the server's socket and data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Supervisor {
    fn expect_ok(&mut self) {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the supervisor runs");
        assert_eq!(answer, "ok\n", "the server does not start");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let supervisor = self.supervisor.get_mut().unwrap_or_else(PoisonError::into_inner);
        supervisor.commands = None;
        // Nothing can be done about a server that does not stop.
        let _ = supervisor.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a server for tests is no child of the program")]
fn shell(is_root: bool) -> Command {
    if !is_root {
        let mut command = Command::new("sh");
        command.arg("-c");
        return command;
    }
    let mut command = Command::new("setpriv");
    let user = UNPRIVILEGED_USER.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c"]);
    command
}

/// The folder of PostgreSQL's programs.
#[expect(clippy::disallowed_methods, reason = "a server for tests has no settings")]
fn find_programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("initdb"));
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let installed = versions.map(|version| version.path().join("bin/initdb"));
    let found = on_path.chain(installed).filter_map(|program| program.canonicalize().ok());
    found
        .filter_map(|program| program.parent().map(Path::to_owned))
        .find(|folder| folder.join("pg_ctl").exists())
}

/// A port that nobody uses now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}
