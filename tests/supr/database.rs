//! What a running server does when its database is removed, replaced or damaged, or when the disk is full.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::{Method, StatusCode};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::client::{Client, within_timeout};
use crate::http_api::send_request;
use crate::server::Server;

const READY: StatusCode = StatusCode::OK;
const NOT_READY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

/// The response of `/ready`.
async fn readiness(server: &Server) -> (StatusCode, Value) {
    send_request(server, Method::GET, "/ready", Value::Null).await
}

/// Requests `/ready` until it responds with `status`. The server checks its disk only from time to time.
async fn wait_for_readiness(server: &Server, status: StatusCode) -> Value {
    let polling = async {
        loop {
            let (found, answer) = readiness(server).await;
            if found == status {
                return answer;
            }
        }
    };
    within_timeout(polling).await
}

/// A client of session `a` that has sent one message and received the answer.
async fn client_after_one_message(server: &Server) -> Client {
    let mut client = Client::connect(server.http, "session_id=a").await;
    client.send_text("/say one").await;
    client.until("run.completed").await;
    assert_eq!(readiness(server).await.0, READY);
    client
}

/// Sends a message and returns the first event of its outcome: `error.raised` or `run.started`.
async fn outcome(client: &mut Client, content: &str) -> Value {
    client.send_text(content).await;
    loop {
        let frame = client.next().await.unwrap();
        if matches!(frame["event_type"].as_str(), Some("error.raised" | "run.started")) {
            return frame;
        }
    }
}

/// Checks that the server refuses messages and that `/ready` fails, both for the same reason.
async fn assert_refuses_messages(server: &Server, client: &mut Client) {
    for _ in 0..3 {
        let refused = outcome(client, "/say two").await;
        assert_eq!(refused["event_type"], "error.raised", "the message was accepted: {refused}");
        let message = refused["data"]["message"].as_str().unwrap();
        assert!(message.contains("parlor.db") && message.contains("restart parlor"), "{message}");
        let (status, answer) = readiness(server).await;
        assert_eq!((status, &answer["status"]), (NOT_READY, &json!("not ready")));
        // `/ready` gives the same reason without the folder, since it needs no token.
        let reason = answer["reason"].as_str().unwrap();
        assert!(message.contains(reason.split_once("parlor.db").unwrap().1), "{reason}");
        assert!(!reason.contains(server.home.to_str().unwrap()), "{reason}");
        assert_eq!(send_request(server, Method::GET, "/readyz", Value::Null).await.0, NOT_READY);
    }
}

/// Checks that the log has exactly one line that says that the server is not ready.
fn assert_logged_once(log: &str) {
    assert_eq!(log.lines().filter(|line| line.contains("not ready")).count(), 1, "{log}");
}

/// The number of events of a database that contain `text`.
fn count(database: &Path, text: &str) -> i64 {
    let both = "SELECT body FROM events UNION ALL SELECT body FROM fresh";
    let sql = format!("SELECT count(*) FROM ({both}) WHERE body LIKE '%' || ?1 || '%'");
    Connection::open(database).unwrap().query_row(&sql, [text], |row| row.get(0)).unwrap()
}

/// The copy that the server saved of its database after the file was removed.
fn saved_copy(home: &Path) -> PathBuf {
    let names = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path());
    names.into_iter().find(|path| path.to_string_lossy().contains("parlor.db.saved-")).unwrap()
}

#[tokio::test]
async fn a_server_whose_database_was_removed_refuses_messages_and_saves_what_it_acknowledged() {
    let mut server = Server::start();
    let mut client = client_after_one_message(&server).await;
    fs::remove_file(server.home.join("parlor.db")).unwrap();
    assert_refuses_messages(&server, &mut client).await;
    let log = server.stop_and_read_log();
    assert_logged_once(&log);
    let saved = saved_copy(&server.home);
    assert!(log.contains(saved.file_name().unwrap().to_str().unwrap()), "{log}");
    assert!(count(&saved, "one") > 0 && count(&saved, "two") == 0);
}

#[tokio::test]
async fn a_server_whose_database_was_replaced_refuses_messages() {
    let mut server = Server::start();
    let mut client = client_after_one_message(&server).await;
    let other = tempfile::tempdir().unwrap();
    drop(client_after_one_message(&Server::on(other.path())).await);
    fs::copy(other.path().join("parlor.db"), server.home.join("other.db")).unwrap();
    fs::rename(server.home.join("other.db"), server.home.join("parlor.db")).unwrap();
    assert_refuses_messages(&server, &mut client).await;
    assert_logged_once(&server.stop_and_read_log());
    assert!(count(&saved_copy(&server.home), "one") > 0);
}

