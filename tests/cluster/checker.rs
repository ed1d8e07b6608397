//! Judges what clients of a cluster have recorded. Knows neither the log nor the nodes: only what a client can see.

use std::collections::{BTreeMap, BTreeSet};

/// An event as a client received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenEvent {
    pub(crate) id: String,
    pub(crate) run: String,
    pub(crate) kind: EventKind,
}

/// What the checker needs to know of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// A run began, with the key of its input.
    Started {
        key: String,
    },
    Ended,
    Other,
}

/// What the clients of one session recorded.
#[derive(Debug, Default)]
pub(crate) struct SessionRecording {
    pub(crate) name: String,
    /// The keys of inputs whose acceptance a client saw.
    pub(crate) acknowledged: BTreeSet<String>,
    /// What each connection received, in order.
    pub(crate) watched: Vec<Vec<SeenEvent>>,
    /// The whole session, as each node showed it at the end.
    pub(crate) replays: Vec<Vec<SeenEvent>>,
}

/// All that is wrong with a session. Empty if every promise was kept.
pub(crate) fn violations(session: &SessionRecording) -> Vec<String> {
    let mut found = Vec::new();
    let mut report = |text: String| found.push(format!("session {}: {text}", session.name));
    let Some(history) = session.replays.first() else {
        return vec!["nobody replayed the session".to_owned()];
    };
    for (number, replay) in session.replays.iter().enumerate() {
        if replay != history {
            report(format!("node {number} shows another history than node 0"));
        }
    }
    let ids: BTreeSet<&str> = history.iter().map(|event| event.id.as_str()).collect();
    if ids.len() != history.len() {
        report("an event is there twice".to_owned());
    }
    for (number, watched) in session.watched.iter().enumerate() {
        let Some(first) = watched.first() else { continue };
        let start = history.iter().position(|event| event.id == first.id);
        let is_part = start.and_then(|start| history.get(start..)?.get(..watched.len()));
        if is_part != Some(watched.as_slice()) {
            let rest = start.and_then(|start| history.get(start..)).unwrap_or_default();
            let differs = watched.iter().zip(rest).position(|(seen, there)| seen != there);
            let at = differs.unwrap_or(rest.len().min(watched.len()));
            report(format!(
                "connection {number} saw a gap, a repetition, or what is not in the history: its event {at} of {} is {:?}, \
                 and the history has {:?}",
                watched.len(),
                watched.get(at),
                rest.get(at)
            ));
        }
    }
    let mut runs: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut starts: BTreeMap<&str, usize> = BTreeMap::new();
    for event in history {
        let (begun, ended) = runs.entry(&event.run).or_default();
        match &event.kind {
            EventKind::Started { key } => {
                *begun += 1;
                *starts.entry(key).or_default() += 1;
            }
            EventKind::Ended => *ended += 1,
            EventKind::Other if *ended > 0 => report(format!("run {} went on after its end", event.run)),
            EventKind::Other => {}
        }
    }
    for (run, counts) in runs {
        if counts != (1, 1) {
            report(format!("run {run} began {} times and ended {} times", counts.0, counts.1));
        }
    }
    for (key, count) in &starts {
        if *count > 1 {
            report(format!("input {key} was carried out {count} times"));
        }
    }
    for key in &session.acknowledged {
        if !starts.contains_key(key.as_str()) {
            report(format!("input {key} was acknowledged and is lost"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str, run: &str, kind: EventKind) -> SeenEvent {
        SeenEvent { id: id.to_owned(), run: run.to_owned(), kind }
    }

    fn history() -> Vec<SeenEvent> {
        let started = |key: &str| EventKind::Started { key: key.to_owned() };
        vec![
            event("1", "a", started("k1")),
            event("2", "a", EventKind::Other),
            event("3", "a", EventKind::Ended),
            event("4", "b", started("k2")),
            event("5", "b", EventKind::Ended),
        ]
    }

    fn recording(history: Vec<SeenEvent>) -> SessionRecording {
        let acknowledged = ["k1", "k2"].map(str::to_owned).into();
        SessionRecording {
            name: "s".to_owned(),
            acknowledged,
            watched: vec![history.clone(), history.iter().skip(2).cloned().collect(), Vec::new()],
            replays: vec![history.clone(), history],
        }
    }

    #[test]
    fn a_session_that_keeps_all_promises_passes() {
        assert_eq!(violations(&recording(history())), [""; 0]);
    }

    /// Each change breaks one promise, and the checker finds it.
    #[test]
    fn every_broken_promise_is_found() {
        let found = |change: &dyn Fn(&mut SessionRecording)| {
            let mut session = recording(history());
            change(&mut session);
            violations(&session).join("\n")
        };
        let changed_history = |change: &dyn Fn(&mut Vec<SeenEvent>)| {
            let mut events = history();
            change(&mut events);
            violations(&recording(events)).join("\n")
        };
        assert!(found(&|session| drop(session.replays[1].pop())).contains("another history"));
        assert!(found(&|session| drop(session.watched[0].remove(1))).contains("a gap"));
        assert!(found(&|session| session.watched[0].push(history()[0].clone())).contains("a repetition"));
        assert!(found(&|session| session.acknowledged.extend(["k3".to_owned()])).contains("is lost"));
        assert!(changed_history(&|events| events[4].id = "1".to_owned()).contains("there twice"));
        assert!(changed_history(&|events| drop(events.remove(2))).contains("ended 0 times"));
        assert!(changed_history(&|events| events[1].kind = EventKind::Ended).contains("ended 2 times"));
        assert!(
            changed_history(&|events| events[3] = SeenEvent { id: "4".to_owned(), ..events[0].clone() })
                .contains("carried out 2 times")
        );
        assert!(changed_history(&|events| events.swap(1, 2)).contains("went on after its end"));
    }
}
