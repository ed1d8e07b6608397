//! What a server does when somebody takes its database away, replaces it, damages it or fills the disk.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::{Method, StatusCode};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::client::{Client, patiently};
use crate::house::ask;
use crate::server::Server;

const READY: StatusCode = StatusCode::OK;
const NOT_READY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

/// The answer to `/ready`.
async fn readiness(server: &Server) -> (StatusCode, Value) {
    ask(server, Method::GET, "/ready", Value::Null).await
}

/// Asks `/ready` until it answers with `status`: the server looks at its disk again after a moment.
async fn until_ready_is(server: &Server, status: StatusCode) -> Value {
    let asking = async {
        loop {
            let (found, answer) = readiness(server).await;
            if found == status {
                return answer;
            }
        }
    };
    patiently(asking).await
}

/// A client of session `a` that has said one thing.
async fn talk(server: &Server) -> Client {
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.say("/say one").await;
    client.until("run.completed").await;
    assert_eq!(readiness(server).await.0, READY);
    client
}

/// The first thing that comes of a message: an error, or that it was taken.
async fn outcome(client: &mut Client, content: &str) -> Value {
    client.say(content).await;
    loop {
        let frame = client.next().await.unwrap();
        if matches!(frame["event_type"].as_str(), Some("error.raised" | "run.started")) {
            return frame;
        }
    }
}

/// Messages are refused from now on and `/ready` is false, both for the same reason.
async fn refuses(server: &Server, client: &mut Client) {
    for _ in 0..3 {
        let refused = outcome(client, "/say two").await;
        assert_eq!(refused["event_type"], "error.raised", "it was acknowledged: {refused}");
        let message = refused["data"]["message"].as_str().unwrap();
        assert!(message.contains("parlor.db") && message.contains("restart parlor"), "{message}");
        let (status, answer) = readiness(server).await;
        assert_eq!((status, &answer["status"]), (NOT_READY, &json!("not ready")));
        // The same for everybody, but without the folder: whoever asks need not be let in.
        let reason = answer["reason"].as_str().unwrap();
        assert!(message.contains(reason.split_once("parlor.db").unwrap().1), "{reason}");
        assert!(!reason.contains(server.home.to_str().unwrap()), "{reason}");
        assert_eq!(ask(server, Method::GET, "/readyz", Value::Null).await.0, NOT_READY);
    }
}

/// The journal has one line that the server is not ready.
fn says_once(journal: &str) {
    assert_eq!(journal.lines().filter(|line| line.contains("not ready")).count(), 1, "{journal}");
}

/// How often `text` is in the events of a database.
fn count(database: &Path, text: &str) -> i64 {
    let both = "SELECT body FROM events UNION ALL SELECT body FROM fresh";
    let sql = format!("SELECT count(*) FROM ({both}) WHERE body LIKE '%' || ?1 || '%'");
    Connection::open(database).unwrap().query_row(&sql, [text], |row| row.get(0)).unwrap()
}

/// The copy that the server saved of a database that was taken away.
fn saved_copy(home: &Path) -> PathBuf {
    let names = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path());
    names.into_iter().find(|path| path.to_string_lossy().contains("parlor.db.saved-")).unwrap()
}

#[tokio::test]
async fn a_database_that_was_removed_takes_no_message_and_what_was_acknowledged_is_saved() {
    let mut server = Server::start();
    let mut client = talk(&server).await;
    fs::remove_file(server.home.join("parlor.db")).unwrap();
    refuses(&server, &mut client).await;
    let journal = server.end_and_tell();
    says_once(&journal);
    let saved = saved_copy(&server.home);
    assert!(journal.contains(saved.file_name().unwrap().to_str().unwrap()), "{journal}");
    assert!(count(&saved, "one") > 0 && count(&saved, "two") == 0);
}

#[tokio::test]
async fn a_database_that_another_file_was_moved_over_takes_no_message() {
    let mut server = Server::start();
    let mut client = talk(&server).await;
    let other = tempfile::tempdir().unwrap();
    drop(talk(&Server::on(other.path())).await);
    fs::copy(other.path().join("parlor.db"), server.home.join("other.db")).unwrap();
    fs::rename(server.home.join("other.db"), server.home.join("parlor.db")).unwrap();
    refuses(&server, &mut client).await;
    says_once(&server.end_and_tell());
    assert!(count(&saved_copy(&server.home), "one") > 0);
}

#[tokio::test]
async fn a_database_that_was_moved_away_takes_no_message() {
    let mut server = Server::start();
    let mut client = talk(&server).await;
    fs::rename(server.home.join("parlor.db"), server.home.join("moved.db")).unwrap();
    refuses(&server, &mut client).await;
    says_once(&server.end_and_tell());
}

