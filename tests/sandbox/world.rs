//! What a hostile command would like to reach: secrets, sockets, ports and a process.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use parlor_testkit::{copy_executable, folder_outside_tmp};

pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// Files with secrets, in a home folder.
pub(crate) const SECRETS: [&str; 17] = [
    ".ssh/id",
    ".aws/credentials",
    ".netrc",
    ".docker/config.json",
    ".config/gh/hosts.yml",
    ".gnupg/private-keys-v1.d/key",
    ".kube/config",
    ".config/gcloud/credentials.db",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials.toml",
    ".mozilla/firefox/x.default/logins.json",
    ".config/google-chrome/Default/Cookies",
    ".codex/auth.json",
    ".claude/.credentials.json",
    "state/secrets/key",
];

/// The folder of a test, with everything that must not be reached. Deleted in the end.
pub(crate) struct World {
    folder: tempfile::TempDir,
    victim: Child,
    ipc: Child,
    mark: String,
    port: u16,
    udp_port: u16,
    in_tmp: PathBuf,
    _listeners: (Vec<UnixListener>, UnixDatagram, TcpListener),
}

impl World {
    pub(crate) fn new() -> Self {
        // Not in /tmp, which is private in a sandbox.
        let folder = folder_outside_tmp(env!("CARGO_TARGET_TMPDIR"));
        let root = folder.path();
        copy_executable(attempt_program(), &root.join("attempt"));
        for name in SECRETS.iter().map(|secret| format!("home/{secret}")).chain(["home/notes".to_owned()]) {
            let file = root.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "hidden text\n").unwrap();
        }
        let home = root.join("home");
        for name in ["project/.agents", "state/run"] {
            fs::create_dir_all(home.join(name)).unwrap();
        }
        fs::write(home.join("state/parlor.toml"), "[tools]\nmax_processes = 600\nmax_file_size = \"20MB\"\n")
            .unwrap();
        fs::set_permissions(home.join("state"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let mark = format!("attempt-{}", root.file_name().unwrap().to_str().unwrap().replace('.', ""));
        let in_tmp = Path::new("/tmp").join(format!("{mark}.sock"));
        let sockets =
            ["agent.sock", "project/near.sock", "state/run/peer.sock"].map(|name| bind(&home.join(name)));
        let abstract_socket = SocketAddr::from_abstract_name(&mark).unwrap();
        let mut listeners = Vec::from(sockets);
        listeners.push(bind(&in_tmp));
        listeners.push(UnixListener::bind_addr(&abstract_socket).unwrap());
        let _at_home = short_path(&home);
        let datagrams = UnixDatagram::bind(_at_home.join("datagram.sock")).unwrap();
        let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
        std::thread::spawn(move || answer(&udp));
        let victim = Command::new("sleep")
            .arg("86400.75")
            .current_dir(&home)
            .env("VICTIM_SECRET", "VICTIM_SECRET")
            .stdin(fs::File::open(home.join(".ssh/id")).unwrap())
            .spawn()
            .unwrap();
        let ipc = hold_ipc(victim.id(), &mark);
        Self { folder, victim, ipc, mark, port, udp_port, in_tmp, _listeners: (listeners, datagrams, tcp) }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    /// Puts the paths and numbers of this world into a script.
    pub(crate) fn fill(&self, script: &str) -> String {
        let path = |path: PathBuf| path.to_str().unwrap().to_owned();
        let values = [
            ("{home}", path(self.home())),
            ("{project}", path(self.project())),
            ("{state}", path(self.home().join("state"))),
            ("{attempt}", path(self.folder.path().join("attempt"))),
            ("{victim}", self.victim.id().to_string()),
            ("{parent}", std::process::id().to_string()),
            ("{mark}", self.mark.clone()),
            ("{key}", self.victim.id().to_string()),
            ("{port}", self.port.to_string()),
            ("{udp_port}", self.udp_port.to_string()),
        ];
        values.into_iter().fold(script.to_owned(), |text, (name, value)| text.replace(name, &value))
    }

    /// The command that runs `script` in `mode`. Its descriptor 9 is a secret.
    pub(crate) fn command(&self, mode: &str, script: &str) -> Command {
        let mut command = Command::new(PARLOR);
        command.args(["sandbox", "--mode", mode, "--", "/bin/sh", "-c", &self.fill(script)]);
        command.current_dir(self.project()).stdin(Stdio::null()).env_clear();
        command.env("HOME", self.home()).env("PARLOR_HOME", self.home().join("state"));
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
        let secret = fs::File::open(self.home().join(".ssh/id")).unwrap();
        #[expect(unsafe_code, reason = "a descriptor that a careless parent leaves open")]
        // SAFETY: dup2 is safe between fork and exec.
        unsafe {
            command.pre_exec(move || {
                let mut inherited = std::mem::ManuallyDrop::new(std::os::fd::FromRawFd::from_raw_fd(9));
                rustix::io::dup2(secret.as_fd(), &mut inherited)?;
                Ok(())
            });
        }
        command
    }

    pub(crate) fn run(&self, mode: &str, script: &str) -> Output {
        self.command(mode, script).output().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        // It removes its objects when its input ends.
        drop(self.ipc.stdin.take());
        let _ = self.ipc.wait();
        let _ = fs::remove_file(&self.in_tmp);
    }
}

/// Binds a socket whose path may be longer than an address.
fn bind(path: &Path) -> UnixListener {
    UnixListener::bind(short_path(path.parent().unwrap()).join(path.file_name().unwrap())).unwrap()
}

/// Another name of an existing folder. The descriptor stays open as long as the test runs.
fn short_path(folder: &Path) -> PathBuf {
    use std::os::fd::IntoRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", fs::File::open(folder).unwrap().into_raw_fd()))
}

/// Answers each datagram with `y`.
fn answer(socket: &UdpSocket) {
    let mut buffer = [0; 8];
    while let Ok((_, from)) = socket.recv_from(&mut buffer) {
        let _ = socket.send_to(b"y", from);
    }
}

/// Starts a process that holds shared memory, queues and semaphores of this key and name.
fn hold_ipc(key: u32, name: &str) -> Child {
    let mut child = Command::new(attempt_program())
        .args(["hold_ipc", &key.to_string(), &format!("/{name}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 6];
    child.stdout.take().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"ready\n");
    child
}

/// The compiled `attempt.c`.
fn attempt_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("attempt-{}", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sandbox/attempt.c");
        let built = Command::new("cc").arg("-o").arg(&program).arg(source).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    })
}

/// The pids of the processes with `text` in their arguments.
pub(crate) fn processes_with(text: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let has_text = |process: &fs::DirEntry| {
        let mut arguments = Vec::new();
        let read = fs::File::open(process.path().join("cmdline"))
            .and_then(|mut file| file.read_to_end(&mut arguments));
        read.is_ok() && arguments.split(|byte| *byte == 0).any(|argument| argument == text.as_bytes())
    };
    processes.filter(has_text).filter_map(|process| process.file_name().to_str()?.parse().ok()).collect()
}
