//! Judges what clients of a cluster have recorded. Knows neither the log nor the nodes: only what clients and tools saw, and
//! what was done to the nodes meanwhile.
//!
//! All times are milliseconds of one clock, that of the machine.

use std::collections::{BTreeMap, BTreeSet};

/// An event as a client received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenEvent {
    pub(crate) id: String,
    pub(crate) run: String,
    /// The number of the event in its run.
    pub(crate) sequence: u64,
    pub(crate) at: i64,
    pub(crate) kind: EventKind,
}

/// What the checker needs to know of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// A run began, with the text of its input. No two inputs have the same text.
    Started {
        input: String,
    },
    Ended,
    Other,
}

/// What the clients of one session recorded.
#[derive(Debug, Default)]
pub(crate) struct SessionRecording {
    pub(crate) name: String,
    /// The inputs whose acceptance a client saw.
    pub(crate) acknowledged: BTreeSet<String>,
    /// How often each input was answered to the client that sent it, if that shows no other events.
    pub(crate) answers: BTreeMap<String, usize>,
    /// What each connection received, in order.
    pub(crate) watched: Vec<Vec<SeenEvent>>,
    /// The whole session, as each node showed it at the end.
    pub(crate) replays: Vec<Vec<SeenEvent>>,
    /// What the tools of the session did, in any order.
    pub(crate) effects: Vec<Effect>,
}

/// Something that a tool did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// The input whose run called the tool.
    pub(crate) input: String,
    pub(crate) node: String,
    pub(crate) at: i64,
}

/// Something that was done to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) node: String,
    pub(crate) kind: FaultKind,
    pub(crate) from: i64,
    pub(crate) until: i64,
    /// Nothing else was done to any node or database between `from` and this time.
    pub(crate) alone_until: i64,
}

/// How a node was prevented from working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Killed,
    Paused,
    /// It could not reach the database.
    CutOff,
}

/// How long a tool may go on after its node lost the lease.
const EFFECT_LIMIT: i64 = 3_000;

/// How long a process group that is being killed may take to notice it on a busy machine.
const KILL_TIME: i64 = 1_000;

/// When the sessions of a node that is lost go on.
const TAKEOVER_LIMIT: i64 = 10_000;

/// A node that is away for a shorter time may keep its sessions.
const LEASE: i64 = 5_000;

/// How long a node may still renew its lease after it was cut off or paused: a heartbeat can be under way.
const UNDER_WAY: i64 = 100;

/// All that is wrong with a session. Empty if every promise was kept.
pub(crate) fn violations(session: &SessionRecording, faults: &[Fault]) -> Vec<String> {
    let Some(history) = session.replays.first() else {
        return vec![format!("session {}: nobody replayed the session", session.name)];
    };
    let mut found = Vec::new();
    check_views(session, history, &mut found);
    check_runs(history, &mut found);
    check_inputs(session, history, &mut found);
    check_effects(session, history, faults, &mut found);
    let slow = takeovers(session, faults).into_iter().filter(|takeover| takeover.time > TAKEOVER_LIMIT);
    found.extend(slow.map(|Takeover { input, node, time }| {
        format!("the run of input {input:?} was left by node {node} and ended {time} ms later")
    }));
    found.iter().map(|text| format!("session {}: {text}", session.name)).collect()
}

/// All nodes show one history, and every connection saw a part of it.
fn check_views(session: &SessionRecording, history: &[SeenEvent], found: &mut Vec<String>) {
    for (number, replay) in session.replays.iter().enumerate() {
        if replay != history {
            found.push(format!("node {number} shows another history than node 0"));
        }
    }
    let ids: BTreeSet<&str> = history.iter().map(|event| event.id.as_str()).collect();
    if ids.len() != history.len() {
        found.push("an event is there twice".to_owned());
    }
    for (number, watched) in session.watched.iter().enumerate() {
        let Some(first) = watched.first() else { continue };
        let start = history.iter().position(|event| event.id == first.id);
        let is_part = start.and_then(|start| history.get(start..)?.get(..watched.len()));
        if is_part != Some(watched.as_slice()) {
            let rest = start.and_then(|start| history.get(start..)).unwrap_or_default();
            let differs = watched.iter().zip(rest).position(|(seen, there)| seen != there);
            let at = differs.unwrap_or(rest.len().min(watched.len()));
            found.push(format!(
                "connection {number} saw a gap, a repetition, or what is not in the history: its event {at} of {} is {:?}, \
                 and the history has {:?}",
                watched.len(),
                watched.get(at),
                rest.get(at)
            ));
        }
    }
}

