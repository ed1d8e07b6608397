//! `parlor backup` and `parlor restore` on real state folders, also while a server runs.
#![expect(clippy::disallowed_methods, reason = "the program reads and writes pipes of the test")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod home;

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Stdio};

use home::Home;
use rustix::process::{Pid, Signal, kill_process};

/// The name of an attached file: a SHA-256 hash.
const ATTACHED: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A state folder with a session and a file of every kind that a backup may have.
fn full_home() -> Home {
    let home = Home::new();
    home.configure(
        "parlor.toml",
        "[retention]\ndays = 7\n[channels.supr]\ntoken = \"s3cret-token-in-settings\"\n",
    );
    home.prints(&["chat", "/say kept in the backup"]);
    for folder in ["media", "skills/deploy", "secrets"] {
        std::fs::create_dir_all(home.state().join(folder)).unwrap();
    }
    for (name, text) in [
        (format!("media/{ATTACHED}").as_str(), "abc"),
        ("media/.upload-1-0.tmp", "half"),
        ("skills/deploy/SKILL.md", "how to deploy"),
        ("AGENTS.md", "be brief"),
        ("secrets/openai", "s3cret-key"),
        ("supr.json", "{\"token\":\"s3cret-token-in-file\"}"),
    ] {
        std::fs::write(home.state().join(name), text).unwrap();
    }
    symlink("/etc/passwd", home.state().join("skills/link")).unwrap();
    home
}

/// The names of the files in a backup.
fn listed(backup: &Path) -> Vec<String> {
    let listed = std::process::Command::new("tar").arg("tzf").arg(backup).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_backup_has_everything_but_secrets_and_is_restored_elsewhere() {
    let home = full_home();
    let file = home.folder().join("backup.tar.gz");
    let path = file.to_str().unwrap();
    let printed = home.prints(&["backup", path]);
    assert!(printed.contains("1 sessions") && printed.contains("no keys, logins and tokens"), "{printed}");
    assert!(printed.contains("parlor.toml in the backup lacks channels.supr.token"), "{printed}");
    assert!(printed.contains("Left out skills/link: it is not a regular file"), "{printed}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        listed(&file),
        [
            "parlor-backup.json",
            "parlor.db",
            "parlor.toml",
            "AGENTS.md",
            "skills/deploy/SKILL.md",
            &format!("media/{ATTACHED}"),
        ]
    );
    let left: Vec<_> =
        std::fs::read_dir(home.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "a temporary file was left: {left:?}");

    let other = Home::new();
    let printed = other.prints(&["restore", path]);
    assert!(printed.contains("1 sessions") && printed.contains("no keys and logins"), "{printed}");
    assert_eq!(other.last_session(), home.last_session());
    assert!(other.prints(&["replay", &other.last_session()]).contains("kept in the backup"));
    assert_eq!(read(other.state().join(format!("media/{ATTACHED}"))), "abc");
    let settings = read(other.state().join("parlor.toml"));
    assert!(settings.contains("days = 7") && !settings.contains("s3cret"), "{settings}");
    assert!(!other.state().join("secrets").exists() && !other.state().join("supr.json").exists());
    for name in std::fs::read_dir(other.state()).unwrap() {
        let name = name.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with("restoring-") && !name.starts_with("replaced-"), "{name} was left");
    }
}

#[test]
fn secrets_are_saved_only_on_request() {
    let home = full_home();
    let file = home.folder().join("backup.tar.gz");
    let path = file.to_str().unwrap();
    let printed = home.prints(&["backup", "--with-secrets", path]);
    assert!(printed.contains("keys, logins and the token: whoever can read it"), "{printed}");
    let other = Home::new();
    other.prints(&["restore", path]);
    assert_eq!(read(other.state().join("secrets/openai")), "s3cret-key");
    assert!(read(other.state().join("supr.json")).contains("s3cret-token-in-file"));
    assert!(read(other.state().join("parlor.toml")).contains("s3cret-token-in-settings"));
}

