//! Nothing that the program writes holds a secret: not what it prints, not its files beside the store
//! of secrets, not the command lines and the environment of what it starts.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Output;

use super::*;
use server::CLIENT_SECRET;

/// Prints the command line and the environment of the tool's process.
const LOOK: &str =
    "!tr '\\0' '\\n' < /proc/self/cmdline; tr '\\0' '\\n' < /proc/self/environ; env; ps -eo args";

/// Prints the environment that parlor was started with, and its memory, as far as the system lets it.
const LOOK_UP: &str =
    "!tr '\\0' '\\n' < /proc/$PPID/environ; ls /proc/$PPID/fd; head -c1 /proc/$PPID/mem; echo looked";

/// A user that owns nothing.
const NOBODY: u32 = 65534;

/// Everything that was written, with where.
#[derive(Default)]
struct Written(Vec<(String, Vec<u8>)>);

impl Written {
    fn add(&mut self, what: &str, output: Output) {
        self.0.push((format!("stdout of {what}"), output.stdout));
        self.0.push((format!("stderr of {what}"), output.stderr));
    }

    /// All files below a folder, but not the store of secrets.
    fn files(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("secrets") {
                self.files(&path);
            } else if path.is_file() {
                self.0.push((path.display().to_string(), std::fs::read(&path).unwrap()));
            }
        }
    }

    fn holds(&self, text: &str) -> Vec<&str> {
        let there = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        self.0.iter().filter(|(_, bytes)| there(bytes)).map(|(place, _)| place.as_str()).collect()
    }
}

#[test]
fn no_secret_is_written_anywhere() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "confidential");
    let mut written = Written::default();
    let run = |args: &[&str]| {
        headless(home.command(args).env("TEST_CLIENT_SECRET", CLIENT_SECRET)).output().unwrap()
    };

    let mut command = home.command(&["login", "x", "--browser"]);
    command.env("TEST_CLIENT_SECRET", CLIENT_SECRET);
    let mut child = headless(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let pid = child.id();
    let mut login = Login { child, said };
    let url = login.line();
    let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    written.0.push(("command line of parlor login".to_owned(), command_line));
    Browser::new().agree(&url, "dave");
    let (rest, aside, code) = login.end();
    assert_eq!(code, Some(0), "{aside}");
    written.0.push(("parlor login".to_owned(), format!("{url}\n{rest}\n{aside}").into_bytes()));

    let mut secrets = vec![CLIENT_SECRET.to_owned()];
    let learn = |secrets: &mut Vec<String>| {
        let kept = kept(&home);
        secrets.extend(["access_token", "refresh_token"].map(|name| kept[name].as_str().unwrap().to_owned()));
    };
    learn(&mut secrets);
    expire(&home);
    for args in [
        &["auth", "--check"][..],
        &["auth", "--json"],
        &["auth"],
        &["settings"],
        &["doctor"],
        &["chat", LOOK],
    ] {
        written.add(&args.join(" "), run(args));
    }
    learn(&mut secrets);
    server.revoke_with(&secrets[4], CLIENT_SECRET);
    expire(&home);
    for args in [&["auth", "--check"][..], &["auth"], &["logout", "x"], &["auth", "--json"]] {
        written.add(&args.join(" "), run(args));
    }
    written.files(home.folder());

    secrets.sort();
    secrets.dedup();
    assert_eq!(secrets.len(), 5, "the login was renewed");
    assert!(!written.holds("PARLOR_HOME=").is_empty(), "the environment was looked at");
    assert!(!written.holds("dave@example.org").is_empty(), "what is no secret is found");
    assert!(written.0.iter().any(|(place, _)| place.ends_with("parlor.db")), "files are looked at");
    for secret in &secrets {
        let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        for text in [secret, &encoded] {
            assert_eq!(written.holds(text), Vec::<&str>::new(), "a secret was written");
        }
    }
}

#[test]
fn commands_cannot_look_into_the_process_that_starts_them() {
    let home = Home::new();
    let look = |dumpable: &str| {
        let mut command = home.command(&["chat", "--agent", "local", LOOK_UP]);
        command.env("HOME", home.folder()).env("UNSEEN_PASSWORD", "not-for-commands");
        command.env("PARLOR_DUMPABLE", dumpable);
        // Nothing is closed to root.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(home.folder(), Some(NOBODY), Some(NOBODY)).unwrap();
            command.uid(NOBODY).gid(NOBODY);
        }
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
            output => Some(String::from_utf8(output.unwrap().stdout).unwrap()),
        }
    };
    let Some(open) = look("1") else {
        eprintln!("skipped: {} is in a folder that only root can enter", home::PARLOR);
        return;
    };
    assert!(open.contains("not-for-commands") && open.contains("looked"), "it sees what is open: {open}");
    let closed = look("").unwrap();
    assert!(!closed.contains("not-for-commands") && closed.contains("looked"), "{closed}");
    for file in ["environ", "fd", "mem"] {
        let line = closed.lines().find(|line| line.contains("/proc/") && line.contains(file));
        assert!(line.is_some_and(|line| line.contains("Permission denied")), "{file}: {closed}");
    }
}
