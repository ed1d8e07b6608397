//! After a session is deleted, no file of the state folder contains its text.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::{Method, StatusCode};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::client::{Client, within_timeout};
use crate::http_api::{get, send_request};
use crate::server::Server;

/// This is in every text that must be deleted, and in no other.
const MARKER: &str = "xyzzy-unmistakable";

/// The files under a folder that contain the marker.
///
/// `grep` reads them in a process of its own. If this process opened and closed a database file, it would lose the
/// POSIX locks of its own SQLite reader, and with them the snapshot of that reader.
fn files_with_marker(folder: &Path) -> Vec<PathBuf> {
    let mut grep = Command::new("grep");
    let listed = grep.args(["-rlaF", "-D", "skip", MARKER]).arg(folder).output().unwrap();
    String::from_utf8(listed.stdout).unwrap().lines().map(PathBuf::from).collect()
}

/// Sends many messages to session `a` and to another one, so that database pages are filled, moved, shared and freed.
async fn fill_sessions(server: &Server) {
    let mut client = Client::connect(server.http, "session_id=a").await;
    let mut other = Client::connect(server.http, "session_id=b").await;
    let file = base64_simd::STANDARD.encode_to_string(format!("a file with {MARKER}"));
    client.send(&json!({"type": "media.send", "payload": {"data": file, "filename": "f.txt"}})).await;
    client.until("run.completed").await;
    for size in [1, 100, 3000, 20_000, 200_000] {
        client.send_text(&format!("/say {MARKER}{}", MARKER.repeat(size / MARKER.len()))).await;
        client.until("run.completed").await;
        other.send_text("/say something else").await;
        other.until("run.completed").await;
    }
    let title = json!({"title": format!("called {MARKER}")});
    assert_eq!(send_request(server, Method::PATCH, "/api/sessions/a", title).await.0, StatusCode::OK);
    keep_snapshot(&server.home);
    assert!(files_with_marker(&server.home).len() >= 2, "the database and a stored file contain the marker");
}

/// Adds a snapshot with the marker, as a server does after many events.
fn keep_snapshot(home: &Path) {
    let sql = "INSERT INTO snapshots SELECT key, head, 'event', 1, ?1 FROM sessions WHERE id = 'a'";
    let added = Connection::open(home.join("parlor.db")).unwrap().execute(sql, [MARKER.repeat(5000)]);
    assert_eq!(added, Ok(1));
}

/// Moves all events from `fresh` to `events`, as a server does after many of them.
fn move_fresh_events(home: &Path) {
    let sql = "PRAGMA secure_delete = ON; INSERT INTO events SELECT place, id, at, version, body FROM fresh; DELETE FROM fresh";
    Connection::open(home.join("parlor.db")).unwrap().execute_batch(sql).unwrap();
}

fn assert_no_file_has_marker(server: &Server) {
    let files = files_with_marker(&server.home);
    assert!(files.is_empty(), "{files:?}");
}

#[tokio::test]
async fn text_that_a_server_deletes_is_in_no_file() {
    let server = Server::start();
    fill_sessions(&server).await;
    let (status, answer) = send_request(&server, Method::DELETE, "/api/sessions/a", Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    assert_no_file_has_marker(&server);
    assert_eq!(get(&server, "/api/sessions").await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn text_that_another_process_deletes_while_a_server_runs_is_in_no_file() {
    let mut server = Server::start();
    fill_sessions(&server).await;
    // The new server has not opened the session.
    server.kill_and_restart();
    let mut client = Client::connect(server.http, "session_id=b").await;
    client.ping().await;
    assert!(server.prints(&["sessions", "delete", "a", "--yes"]).contains("Deleted session a."));
    assert_no_file_has_marker(&server);
}

#[tokio::test]
async fn text_that_is_deleted_without_a_server_is_in_no_file() {
    let mut server = Server::start();
    fill_sessions(&server).await;
    assert!(server.stop().success());
    move_fresh_events(&server.home);
    server.prints(&["sessions", "delete", "a", "--yes"]);
    assert_no_file_has_marker(&server);
}

#[tokio::test]
async fn text_that_gc_deletes_is_in_no_file() {
    let mut server = Server::start();
    fill_sessions(&server).await;
    server.kill_and_restart();
    let database = Connection::open(server.home.join("parlor.db")).unwrap();
    database.execute("UPDATE sessions SET updated = updated - 100 * 86400000 WHERE id = 'a'", []).unwrap();
    drop(database);
    for entry in fs::read_dir(server.home.join("media")).unwrap() {
        let file = fs::OpenOptions::new().append(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    server.prints(&["gc"]);
    assert_no_file_has_marker(&server);
}

#[tokio::test]
async fn a_server_erases_deleted_text_once_readers_of_an_older_snapshot_are_done() {
    let server = Server::start();
    fill_sessions(&server).await;
    let reader = Connection::open(server.home.join("parlor.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM sessions").unwrap();
    let (status, answer) = send_request(&server, Method::DELETE, "/api/sessions/a", Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    assert!(!files_with_marker(&server.home).is_empty());
    reader.execute_batch("COMMIT").unwrap();
    let gone = async {
        while !files_with_marker(&server.home).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    within_timeout(gone).await;
}

#[tokio::test]
async fn delete_reports_that_text_is_still_in_a_file_while_a_reader_has_an_older_snapshot() {
    let mut server = Server::start();
    fill_sessions(&server).await;
    server.kill_and_restart();
    let reader = Connection::open(server.home.join("parlor.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM sessions").unwrap();
    let printed = server.prints(&["sessions", "delete", "a", "--yes"]);
    assert!(printed.contains("Deleted session a.") && printed.contains("parlor.db-wal"), "{printed}");
    assert!(!files_with_marker(&server.home).is_empty());
    reader.execute_batch("COMMIT").unwrap();
    server.prints(&["gc"]);
    assert_no_file_has_marker(&server);
}
