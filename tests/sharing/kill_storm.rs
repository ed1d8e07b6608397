//! The owners of eight sessions are killed, round after round, while three processes have a client in each session.
//!
//! In each round every session has a run that would last for minutes, with further messages behind it, of which some are on
//! their way when the owner is killed. The surviving processes take the sessions over, and a new process joins them. At
//! the end nothing acknowledged is lost, nothing was carried out twice, every run has one end, and each client was sent
//! each event once.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::home::Home;
use crate::log::{checked_events, of_type, owner};
use crate::soak;
use crate::storm_nodes::Node;
use crate::supr::Socket;

const SESSIONS: usize = 8;
const NODES: usize = 3;

/// The node with the server. The others are front ends.
const SUPR: usize = 0;

/// A takeover that takes longer fails `make soak`, which has the machine for itself.
const MAX_TAKEOVER: Duration = Duration::from_secs(1);

/// A takeover that takes longer fails the test on a busy machine.
const MAX_BUSY_TAKEOVER: Duration = Duration::from_secs(20);

struct Storm {
    home: Home,
    /// The ids of the sessions.
    chats: Vec<String>,
    nodes: Vec<Node>,
    /// The ids of the events that the clients of the server received in each session, on connections that have ended.
    received: Vec<Vec<String>>,
    /// The messages of each session that must be in its log.
    acknowledged: Vec<HashSet<String>>,
    /// What clients whose process was killed were shown: the session, and the messages in order.
    shown: Vec<(usize, Vec<String>)>,
    /// How long each takeover took, for each process that saw it.
    takeovers: Vec<Duration>,
}

impl Storm {
    async fn begin() -> Self {
        let home = Home::new();
        let chats: Vec<String> = (0..SESSIONS).map(|session| format!("storm-{session}")).collect();
        let received = vec![Vec::new(); SESSIONS];
        let mut supr = Node::supr(&home, &chats, &received).await;
        for session in 0..SESSIONS {
            supr.send(session, "/say begun").await;
            supr.sees_end(session, "/say begun").await;
        }
        let nodes = vec![supr, Node::loaf(&home, &chats).await, Node::loaf(&home, &chats).await];
        let acknowledged = vec![HashSet::new(); SESSIONS];
        Self { home, chats, nodes, received, acknowledged, shown: Vec::new(), takeovers: Vec::new() }
    }

    async fn round(&mut self, round: usize) {
        self.nodes.iter_mut().for_each(Node::begin_round);
        // The number makes the text unique.
        let long_run = |session: usize| format!("/wait 5{round:03}{session}e-2");
        let say = |session: usize, node: usize| format!("/say round {round} session {session} node {node}");

        for session in 0..SESSIONS {
            self.nodes[(session + round) % NODES].send(session, &long_run(session)).await;
        }
        for session in 0..SESSIONS {
            for node in &self.nodes {
                node.sees_message(session, &long_run(session)).await;
            }
            self.acknowledged[session].insert(long_run(session));
        }
        let owners: Vec<u32> = self.chats.iter().map(|chat| owner(&self.home, chat)).collect();
        let killed_pid = owners[round % SESSIONS];
        let killed = self.nodes.iter().position(|node| node.pid() == killed_pid).expect("a node owns it");
        let survivors: Vec<usize> = (0..NODES).filter(|node| *node != killed).collect();

        for session in 0..SESSIONS {
            for node in 1..NODES {
                self.nodes[node].send(session, &say(session, node)).await;
            }
        }
        // The messages of half of the sessions are stored when the owner is killed, and the others are on their way.
        for session in (0..SESSIONS).step_by(2) {
            self.nodes[SUPR].send(session, &say(session, SUPR)).await;
            self.nodes[SUPR].is_stored(session, &say(session, SUPR)).await;
        }
        for session in (1..SESSIONS).step_by(2) {
            self.nodes[SUPR].send(session, &say(session, SUPR)).await;
        }
        let killed_at = Instant::now();
        self.nodes[killed].kill().await;

        for session in (0..SESSIONS).filter(|session| owners[*session] != killed_pid) {
            self.nodes[survivors[0]].stop(session).await;
        }
        for (session, owner) in owners.iter().enumerate() {
            for survivor in &survivors {
                let seen_at = self.nodes[*survivor].sees_end(session, &long_run(session)).await;
                if *owner == killed_pid {
                    self.takeovers.push(seen_at - killed_at);
                }
            }
        }

        self.replace(killed).await;
        for session in 0..SESSIONS {
            if killed == SUPR {
                // As a client does that does not know whether its message arrived.
                self.nodes[SUPR].send(session, &say(session, SUPR)).await;
            }
            // A front end keeps its queue in memory, so the messages of a killed one may be lost.
            for sender in survivors.iter().copied().chain([SUPR]).collect::<HashSet<_>>() {
                let text = say(session, sender);
                for node in survivors.iter().copied().chain([SUPR]) {
                    self.nodes[node].sees_end(session, &text).await;
                }
                self.acknowledged[session].insert(text);
            }
        }
    }

