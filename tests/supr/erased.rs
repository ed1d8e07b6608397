//! What was said in a deleted session is in no file of the state folder any more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::{Method, StatusCode};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::client::{Client, patiently};
use crate::house::{ask, get};
use crate::server::Server;

/// In every text that has to go, and in nothing else.
const MARKER: &str = "xyzzy-unmistakable";

/// The files under a folder that have the marker in them.
///
/// Another process reads them: closing a file of the database here would give up the locks that a reader in this process
/// holds on it, and with them the older state that it reads.
fn found(folder: &Path) -> Vec<PathBuf> {
    let mut grep = Command::new("grep");
    let listed = grep.args(["-rlaF", "-D", "skip", MARKER]).arg(folder).output().unwrap();
    String::from_utf8(listed.stdout).unwrap().lines().map(PathBuf::from).collect()
}

/// Says much in session `a` and in others beside it, so that pages are filled, moved, shared and freed.
async fn talk(server: &Server) {
    let mut client = Client::connect(server.http, "session_id=a").await;
    let mut other = Client::connect(server.http, "session_id=b").await;
    let file = base64_simd::STANDARD.encode_to_string(format!("a file with {MARKER}"));
    client.send(&json!({"type": "media.send", "payload": {"data": file, "filename": "f.txt"}})).await;
    client.until("run.completed").await;
    for size in [1, 100, 3000, 20_000, 200_000] {
        client.say(&format!("/say {MARKER}{}", MARKER.repeat(size / MARKER.len()))).await;
        client.until("run.completed").await;
        other.say("/say something else").await;
        other.until("run.completed").await;
    }
    let title = json!({"title": format!("called {MARKER}")});
    assert_eq!(ask(server, Method::PATCH, "/api/sessions/a", title).await.0, StatusCode::OK);
    assert!(found(&server.home).len() >= 2, "the database and a stored file have it");
}

/// Moves all events to their places, as a server does after many of them.
fn settle(home: &Path) {
    let moved = "PRAGMA secure_delete = ON; INSERT INTO events SELECT place, id, at, version, body FROM fresh; DELETE FROM fresh";
    Connection::open(home.join("parlor.db")).unwrap().execute_batch(moved).unwrap();
}

fn assert_gone(server: &Server) {
    let found = found(&server.home);
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn what_a_server_deletes_is_in_no_file() {
    let server = Server::start();
    talk(&server).await;
    let (status, answer) = ask(&server, Method::DELETE, "/api/sessions/a", Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    assert_gone(&server);
    assert_eq!(get(&server, "/api/sessions").await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_another_process_deletes_beside_a_server_is_in_no_file() {
    let mut server = Server::start();
    talk(&server).await;
    // Another server on the same state has not opened the session.
    server.kill_and_restart();
    let mut client = Client::connect(server.http, "session_id=b").await;
    client.ping().await;
    assert!(server.prints(&["sessions", "delete", "a", "--yes"]).contains("Deleted session a."));
    assert_gone(&server);
}

#[tokio::test]
async fn what_is_deleted_without_a_server_is_in_no_file() {
    let mut server = Server::start();
    talk(&server).await;
    assert!(server.end().success());
    settle(&server.home);
    server.prints(&["sessions", "delete", "a", "--yes"]);
    assert_gone(&server);
}

#[tokio::test]
async fn what_is_collected_is_in_no_file() {
    let mut server = Server::start();
    talk(&server).await;
    server.kill_and_restart();
    let database = Connection::open(server.home.join("parlor.db")).unwrap();
    database.execute("UPDATE sessions SET updated = updated - 100 * 86400000 WHERE id = 'a'", []).unwrap();
    drop(database);
    for entry in fs::read_dir(server.home.join("media")).unwrap() {
        let file = fs::OpenOptions::new().append(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    server.prints(&["gc"]);
    assert_gone(&server);
}

#[tokio::test]
async fn a_server_takes_deleted_text_out_of_its_files_once_readers_are_done() {
    let server = Server::start();
    talk(&server).await;
    let reader = Connection::open(server.home.join("parlor.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM sessions").unwrap();
    let (status, answer) = ask(&server, Method::DELETE, "/api/sessions/a", Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    assert!(!found(&server.home).is_empty());
    reader.execute_batch("COMMIT").unwrap();
    let gone = async {
        while !found(&server.home).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    patiently(gone).await;
}

#[tokio::test]
async fn while_somebody_reads_an_older_state_it_is_said_that_the_text_is_still_there() {
    let mut server = Server::start();
    talk(&server).await;
    server.kill_and_restart();
    let reader = Connection::open(server.home.join("parlor.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM sessions").unwrap();
    let said = server.prints(&["sessions", "delete", "a", "--yes"]);
    assert!(said.contains("Deleted session a.") && said.contains("parlor.db-wal"), "{said}");
    assert!(!found(&server.home).is_empty());
    reader.execute_batch("COMMIT").unwrap();
    server.prints(&["gc"]);
    assert_gone(&server);
}