#[test]
fn a_backup_goes_through_pipes_without_other_output() {
    let home = full_home();
    let output = home.run(&["backup", "-"]);
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("The backup has 1 sessions") && !said.contains('\r'), "{said}");
    let other = Home::new();
    let mut restore =
        other.command(&["restore", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    restore.stdin.take().unwrap().write_all(&output.stdout).unwrap();
    assert!(restore.wait().unwrap().success());
    assert_eq!(other.last_session(), home.last_session());
}

#[test]
fn a_folder_with_nothing_in_it_gives_no_backup_and_the_old_one_stays() {
    let home = Home::new();
    let file = home.folder().join("backup");
    std::fs::write(&file, "an older backup").unwrap();
    let path = file.to_str().unwrap();
    assert!(home.refuses(&["backup", path]).contains("there is no state folder"));
    std::fs::create_dir(home.state()).unwrap();
    assert!(home.refuses(&["backup", path]).contains("is empty, so there is nothing to save"));
    assert_eq!(read(&file), "an older backup");
    // Settings alone are worth a backup.
    home.configure("parlor.toml", "[retention]\ndays = 7\n");
    let printed = home.prints(&["backup", path]);
    assert!(printed.contains("no sessions and 1 files"), "{printed}");
    let other = Home::new();
    other.prints(&["restore", path]);
    assert_eq!(read(other.state().join("parlor.toml")), "[retention]\ndays = 7\n");
    assert!(home.refuses(&["backup", home.folder().to_str().unwrap()]).contains("not a regular file"));
    assert!(home.refuses(&["backup", "/nowhere/backup"]).contains("cannot write /nowhere/backup"));
}

#[test]
fn a_damaged_database_gives_no_backup() {
    let home = full_home();
    let database = home.state().join("parlor.db");
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[4096..].fill(7);
    std::fs::write(&database, bytes).unwrap();
    let file = home.folder().join("backup");
    let printed = home.refuses(&["backup", file.to_str().unwrap()]);
    assert!(printed.contains("damaged") && printed.contains("doctor --recover"), "{printed}");
    assert_eq!(std::fs::read_dir(home.folder()).unwrap().count(), 1, "a temporary file was left");
}

#[test]
fn a_folder_with_sessions_is_only_replaced_with_force_and_kept_aside() {
    let (old, home) = (full_home(), Home::new());
    let file = old.folder().join("backup");
    let path = file.to_str().unwrap();
    old.prints(&["backup", path]);
    home.prints(&["chat", "/say only here"]);
    let session = home.last_session();
    let printed = home.refuses(&["restore", path]);
    assert!(printed.contains("has 1 sessions") && printed.contains("--force"), "{printed}");
    assert_eq!(home.last_session(), session);
    let printed = home.prints(&["restore", "--force", path]);
    assert_eq!(home.last_session(), old.last_session());
    let aside = printed.lines().find_map(|line| line.strip_prefix("What was there before is in ")).unwrap();
    let aside = aside.split(';').next().unwrap();
    // The old state still works.
    let output = home.command(&["sessions", "--json"]).env("PARLOR_HOME", aside).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(&session));
}

#[test]
fn an_unusable_file_changes_nothing() {
    let old = full_home();
    let file = old.folder().join("backup");
    old.prints(&["backup", file.to_str().unwrap()]);
    let whole = std::fs::read(&file).unwrap();
    for (bytes, reason) in [
        (&whole[..whole.len() / 2], "it is cut off"),
        (&whole[..whole.len() - 1], "it is cut off"),
        (b"not a backup", "not a backup of parlor"),
        (b"", "it is cut off"),
    ] {
        let home = Home::new();
        let bad = home.folder().join("bad");
        std::fs::write(&bad, bytes).unwrap();
        let printed = home.refuses(&["restore", bad.to_str().unwrap()]);
        assert!(printed.contains("nothing was restored") && printed.contains(reason), "{printed}");
        assert!(!home.state().exists(), "the state folder was made");
        home.configure("parlor.toml", "[retention]\ndays = 1\n");
        home.refuses(&["restore", bad.to_str().unwrap()]);
        assert_eq!(std::fs::read_dir(home.state()).unwrap().count(), 1, "the state folder was changed");
    }
    let home = Home::new();
    assert!(home.refuses(&["restore", "/nowhere"]).contains("cannot read /nowhere"));
}

#[test]
fn a_running_server_is_saved_and_never_restored_over() {
    let home = Home::new();
    home.prints(&["chat", "/say one"]);
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0", "--no-supex"]);
    let mut server = KilledOnDrop(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for(&home.state().join("serve.json"));
    // A run is under way while the backup is made.
    let mut run = KilledOnDrop(home.start_waiting("/wait 600"));
    let file = home.folder().join("backup");
    let path = file.to_str().unwrap();
    let printed = home.prints(&["backup", path]);
    assert!(printed.contains("2 sessions"), "{printed}");
    for args in [&["restore", path][..], &["restore", "--force", path]] {
        let printed = home.refuses(args);
        assert!(
            printed.contains("another parlor serves") || printed.contains("sessions; with --force"),
            "{printed}"
        );
    }
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
    // The chat has the database open.
    let printed = home.refuses(&["restore", "--force", path]);
    assert!(
        printed.contains("nothing was restored") && printed.contains("end it and try again"),
        "{printed}"
    );
    run.0.kill().unwrap();
    run.0.wait().unwrap();
    let other = Home::new();
    other.prints(&["restore", path]);
    // The run that was under way has ended in the copy, because its process is not there.
    let sessions = other.json(&["sessions", "--json"]);
    assert_eq!(sessions.len(), 2);
    let cut_off = sessions[0]["session"].as_str().unwrap();
    assert_eq!(other.prints(&["chat", "--session", cut_off, "/say goes on"]), "goes on\n");
}

#[test]
fn with_a_log_in_postgresql_the_rest_is_saved() {
    let home = Home::new();
    home.configure("parlor.toml", "[log]\nurl = \"postgres://me@127.0.0.1:1/parlor\"\n");
    let file = home.folder().join("backup");
    let printed = home.prints(&["backup", file.to_str().unwrap()]);
    assert!(printed.contains("postgres://127.0.0.1:1/parlor") && printed.contains("pg_dump"), "{printed}");
    assert_eq!(listed(&file), ["parlor-backup.json", "parlor.toml"]);
}

/// A process that also ends if the test fails.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Fails if it has ended, which is the usual case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a file exists. Another process writes it.
fn wait_for(file: &Path) {
    let deadline = std::time::Instant::now() + parlor_testkit::STEP_TIMEOUT;
    while !file.exists() {
        assert!(std::time::Instant::now() < deadline, "{} was not written", file.display());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