/// Every run begins once and ends once, and its events are numbered without a gap.
fn check_runs(history: &[SeenEvent], found: &mut Vec<String>) {
    let mut runs: BTreeMap<&str, (usize, usize, u64)> = BTreeMap::new();
    for event in history {
        let (begun, ended, last) = runs.entry(&event.run).or_default();
        *last += 1;
        if event.sequence != *last {
            found.push(format!("run {} has event {} where {last} is next", event.run, event.sequence));
            *last = event.sequence;
        }
        match &event.kind {
            EventKind::Started { .. } => *begun += 1,
            EventKind::Ended => *ended += 1,
            EventKind::Other if *ended > 0 => found.push(format!("run {} went on after its end", event.run)),
            EventKind::Other => {}
        }
    }
    for (run, (begun, ended, _)) in runs {
        if (begun, ended) != (1, 1) {
            found.push(format!("run {run} began {begun} times and ended {ended} times"));
        }
    }
}

/// Every input that was acknowledged was carried out, and none twice.
fn check_inputs(session: &SessionRecording, history: &[SeenEvent], found: &mut Vec<String>) {
    let mut starts: BTreeMap<&str, usize> = BTreeMap::new();
    for event in history {
        if let EventKind::Started { input } = &event.kind {
            *starts.entry(input).or_default() += 1;
        }
    }
    for (input, count) in &starts {
        if *count > 1 {
            found.push(format!("input {input:?} was carried out {count} times"));
        }
    }
    for input in session.acknowledged.iter().chain(session.answers.keys()) {
        if !starts.contains_key(input.as_str()) {
            found.push(format!("input {input:?} was acknowledged and is lost"));
        }
    }
    for (input, count) in &session.answers {
        if *count > 1 {
            found.push(format!("input {input:?} was answered {count} times"));
        }
    }
}

/// The run of an input.
struct Run {
    started: i64,
    ended: i64,
}

fn runs_by_input(history: &[SeenEvent]) -> BTreeMap<&str, Run> {
    let ends = history.iter().filter(|event| event.kind == EventKind::Ended);
    let ends: BTreeMap<&str, i64> = ends.map(|event| (event.run.as_str(), event.at)).collect();
    let run = |event: &SeenEvent| {
        ends.get(event.run.as_str()).map(|ended| Run { started: event.at, ended: *ended })
    };
    let starts = history.iter().filter_map(|event| match &event.kind {
        EventKind::Started { input } => Some((input.as_str(), run(event)?)),
        EventKind::Ended | EventKind::Other => None,
    });
    starts.collect()
}

/// A tool stops before or soon after its run is ended by somebody else, and when its node can no longer renew its lease. A
/// node that is paused can stop nothing until it goes on.
fn check_effects(
    session: &SessionRecording,
    history: &[SeenEvent],
    faults: &[Fault],
    found: &mut Vec<String>,
) {
    let runs = runs_by_input(history);
    let replayed_until = history.last().map_or(0, |event| event.at);
    for Effect { input, node, at } in &session.effects {
        let Some(run) = runs.get(input.as_str()) else {
            // Nobody waited for the reply to this input, and it came after the last one.
            if *at >= replayed_until {
                continue;
            }
            found.push(format!(
                "a tool of input {input:?} did something, and the input is not in the history"
            ));
            continue;
        };
        if *at < run.started - UNDER_WAY {
            found.push(format!("a tool of input {input:?} did something before its run began"));
        }
        let faults = faults.iter().filter(|fault| fault.node == *node && fault.from <= *at);
        let paused = faults.clone().filter(|fault| fault.kind == FaultKind::Paused);
        let resumed = paused.map(|fault| fault.until).max().unwrap_or_default();
        let limit = run.ended.max(resumed) + EFFECT_LIMIT;
        if *at > limit {
            let late = at - run.ended;
            found.push(format!(
                "a tool of input {input:?} on node {node} went on {late} ms after the end of its run"
            ));
        }
        let cut = faults.filter(|fault| fault.kind == FaultKind::CutOff && run.started < fault.from);
        for fault in cut.filter(|fault| *at <= fault.until && fault.from > resumed) {
            let late = at - fault.from;
            if late > EFFECT_LIMIT + KILL_TIME {
                found.push(format!(
                    "a tool of input {input:?} went on {late} ms after its node {node} lost the database"
                ));
            }
        }
    }
}

