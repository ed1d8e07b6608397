//! Secrets in the system's keyring: `gnome-keyring-daemon`, on a bus that only this test knows.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::browser::Browser;
use super::home::Home;
use super::server::Server;
use super::{Login, headless};

const KEY: &str = "sk-of-the-keyring-0123456789";

/// A keyring that is open.
const OPEN: &str = "printf pw | exec gnome-keyring-daemon --foreground --components=secrets --unlock";
/// The same, locked, on a machine where nobody can be asked for its password.
const LOCKED: &str = "exec gnome-keyring-daemon --foreground --components=secrets";
/// One that is started and says nothing.
const SILENT: &str = "exec sleep 10";

/// A session bus that starts a keyring when somebody asks for it.
struct Bus {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Bus {
    /// One for the user whose home folder is `user`; without a keyring if there is nothing to start.
    fn start(user: &Path, keyring: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        if let Some(keyring) = keyring {
            std::fs::write(file("keyring.sh"), keyring).unwrap();
            let script = file("keyring.sh");
            let service =
                format!("[D-BUS Service]\nName=org.freedesktop.secrets\nExec=/bin/sh {}\n", script.display());
            std::fs::write(file("secrets.service"), service).unwrap();
        }
        let config = format!(
            "<busconfig><type>session</type><listen>unix:dir={0}</listen><servicedir>{0}</servicedir>\
             <auth>EXTERNAL</auth><policy context=\"default\"><allow send_destination=\"*\"/>\
             <allow receive_sender=\"*\"/><allow own=\"*\"/></policy></busconfig>",
            folder.path().display()
        );
        std::fs::write(file("bus.conf"), config).unwrap();
        let mut command = Command::new("dbus-daemon");
        command
            .arg(format!("--config-file={}", file("bus.conf").display()))
            .args(["--nofork", "--print-address"]);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", user).env("XDG_RUNTIME_DIR", user);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned(), _folder: folder }
    }

    fn command(&self, home: &Home, args: &[&str]) -> Command {
        let mut command = home.command(args);
        command.env("DBUS_SESSION_BUS_ADDRESS", &self.address);
        command
    }

    fn run(&self, home: &Home, args: &[&str]) -> Output {
        self.command(home, args).output().unwrap()
    }

    fn prints(&self, home: &Home, args: &[&str]) -> String {
        let output = self.run(home, args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        // The keyring leaves with its bus.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps the key; gives what is printed, and what is said aside.
fn keep_key(mut command: Command) -> (String, String) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(KEY.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// All that is in the files of secrets.
fn in_files(home: &Home) -> String {
    let files = std::fs::read_dir(home.state().join("secrets")).unwrap();
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn a_key_is_in_the_keyring_and_in_no_file() {
    let home = Home::new();
    let bus = Bus::start(home.folder(), Some(OPEN));
    let (said, aside) = keep_key(bus.command(&home, &["login", "openai", "--key"]));
    assert!(said.contains("kept in the system's keyring") && aside.is_empty(), "{said}{aside}");
    assert_eq!(in_files(&home), "");
    assert!(bus.prints(&home, &["auth"]).contains("openai: a key is kept\n  in the system's keyring"));
    let models = bus.prints(&home, &["models"]);
    let openai = models.lines().find(|line| line.starts_with("openai ")).unwrap();
    assert!(!openai.contains("there is no key"), "another process reads it: {models}");
    let said = home.prints(&["models"]);
    assert!(said.contains("there is no session bus here"), "{said}");
    assert_eq!(bus.prints(&home, &["logout", "openai"]), "The key of openai is forgotten.\n");
    let models = bus.prints(&home, &["models"]);
    let openai = models.lines().find(|line| line.starts_with("openai ")).unwrap();
    assert!(openai.contains("there is no key"), "{models}");
}

#[test]
fn a_login_is_in_the_keyring_and_is_renewed_there() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    let bus = Bus::start(home.folder(), Some(OPEN));
    let mut command = bus.command(&home, &["login", "x", "--browser"]);
    let mut child = headless(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let mut login = Login { child, said };
    Browser::new().agree(&login.line(), "alice");
    assert_eq!(login.end(), ("Logged in to x as alice@example.org.\n".to_owned(), String::new(), Some(0)));
    assert_eq!(in_files(&home), "");
    let listed = bus.prints(&home, &["auth", "--check"]);
    assert!(
        listed.contains("logged in as alice") && listed.contains("kept in the system's keyring"),
        "{listed}"
    );
    assert_eq!(bus.prints(&home, &["logout"]), "Logged out of x.\n");
    assert!(bus.prints(&home, &["auth"]).contains("not logged in"));
}

#[test]
fn a_setting_does_without_the_keyring() {
    let home = Home::new();
    home.configure("parlor.toml", "[secrets]\nkeyring = false\n");
    let bus = Bus::start(home.folder(), Some(OPEN));
    let (said, aside) = keep_key(bus.command(&home, &["login", "openai", "--key"]));
    assert!(said.contains("secrets/key-openai") && aside.is_empty(), "{said}{aside}");
    assert_eq!(in_files(&home), KEY);
}

#[test]
fn where_no_keyring_answers_there_is_a_file_and_a_word() {
    for keyring in [None, Some(SILENT)] {
        let home = Home::new();
        let bus = Bus::start(home.folder(), keyring);
        let (said, aside) = keep_key(bus.command(&home, &["login", "openai", "--key"]));
        assert!(said.contains("secrets/key-openai"), "{keyring:?}: {said}");
        assert!(aside.contains("The system's keyring was not used: "), "{keyring:?}: {aside}");
        assert_eq!(in_files(&home), KEY);
        assert!(bus.prints(&home, &["auth"]).contains("secrets/key-openai"));
        assert_eq!(bus.prints(&home, &["logout", "openai"]), "The key of openai is forgotten.\n");
    }
}

#[test]
fn a_bus_that_takes_connections_and_says_nothing_is_left() {
    let home = Home::new();
    let socket = home.folder().join("bus");
    let _bus = UnixListener::bind(&socket).unwrap();
    let mut command = home.command(&["login", "openai", "--key"]);
    command.env("XDG_RUNTIME_DIR", home.folder());
    let (said, aside) = keep_key(command);
    assert!(said.contains("secrets/key-openai"), "{said}");
    assert!(aside.contains("it did not answer within 5 seconds"), "{aside}");
}

#[test]
fn a_keyring_that_is_locked_is_said_to_be() {
    let home = Home::new();
    keep_key(Bus::start(home.folder(), Some(OPEN)).command(&home, &["login", "openai", "--key"]));
    let bus = Bus::start(home.folder(), Some(LOCKED));
    let said = bus.prints(&home, &["models"]);
    assert!(
        said.contains("key-openai is in the system's keyring") && said.contains("it is locked"),
        "{said}"
    );
    let (said, aside) = keep_key(bus.command(&home, &["login", "openai", "--key"]));
    assert!(said.contains("secrets/key-openai") && aside.contains("it is locked"), "{said}{aside}");
    let models = bus.prints(&home, &["models"]);
    assert!(!models.lines().any(|line| line.starts_with("openai ") && line.contains("keyring")), "{models}");
}