#[tokio::test]
async fn a_backup_that_is_restored_under_a_server_is_not_written_to() {
    let mut server = Server::start();
    let mut client = talk(&server).await;
    let backup = server.home.join("backup.db");
    let copy = format!("VACUUM INTO '{}'", backup.display());
    Connection::open(server.home.join("parlor.db")).unwrap().execute_batch(&copy).unwrap();
    // As docs/operations.md says it is done once all processes have ended, which was forgotten.
    for name in ["parlor.db-wal", "parlor.db-shm"] {
        fs::remove_file(server.home.join(name)).unwrap();
    }
    fs::copy(&backup, server.home.join("parlor.db")).unwrap();
    refuses(&server, &mut client).await;
    says_once(&server.end_and_tell());
}

#[tokio::test]
async fn without_its_write_ahead_log_or_its_index_a_database_takes_no_message_and_keeps_all_before() {
    for name in ["parlor.db-wal", "parlor.db-shm"] {
        let mut server = Server::start();
        let mut client = talk(&server).await;
        fs::remove_file(server.home.join(name)).unwrap();
        refuses(&server, &mut client).await;
        // Killed, so that nothing is put right at the end.
        server.kill_and_restart();
        assert_eq!(readiness(&server).await.0, READY);
        let replay = server.prints(&["replay", "a"]);
        assert!(replay.contains("one") && !replay.contains("two"), "{name}: {replay}");
        let mut client = Client::connect(server.http, "session_id=a").await;
        assert_eq!(outcome(&mut client, "/say three").await["event_type"], "run.started");
    }
}

#[tokio::test]
async fn a_server_on_a_damaged_database_is_not_ready_and_does_not_start_again() {
    let mut server = Server::start();
    let mut client = talk(&server).await;
    // All of it is in the file itself, so that there is nothing to mend it with.
    let database = server.home.join("parlor.db");
    Connection::open(&database).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let pages = usize::try_from(fs::metadata(&database).unwrap().len()).unwrap() - 100;
    let mut file = fs::OpenOptions::new().write(true).open(&database).unwrap();
    file.write_all(&vec![0xa5; pages]).unwrap();
    let answer = until_ready_is(&server, NOT_READY).await;
    assert!(answer["reason"].as_str().unwrap().contains("parlor doctor --recover"), "{answer}");
    assert_eq!(outcome(&mut client, "/say two").await["event_type"], "error.raised");
    says_once(&server.end_and_tell());
    let said = Server::spawn(crate::server::command(&server.home), &server.home).err().unwrap();
    assert!(said.contains("is damaged") && said.contains("parlor doctor --recover"), "{said}");
}

/// A small file system in memory. Mounting takes the rights of root.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = ["-t", "tmpfs", "-o", "size=24m", "tmpfs"];
        let mounted = run(Command::new("mount").args(options).arg(folder.path()));
        if !mounted {
            let _ = writeln!(std::io::stderr(), "skipped: a tmpfs cannot be mounted here");
        }
        mounted.then_some(Self(folder))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // One more for what a test has mounted over it.
        while run(Command::new("umount").arg("--lazy").arg(self.0.path())) {}
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn a_server_on_a_full_disk_is_not_ready_until_there_is_room_again() {
    let Some(disk) = Disk::mount() else { return };
    let home = disk.0.path().join("home");
    fs::create_dir(&home).unwrap();
    let mut server = Server::on(&home);
    let mut client = talk(&server).await;
    let ballast = disk.0.path().join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    let answer = until_ready_is(&server, NOT_READY).await;
    assert!(answer["reason"].as_str().unwrap().contains("no room left"), "{answer}");
    for _ in 0..100 {
        assert_eq!(readiness(&server).await.0, NOT_READY);
    }
    // The room comes back when nobody has it open.
    drop(file);
    fs::remove_file(&ballast).unwrap();
    until_ready_is(&server, READY).await;
    assert_eq!(outcome(&mut client, "/say two").await["event_type"], "run.started");
    let journal = server.end_and_tell();
    says_once(&journal);
    assert_eq!(journal.lines().filter(|line| line.contains("ready again")).count(), 1, "{journal}");
}

#[tokio::test]
async fn a_server_on_a_read_only_folder_is_not_ready_until_it_can_be_written_again() {
    let Some(disk) = Disk::mount() else { return };
    let home = disk.0.path().join("home");
    fs::create_dir(&home).unwrap();
    let server = Server::on(&home);
    let mut client = talk(&server).await;
    // The same files under the same names, for who opens them from now on.
    let over = |args: &[&str]| assert!(run(Command::new("mount").args(args).arg(&home)));
    assert!(run(Command::new("mount").arg("--bind").arg(&home).arg(&home)));
    over(&["-o", "remount,bind,ro"]);
    let answer = until_ready_is(&server, NOT_READY).await;
    assert!(answer["reason"].as_str().unwrap().contains("cannot be written"), "{answer}");
    assert!(run(Command::new("umount").arg("--lazy").arg(&home)));
    until_ready_is(&server, READY).await;
    assert_eq!(outcome(&mut client, "/say two").await["event_type"], "run.started");
}