/// A run that its node left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Takeover {
    input: String,
    node: String,
    /// How long after the fault its end was recorded.
    pub(crate) time: i64,
}

/// The runs with effects on a node just before it was lost, if nothing else happened until the session should go on.
pub(crate) fn takeovers(session: &SessionRecording, faults: &[Fault]) -> Vec<Takeover> {
    let runs = runs_by_input(session.replays.first().map(Vec::as_slice).unwrap_or_default());
    let mut found = Vec::new();
    for fault in faults {
        let is_lost = fault.kind == FaultKind::Killed || fault.until - fault.from > LEASE + EFFECT_LIMIT;
        if !is_lost || fault.alone_until - fault.from < TAKEOVER_LIMIT {
            continue;
        }
        let before =
            session.effects.iter().filter(|effect| effect.node == fault.node && effect.at < fault.from);
        let inputs: BTreeSet<&str> = before.map(|effect| effect.input.as_str()).collect();
        for input in inputs {
            let Some(run) = runs.get(input).filter(|run| run.ended > fault.from + UNDER_WAY) else {
                continue;
            };
            let (input, node) = (input.to_owned(), fault.node.clone());
            found.push(Takeover { input, node, time: run.ended - fault.from });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str, run: &str, sequence: u64, at: i64, kind: EventKind) -> SeenEvent {
        SeenEvent { id: id.to_owned(), run: run.to_owned(), sequence, at, kind }
    }

    fn history() -> Vec<SeenEvent> {
        let started = |input: &str| EventKind::Started { input: input.to_owned() };
        vec![
            event("1", "a", 1, 1_000, started("k1")),
            event("2", "a", 2, 2_000, EventKind::Other),
            event("3", "a", 3, 9_000, EventKind::Ended),
            event("4", "b", 1, 9_000, started("k2")),
            event("5", "b", 2, 9_500, EventKind::Ended),
        ]
    }

    fn recording(history: Vec<SeenEvent>) -> SessionRecording {
        let acknowledged = ["k1", "k2"].map(str::to_owned).into();
        SessionRecording {
            name: "s".to_owned(),
            acknowledged,
            answers: [("k2".to_owned(), 1)].into(),
            watched: vec![history.clone(), history.iter().skip(2).cloned().collect(), Vec::new()],
            replays: vec![history.clone(), history],
            effects: vec![effect("k1", "n", 1_500)],
        }
    }

    fn effect(input: &str, node: &str, at: i64) -> Effect {
        Effect { input: input.to_owned(), node: node.to_owned(), at }
    }

    fn fault(kind: FaultKind, from: i64, until: i64) -> Fault {
        Fault { node: "n".to_owned(), kind, from, until, alone_until: from + 20_000 }
    }

    #[test]
    fn a_session_that_keeps_all_promises_passes() {
        assert_eq!(violations(&recording(history()), &[]), [""; 0]);
    }

    /// Each change breaks one promise, and the checker finds it.
    #[test]
    fn every_broken_promise_is_found() {
        let found = |change: &dyn Fn(&mut SessionRecording)| {
            let mut session = recording(history());
            change(&mut session);
            violations(&session, &[]).join("\n")
        };
        let changed_history = |change: &dyn Fn(&mut Vec<SeenEvent>)| {
            let mut events = history();
            change(&mut events);
            violations(&recording(events), &[]).join("\n")
        };
        assert!(found(&|session| drop(session.replays[1].pop())).contains("another history"));
        assert!(found(&|session| drop(session.watched[0].remove(1))).contains("a gap"));
        assert!(found(&|session| session.watched[0].push(history()[0].clone())).contains("a repetition"));
        assert!(found(&|session| session.acknowledged.extend(["k3".to_owned()])).contains("is lost"));
        assert!(found(&|session| session.answers.extend([("k3".to_owned(), 1)])).contains("is lost"));
        assert!(
            found(&|session| session.answers.extend([("k2".to_owned(), 2)])).contains("answered 2 times")
        );
        assert!(changed_history(&|events| events[4].id = "1".to_owned()).contains("there twice"));
        assert!(changed_history(&|events| drop(events.remove(2))).contains("ended 0 times"));
        assert!(changed_history(&|events| drop(events.remove(1))).contains("event 3 where 2 is next"));
        assert!(changed_history(&|events| events[1].kind = EventKind::Ended).contains("ended 2 times"));
        assert!(
            changed_history(&|events| events[3] = SeenEvent { id: "4".to_owned(), ..events[0].clone() })
                .contains("carried out 2 times")
        );
        assert!(changed_history(&|events| events.swap(1, 2)).contains("went on after its end"));
    }

    #[test]
    fn tools_that_go_on_without_a_lease_are_found() {
        let found = |effects: &[Effect], faults: &[Fault]| {
            let mut session = recording(history());
            session.effects.extend(effects.iter().cloned());
            violations(&session, faults).join("\n")
        };
        assert_eq!(found(&[effect("k1", "n", 11_900)], &[]), "");
        assert!(found(&[effect("k1", "n", 12_100)], &[]).contains("3100 ms after the end of its run"));
        assert!(found(&[effect("k1", "n", 500)], &[]).contains("before its run began"));
        assert!(found(&[effect("k9", "n", 1_000)], &[]).contains("not in the history"));
        assert_eq!(found(&[effect("k9", "n", 9_500)], &[]), "");
        // A node that is paused stops its tools when it goes on.
        let pause = fault(FaultKind::Paused, 2_000, 12_000);
        assert!(!found(&[effect("k1", "n", 14_900)], std::slice::from_ref(&pause)).contains("after the end"));
        assert!(found(&[effect("k1", "n", 15_100)], std::slice::from_ref(&pause)).contains("after the end"));
        assert!(found(&[effect("k1", "m", 14_900)], &[pause]).contains("after the end"));
        let cut = fault(FaultKind::CutOff, 2_000, 7_500);
        assert_eq!(
            found(&[effect("k1", "n", 4_900), effect("k1", "n", 7_600)], std::slice::from_ref(&cut)),
            ""
        );
        assert!(
            found(&[effect("k1", "n", 6_100)], &[cut]).contains("4100 ms after its node n lost the database")
        );
    }

    #[test]
    fn runs_that_nobody_takes_over_in_time_are_found() {
        let session = |ended: i64| {
            let mut events = history();
            events[2].at = ended;
            recording(events)
        };
        let killed = fault(FaultKind::Killed, 2_000, 3_000);
        assert_eq!(violations(&session(9_000), std::slice::from_ref(&killed)), [""; 0]);
        assert_eq!(takeovers(&session(9_000), std::slice::from_ref(&killed))[0].time, 7_000);
        let late = violations(&session(12_100), std::slice::from_ref(&killed)).join("\n");
        assert!(late.contains("left by node n and ended 10100 ms later"), "{late}");
        // Something else may have prevented it, the run was elsewhere, had ended before, or the node may have kept it.
        for other in [
            Fault { alone_until: 11_000, ..killed.clone() },
            Fault { node: "m".to_owned(), ..killed.clone() },
            Fault { from: 13_000, until: 14_000, alone_until: 40_000, ..killed },
            fault(FaultKind::Paused, 2_000, 6_000),
        ] {
            assert_eq!(takeovers(&session(12_100), &[other]), []);
        }
    }
}
