//! Secrets in the system's keyring: `gnome-keyring-daemon` on a private session bus.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::browser::Browser;
use super::home::Home;
use super::oidc_server::OidcServer;
use super::{Login, headless};

const KEY: &str = "sk-of-the-keyring-0123456789";

/// Starts an unlocked keyring.
const UNLOCKED: &str = "printf pw | exec gnome-keyring-daemon --foreground --components=secrets --unlock";
/// Starts a locked keyring, which cannot ask for its password without a screen.
const LOCKED: &str = "exec gnome-keyring-daemon --foreground --components=secrets";
/// Starts a program that never answers.
const SILENT: &str = "exec sleep 10";

/// A session bus that starts the keyring on the first request. Killed on drop.
struct Bus {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Bus {
    /// `home` is the home folder of the keyring's user; `keyring` is the command that starts it, if any.
    fn start(home: &Path, keyring: Option<&str>) -> Self {
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
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home).env("XDG_RUNTIME_DIR", home);
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
        // The keyring exits with its bus.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `parlor login --key` with the key on stdin; returns stdout and stderr.
fn store_key(mut command: Command) -> (String, String) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(KEY.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The content of all files in the store of secrets.
fn stored_files(home: &Home) -> String {
    let files = std::fs::read_dir(home.state().join("secrets")).unwrap();
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn a_key_is_stored_in_the_keyring_and_in_no_file() {
    let home = Home::new();
    let bus = Bus::start(home.folder(), Some(UNLOCKED));
    let (stdout, stderr) = store_key(bus.command(&home, &["login", "openai", "--key"]));
    assert!(stdout.contains("in the system's keyring") && stderr.is_empty(), "{stdout}{stderr}");
    assert_eq!(stored_files(&home), "");
    assert!(bus.prints(&home, &["auth"]).contains("openai: key\n  stored in the system's keyring"));
    let models = bus.prints(&home, &["models"]);
    let openai = models.lines().find(|line| line.starts_with("openai ")).unwrap();
    assert!(!openai.contains("there is no key"), "another process must read the key: {models}");
    let said = home.prints(&["models"]);
    assert!(said.contains("no D-Bus session bus is running"), "{said}");
    assert_eq!(bus.prints(&home, &["logout", "openai"]), "Removed the key of openai.\n");
    let models = bus.prints(&home, &["models"]);
    let openai = models.lines().find(|line| line.starts_with("openai ")).unwrap();
    assert!(openai.contains("there is no key"), "{models}");
}

#[test]
fn a_login_is_stored_in_the_keyring() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    let bus = Bus::start(home.folder(), Some(UNLOCKED));
    let mut command = bus.command(&home, &["login", "x", "--browser"]);
    let child = headless(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut login = Login::of(child);
    Browser::new().log_in(&login.read_line(), "alice");
    assert_eq!(login.wait(), ("Logged in to x as alice@example.org.\n".to_owned(), String::new(), Some(0)));
    assert_eq!(stored_files(&home), "");
    let listed = bus.prints(&home, &["auth", "--check"]);
    assert!(
        listed.contains("logged in as alice") && listed.contains("stored in the system's keyring"),
        "{listed}"
    );
    assert_eq!(bus.prints(&home, &["logout"]), "Logged out of x.\n");
    assert!(bus.prints(&home, &["auth"]).contains("not logged in"));
}

#[test]
fn a_setting_switches_the_keyring_off() {
    let home = Home::new();
    home.configure("parlor.toml", "[secrets]\nkeyring = false\n");
    let bus = Bus::start(home.folder(), Some(UNLOCKED));
    let (stdout, stderr) = store_key(bus.command(&home, &["login", "openai", "--key"]));
    assert!(stdout.contains("secrets/key-openai") && stderr.is_empty(), "{stdout}{stderr}");
    assert_eq!(stored_files(&home), KEY);
}

#[test]
fn without_a_keyring_the_key_goes_to_a_file_with_a_notice() {
    for keyring in [None, Some(SILENT)] {
        let home = Home::new();
        let bus = Bus::start(home.folder(), keyring);
        let (stdout, stderr) = store_key(bus.command(&home, &["login", "openai", "--key"]));
        assert!(stdout.contains("secrets/key-openai"), "{keyring:?}: {stdout}");
        assert!(stderr.contains("The system's keyring was not used: "), "{keyring:?}: {stderr}");
        assert_eq!(stored_files(&home), KEY);
        assert!(bus.prints(&home, &["auth"]).contains("secrets/key-openai"));
        assert_eq!(bus.prints(&home, &["logout", "openai"]), "Removed the key of openai.\n");
    }
}

#[test]
fn a_silent_bus_times_out() {
    let home = Home::new();
    let socket = home.folder().join("bus");
    let _bus = UnixListener::bind(&socket).unwrap();
    let mut command = home.command(&["login", "openai", "--key"]);
    command.env("XDG_RUNTIME_DIR", home.folder());
    let (stdout, stderr) = store_key(command);
    assert!(stdout.contains("secrets/key-openai"), "{stdout}");
    assert!(stderr.contains("it did not answer within 5 seconds"), "{stderr}");
}

#[test]
fn a_locked_keyring_is_reported() {
    let home = Home::new();
    store_key(Bus::start(home.folder(), Some(UNLOCKED)).command(&home, &["login", "openai", "--key"]));
    let bus = Bus::start(home.folder(), Some(LOCKED));
    let said = bus.prints(&home, &["models"]);
    assert!(
        said.contains("key-openai is in the system's keyring") && said.contains("it is locked"),
        "{said}"
    );
    let (stdout, stderr) = store_key(bus.command(&home, &["login", "openai", "--key"]));
    assert!(stdout.contains("secrets/key-openai") && stderr.contains("it is locked"), "{stdout}{stderr}");
    let models = bus.prints(&home, &["models"]);
    assert!(!models.lines().any(|line| line.starts_with("openai ") && line.contains("keyring")), "{models}");
}