    /// Records what the clients of a killed process received, and starts another process for them.
    async fn replace(&mut self, killed: usize) {
        self.record(killed);
        self.nodes[killed] = match killed {
            SUPR => Node::supr(&self.home, &self.chats, &self.received).await,
            _ => Node::loaf(&self.home, &self.chats).await,
        };
    }

    fn record(&mut self, node: usize) {
        for session in 0..SESSIONS {
            match node {
                SUPR => self.received[session].extend(self.nodes[node].event_ids(session)),
                _ => self.shown.push((session, self.nodes[node].messages(session))),
            }
        }
    }

    /// Compares what the clients were sent with the log.
    async fn check(mut self) {
        (0..NODES).for_each(|node| self.record(node));
        let mut prompts = Vec::new();
        for (session, chat) in self.chats.iter().enumerate() {
            let events = checked_events(&self.home, chat);
            let text = |event: &&Value| event["input"]["text"].as_str().unwrap().to_owned();
            prompts.push(of_type(&events, "run.started").iter().map(text).collect::<Vec<_>>());
            let mut counts: HashMap<&str, usize> = HashMap::new();
            for prompt in &prompts[session] {
                *counts.entry(prompt).or_default() += 1;
            }
            assert!(counts.values().all(|count| *count == 1), "{chat}: carried out twice: {counts:?}");
            let lost: Vec<_> = self.acknowledged[session]
                .iter()
                .filter(|text| !counts.contains_key(text.as_str()))
                .collect();
            assert!(lost.is_empty(), "{chat}: acknowledged and lost: {lost:?}");

            let Node::Supr { server, .. } = &self.nodes[SUPR] else { panic!("the first node is the server") };
            let all = Socket::connect(server.http, &format!("session_id={chat}&after=")).await;
            let last = self.received[session].last().unwrap();
            all.frames.find("the last event", |frame| frame["event_id"] == last.as_str()).await;
            let all = all.frames.all();
            let all: Vec<_> = all.iter().filter_map(|frame| frame["event_id"].as_str()).collect();
            assert_eq!(self.received[session], all, "{chat}: what the client of the server received");
        }
        for (session, shown) in &self.shown {
            let Some(first) = shown.first() else { continue };
            let start = prompts[*session].iter().position(|prompt| prompt == first).unwrap();
            let expected: Vec<_> = prompts[*session].iter().skip(start).take(shown.len()).collect();
            assert_eq!(
                shown.iter().collect::<Vec<_>>(),
                expected,
                "session {session}: what a front end was shown"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_double_when_owners_are_killed() {
    let rounds = soak(5, 200);
    let mut storm = Storm::begin().await;
    for round in 0..rounds {
        storm.round(round).await;
    }
    let mut takeovers = std::mem::take(&mut storm.takeovers);
    takeovers.sort_unstable();
    storm.check().await;
    let (count, longest) = (takeovers.len(), *takeovers.last().unwrap());
    eprintln!(
        "{rounds} kills, {SESSIONS} sessions, {NODES} processes: {count} takeovers seen, median {:?}, longest {longest:?}",
        takeovers[count / 2]
    );
    assert!(longest < soak(MAX_BUSY_TAKEOVER, MAX_TAKEOVER), "{longest:?}");
}