#[tokio::test]
async fn a_server_whose_database_was_moved_refuses_messages() {
    let mut server = Server::start();
    let mut client = client_after_one_message(&server).await;
    fs::rename(server.home.join("parlor.db"), server.home.join("moved.db")).unwrap();
    assert_refuses_messages(&server, &mut client).await;
    assert_logged_once(&server.stop_and_read_log());
}

#[tokio::test]
async fn a_backup_that_is_restored_under_a_running_server_is_not_written_to() {
    let mut server = Server::start();
    let mut client = client_after_one_message(&server).await;
    let backup = server.home.join("backup.db");
    let copy = format!("VACUUM INTO '{}'", backup.display());
    Connection::open(server.home.join("parlor.db")).unwrap().execute_batch(&copy).unwrap();
    // The steps of docs/operations.md, but somebody forgot to stop the server first.
    for name in ["parlor.db-wal", "parlor.db-shm"] {
        fs::remove_file(server.home.join(name)).unwrap();
    }
    fs::copy(&backup, server.home.join("parlor.db")).unwrap();
    assert_refuses_messages(&server, &mut client).await;
    assert_logged_once(&server.stop_and_read_log());
}

#[tokio::test]
async fn a_server_whose_wal_or_shm_file_was_removed_refuses_messages_and_keeps_earlier_ones() {
    for name in ["parlor.db-wal", "parlor.db-shm"] {
        let mut server = Server::start();
        let mut client = client_after_one_message(&server).await;
        fs::remove_file(server.home.join(name)).unwrap();
        assert_refuses_messages(&server, &mut client).await;
        // A killed server cannot repair the files as it stops.
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
    let mut client = client_after_one_message(&server).await;
    // The checkpoint empties the write-ahead log, so SQLite cannot restore the pages from it.
    let database = server.home.join("parlor.db");
    Connection::open(&database).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let pages = usize::try_from(fs::metadata(&database).unwrap().len()).unwrap() - 100;
    let mut file = fs::OpenOptions::new().write(true).open(&database).unwrap();
    file.write_all(&vec![0xa5; pages]).unwrap();
    let answer = wait_for_readiness(&server, NOT_READY).await;
    assert!(answer["reason"].as_str().unwrap().contains("parlor doctor --recover"), "{answer}");
    assert_eq!(outcome(&mut client, "/say two").await["event_type"], "error.raised");
    assert_logged_once(&server.stop_and_read_log());
    let error = Server::spawn(crate::server::command(&server.home), &server.home).err().unwrap();
    assert!(error.contains("is damaged") && error.contains("parlor doctor --recover"), "{error}");
}

/// A small tmpfs. Only root can mount it.
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
        // A test may have mounted something over it, so unmount until nothing is left.
        while run(Command::new("umount").arg("--lazy").arg(self.0.path())) {}
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn a_server_on_a_full_disk_is_not_ready_until_space_is_free_again() {
    let Some(disk) = Disk::mount() else { return };
    let home = disk.0.path().join("home");
    fs::create_dir(&home).unwrap();
    let mut server = Server::on(&home);
    let mut client = client_after_one_message(&server).await;
    let ballast = disk.0.path().join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    let answer = wait_for_readiness(&server, NOT_READY).await;
    assert!(answer["reason"].as_str().unwrap().contains("no room left"), "{answer}");
    for _ in 0..100 {
        assert_eq!(readiness(&server).await.0, NOT_READY);
    }
    // The file's blocks are freed only after it is closed.
    drop(file);
    fs::remove_file(&ballast).unwrap();
    wait_for_readiness(&server, READY).await;
    assert_eq!(outcome(&mut client, "/say two").await["event_type"], "run.started");
    let log = server.stop_and_read_log();
    assert_logged_once(&log);
    assert_eq!(log.lines().filter(|line| line.contains("ready again")).count(), 1, "{log}");
}

#[tokio::test]
async fn a_server_on_a_read_only_folder_is_not_ready_until_the_folder_is_writable_again() {
    let Some(disk) = Disk::mount() else { return };
    let home = disk.0.path().join("home");
    fs::create_dir(&home).unwrap();
    let server = Server::on(&home);
    let mut client = client_after_one_message(&server).await;
    // A read-only bind mount over the folder: the server finds the same files, but cannot open them for writing.
    let mount = |args: &[&str]| assert!(run(Command::new("mount").args(args).arg(&home)));
    assert!(run(Command::new("mount").arg("--bind").arg(&home).arg(&home)));
    mount(&["-o", "remount,bind,ro"]);
    let answer = wait_for_readiness(&server, NOT_READY).await;
    assert!(answer["reason"].as_str().unwrap().contains("cannot be written"), "{answer}");
    assert!(run(Command::new("umount").arg("--lazy").arg(&home)));
    wait_for_readiness(&server, READY).await;
    assert_eq!(outcome(&mut client, "/say two").await["event_type"], "run.started");
}
