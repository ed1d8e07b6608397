//! No secret of a login appears in outputs, in files outside the store of secrets, or in the command lines and the
//! environment of child processes.

use std::os::unix::process::CommandExt;

use super::*;
use oidc_server::CLIENT_SECRET;
use outputs::Outputs;

/// A command that prints its own command line and environment, and the command lines of all processes.
const PRINT_OWN_PROCESS: &str =
    "!tr '\\0' '\\n' < /proc/self/cmdline; tr '\\0' '\\n' < /proc/self/environ; env; ps -eo args";

/// A command that tries to read the environment, the files and the memory of parlor, its parent.
const READ_PARENT_PROCESS: &str =
    "!tr '\\0' '\\n' < /proc/$PPID/environ; ls /proc/$PPID/fd; head -c1 /proc/$PPID/mem; echo tried";

/// The id of the unprivileged user `nobody`.
const NOBODY: u32 = 65534;

#[test]
fn no_secret_is_written_anywhere() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "confidential");
    let mut outputs = Outputs::default();
    let run = |args: &[&str]| {
        headless(home.command(args).env("TEST_CLIENT_SECRET", CLIENT_SECRET)).output().unwrap()
    };

    let mut command = home.command(&["login", "x", "--browser"]);
    command.env("TEST_CLIENT_SECRET", CLIENT_SECRET);
    let child = headless(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let mut login = Login::of(child);
    let url = login.read_line();
    let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    outputs.add("command line of parlor login", command_line);
    Browser::new().log_in(&url, "dave");
    let (stdout, stderr, code) = login.wait();
    assert_eq!(code, Some(0), "{stderr}");
    outputs.add("parlor login", format!("{url}\n{stdout}\n{stderr}"));

    let mut secrets = vec![CLIENT_SECRET.to_owned()];
    let add_tokens = |secrets: &mut Vec<String>| {
        let login = stored_login(&home);
        secrets
            .extend(["access_token", "refresh_token"].map(|name| login[name].as_str().unwrap().to_owned()));
    };
    add_tokens(&mut secrets);
    expire(&home);
    for args in [
        &["auth", "--check"][..],
        &["auth", "--json"],
        &["auth"],
        &["settings"],
        &["doctor"],
        &["chat", PRINT_OWN_PROCESS],
    ] {
        outputs.add_command(&args.join(" "), run(args));
    }
    add_tokens(&mut secrets);
    server.revoke_with(&secrets[4], CLIENT_SECRET);
    expire(&home);
    for args in [&["auth", "--check"][..], &["auth"], &["logout", "x"], &["auth", "--json"]] {
        outputs.add_command(&args.join(" "), run(args));
    }
    outputs.add_files(home.folder());

    secrets.sort();
    secrets.dedup();
    assert_eq!(secrets.len(), 5, "the login must have been renewed");
    assert!(!outputs.find("PARLOR_HOME=").is_empty(), "the environment must be searched");
    assert!(!outputs.find("dave@example.org").is_empty(), "the search must find public texts");
    assert!(outputs.0.iter().any(|(name, _)| name.ends_with("parlor.db")), "files must be searched");
    for secret in &secrets {
        let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        for text in [secret, &encoded] {
            assert_eq!(outputs.find(text), Vec::<&str>::new(), "a secret was written");
        }
    }
}

#[test]
fn commands_cannot_read_the_process_of_parlor() {
    let home = Home::new();
    let run_command = |dumpable: &str| {
        let mut command = home.command(&["chat", "--agent", "local", READ_PARENT_PROCESS]);
        command.env("HOME", home.folder()).env("UNSEEN_PASSWORD", "not-for-commands");
        command.env("PARLOR_DUMPABLE", dumpable);
        // Root may read every process.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(home.folder(), Some(NOBODY), Some(NOBODY)).unwrap();
            command.uid(NOBODY).gid(NOBODY);
        }
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
            output => Some(String::from_utf8(output.unwrap().stdout).unwrap()),
        }
    };
    let Some(readable) = run_command("1") else {
        eprintln!("skipped: {} is in a folder that only root can read", home::PARLOR);
        return;
    };
    assert!(
        readable.contains("not-for-commands") && readable.contains("tried"),
        "a dumpable process must be readable: {readable}"
    );
    let hardened = run_command("").unwrap();
    assert!(!hardened.contains("not-for-commands") && hardened.contains("tried"), "{hardened}");
    for file in ["environ", "fd", "mem"] {
        let line = hardened.lines().find(|line| line.contains("/proc/") && line.contains(file));
        assert!(line.is_some_and(|line| line.contains("Permission denied")), "{file}: {hardened}");
    }
}
