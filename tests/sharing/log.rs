//! What the log says of a session, and who owns it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::home::Home;

/// The events of a session. Panics if their numbers have a gap, or if a run does not have exactly one start and one end.
pub(crate) fn checked_events(home: &Home, session: &str) -> Vec<Value> {
    let events = home.json(&["replay", session, "--json"]);
    let mut ids = HashSet::new();
    let mut runs: HashMap<&str, (usize, usize)> = HashMap::new();
    for (event, seq) in events.iter().zip(1..) {
        assert_eq!(event["seq"], seq, "{session}: a gap: {event}");
        assert!(ids.insert(event["id"].as_str()), "{session}: an id occurs twice: {event}");
        match event["type"].as_str() {
            Some("run.started") => runs.entry(event["run"].as_str().unwrap()).or_default().0 += 1,
            Some("run.ended") => runs.entry(event["run"].as_str().unwrap()).or_default().1 += 1,
            _ => {}
        }
    }
    for (run, counts) in runs {
        assert_eq!(counts, (1, 1), "{session}: starts and ends of {run}");
    }
    events
}

/// The events of this type.
pub(crate) fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// The text of the message with which each run began, how it ended, and which door sent the message.
pub(crate) fn runs(events: &[Value]) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ending = |run: &Value| {
        let ended = of_type(events, "run.ended").into_iter().find(|event| event["run"] == *run);
        ended.map(|event| text(&event["ending"])).unwrap_or_default()
    };
    let started = of_type(events, "run.started");
    let describe = |event: &&Value| {
        (text(&event["input"]["text"]), ending(&event["run"]), text(&event["input"]["by"]["door"]))
    };
    started.iter().map(describe).collect()
}

/// The process that has a session open, or had it open last.
pub(crate) fn owner(home: &Home, session: &str) -> u32 {
    let database = rusqlite::Connection::open(home.state().join("parlor.db")).unwrap();
    database.busy_timeout(crate::terminal::TIMEOUT).unwrap();
    let query = "SELECT pid FROM leases WHERE session = ?1";
    database.query_row(query, [session], |row| row.get(0)).unwrap()
}
