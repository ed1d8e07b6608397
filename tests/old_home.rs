//! A state folder that parlor wrote before its event types were renamed.
//!
//! `tests/old_home` has its database as SQL, its other files, and what that version printed for `sessions --json` and
//! for `replay --json` of every session. This version must open the folder and print the same bytes.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod home;

use std::fs;
use std::path::Path;

use home::Home;
use serde_json::{Value, json};

const SQL: &str = include_str!("old_home/parlor.sql");
const SESSIONS: &str = include_str!("old_home/sessions.jsonl");
const REPLAY: &str = include_str!("old_home/replay.jsonl");

/// The session whose run was interrupted by `kill -9`.
const INTERRUPTED: &str = "01a1e7cb-7352-7a61-9ec0-0aa05b1dde13";

fn old_home() -> Home {
    let home = Home::new();
    fs::create_dir(home.state()).unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/old_home/files"), &home.state());
    rusqlite::Connection::open(home.state().join("parlor.db")).unwrap().execute_batch(SQL).unwrap();
    home
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

#[test]
fn sessions_and_events_of_an_old_home_are_printed_as_before() {
    let home = old_home();
    assert_eq!(home.prints(&["sessions", "--json"]), SESSIONS);
    let ids = home.json(&["sessions", "--json"]);
    let ids = ids.iter().map(|session| session["session"].as_str().unwrap());
    let replay: String = ids.map(|id| home.prints(&["replay", id, "--json"])).collect();
    for (now, before) in replay.lines().zip(REPLAY.lines()) {
        assert_eq!(now, before);
    }
    assert_eq!(replay.len(), REPLAY.len());
}

#[test]
fn the_token_of_an_old_home_is_still_valid() {
    assert_eq!(old_home().prints(&["token"]), "6d20b13b6bd322b48f3770bed1879194\n");
}

#[test]
fn an_interrupted_session_of_an_old_home_accepts_messages() {
    let home = old_home();
    home.prints(&["chat", "--session", INTERRUPTED, "/say on"]);
    let events = home.json(&["replay", INTERRUPTED, "--json"]);
    let ends: Vec<_> = events.iter().filter(|event| event["type"] == "run.ended").collect();
    assert_eq!(ends.len(), 2);
    assert_eq!(ends[0]["failure"]["code"], "RUN_INTERRUPTED");
    assert_eq!(ends[1]["ending"], "completed");
}

#[test]
fn the_loaf_door_uses_the_preferences_of_an_old_home() {
    let home = old_home();
    let mut command = home.command(&["stdio", "loaf"]);
    let request = home.folder().join("request");
    fs::write(&request, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"model.list\"}\n").unwrap();
    let output = command.stdin(fs::File::open(request).unwrap()).output().unwrap();
    let answer = String::from_utf8(output.stdout).unwrap();
    let answer = answer.lines().find(|line| line.contains("\"id\":1")).unwrap();
    let answer: Value = serde_json::from_str(answer).unwrap();
    let chosen = ["selected_model", "selected_thinking"].map(|key| answer["result"][key].clone());
    assert_eq!(chosen, ["local", "HIGH"]);
}

#[test]
fn an_editor_loads_every_session_of_an_old_home_and_gets_nothing_before_its_first_answer() {
    let home = old_home();
    let sessions: Vec<Value> = SESSIONS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let initialize =
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}});
    let load = |(number, session): (usize, &Value)| {
        // The folder that the old version recorded.
        let params = json!({"sessionId": session["session"], "cwd": "/tmp", "mcpServers": []});
        json!({"jsonrpc": "2.0", "id": number + 1, "method": "session/load", "params": params})
    };
    let requests = std::iter::once(initialize).chain(sessions.iter().enumerate().map(load));
    let requests: String = requests.map(|request| format!("{request}\n")).collect();
    let input = home.folder().join("requests");
    fs::write(&input, requests).unwrap();
    let output = home.command(&["stdio", "acp"]).stdin(fs::File::open(&input).unwrap()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let frames = String::from_utf8(output.stdout).unwrap();
    let frames: Vec<Value> = frames.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(frames[0]["id"], 0, "the database is migrated in silence");
    for (number, session) in sessions.iter().enumerate() {
        let answer = frames.iter().position(|frame| frame["id"] == number + 1).unwrap();
        assert!(frames[answer].get("result").is_some(), "{}", frames[answer]);
        let is_message = |frame: &Value| {
            frame["params"]["sessionId"] == session["session"]
                && frame["params"]["update"]["sessionUpdate"] == "user_message_chunk"
        };
        assert!(frames[..answer].iter().any(is_message), "{session} has a history");
        assert!(!frames[answer..].iter().any(is_message), "{session} came before its answer");
    }
}
