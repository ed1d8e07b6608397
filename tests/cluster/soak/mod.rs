//! Busy sessions on three nodes and a primary with a synchronous standby, in a network of their own, while nodes are killed,
//! paused, asked to end and cut off, the primary is lost, and everything is restarted: what clients recorded keeps every
//! promise (`checker.rs`). With `PARLOR_SOAK=1` for 15 minutes, or `PARLOR_SOAK_SECONDS`; otherwise the test does nothing.

mod clients;
mod databases;
mod faults;
mod network;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use self::clients::{Mix, Surroundings, drive, read_effects, replay_as_it_is, replay_everywhere};
use self::databases::Databases;
use self::faults::{Cluster, NAMES, Nemesis};
use self::network::{NODES, Network};
use crate::checker::{Fault, SessionRecording, takeovers, violations};
use crate::node::NodeHome;
use crate::server::soak;

/// How many sessions are busy.
const SESSIONS: u64 = 60;

/// How long everything may take after the last fault.
const CALM: Duration = Duration::from_secs(120);

/// Random enough to choose faults; the seed is printed, so that a failure can be repeated roughly.
pub(crate) struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A soak.
struct Soak {
    sessions: u64,
    time: Duration,
    nemeses: &'static [Nemesis],
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_see_every_promise_kept_whatever_fails() {
    let seconds = std::env::var("PARLOR_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let Some(seconds) = seconds.or_else(|| soak(None, Some(900))) else { return };
    let name = "soak::clients_see_every_promise_kept_whatever_fails";
    let Some(network) = Network::enter(name) else { return };
    let soak = Soak {
        sessions: SESSIONS,
        time: Duration::from_secs(seconds),
        nemeses: &[
            Nemesis::KillNode,
            Nemesis::KillNode,
            Nemesis::PauseNode,
            Nemesis::PauseNode,
            Nemesis::CutDatabase,
            Nemesis::CutDatabase,
            Nemesis::CutNodes,
            Nemesis::StopNode,
            Nemesis::LosePrimary,
            Nemesis::RestartAll,
        ],
    };
    let found = run(network, soak).await;
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The checker finds faults of the log. `scripts/mutants.sh` builds programs with one fault each (`tests/cluster/mutants`) and
/// sets `PARLOR_MUTANT` to its name; otherwise these tests do nothing.
mod mutants {
    use super::{Chance, Duration, Nemesis, Network, Soak, run};

    /// How long the nodes are disturbed.
    const SECONDS: u64 = 90;

    async fn is_found(mutant: &str, nemeses: &'static [Nemesis], complaint: &[&str]) {
        if std::env::var("PARLOR_MUTANT").ok().as_deref() != Some(mutant) {
            return;
        }
        let seconds = std::env::var("PARLOR_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
        let time = Duration::from_secs(seconds.unwrap_or(SECONDS));
        let Some(network) = Network::enter(&format!("soak::mutants::{mutant}")) else { return };
        let found = run(network, Soak { sessions: 24, time, nemeses }).await;
        eprintln!("{mutant}: {} complaints, such as", found.len());
        let mut chance = Chance(0);
        for _ in 0..found.len().min(12) {
            eprintln!("  {}", found[chance.below(found.len() as u64) as usize]);
        }
        let is_expected = found.iter().any(|text| complaint.iter().any(|part| text.contains(part)));
        assert!(is_expected, "{mutant}: none of {complaint:?} in {found:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_fencing() {
        let nemeses = &[Nemesis::PauseNode, Nemesis::CutDatabase];
        is_found("no_fencing", nemeses, &["went on after its end", "and ended 2 times"]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_token_proof() {
        let nemeses = &[Nemesis::PauseNode, Nemesis::CutDatabase];
        is_found("no_token_proof", nemeses, &["lost the database", "after the end of its run"]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn own_clock() {
        is_found("own_clock", &[Nemesis::KillNode, Nemesis::PauseNode], &["and ended"]).await;
    }
}

/// Keeps the sessions busy while everything fails, and returns what the checker found.
async fn run(network: Network, soak: Soak) -> Vec<String> {
    let databases = Databases::start().await;
    let homes: Vec<_> = (0..NODES.len()).map(|node| home(&databases, node)).collect();
    std::fs::create_dir(homes[0].path().join("effects")).unwrap();
    let end = Instant::now() + soak.time;
    let surroundings = Arc::new(Surroundings { network, homes, end });
    let mut cluster = Cluster::start(Arc::clone(&surroundings), databases).await;
    let drivers = (0..soak.sessions).map(|number| {
        let mix = match number % 6 {
            4 => Mix::SuprAndLoaf,
            5 => Mix::SuprAndChat,
            _ => Mix::Supr,
        };
        tokio::spawn(drive(number, mix, Arc::clone(&surroundings)))
    });
    let drivers: Vec<_> = drivers.collect();
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let mut chance = Chance(seed);
    while Instant::now() < end {
        let nemesis = soak.nemeses[chance.below(soak.nemeses.len() as u64) as usize];
        cluster.strike(nemesis, &mut chance).await;
    }
    let (mut found, mut times) = (Vec::new(), Vec::new());
    let (mut inputs, mut answers, mut effects_seen) = (0, 0, 0);
    let finish = |driver: JoinHandle<SessionRecording>| {
        let surroundings = Arc::clone(&surroundings);
        tokio::spawn(async move {
            let mut recording = driver.await.unwrap();
            let is_at_rest = timeout(CALM, replay_everywhere(&mut recording)).await.is_ok();
            if !is_at_rest {
                // A run that goes on for ever must not keep the test.
                let _ = timeout(CALM / 4, replay_as_it_is(&mut recording)).await;
            }
            read_effects(&mut recording, &surroundings);
            (recording, is_at_rest)
        })
    };
    let finished: Vec<_> = drivers.into_iter().map(finish).collect();
    for recording in finished {
        let (recording, is_at_rest) = recording.await.unwrap();
        inputs += recording.acknowledged.len();
        answers += recording.answers.len();
        effects_seen += recording.effects.len();
        if !is_at_rest {
            found.push(format!("session {} does not come to rest", recording.name));
        }
        if !recording.replays.is_empty() {
            found.extend(violations(&recording, cluster.faults()));
        }
        times.extend(takeovers(&recording, cluster.faults()).into_iter().map(|takeover| takeover.time));
    }
    times.sort_unstable();
    eprintln!(
        "{} faults, {} sessions, {inputs} acknowledged inputs, {answers} answers to loaf and chat, {effects_seen} effects, \
         takeovers after {times:?} ms",
        cluster.count, soak.sessions
    );
    for fault in cluster.faults() {
        let Fault { node, kind, from, until, .. } = fault;
        eprintln!("{from} to {until}: {node} {kind:?}");
    }
    found
}

/// The state folder of a node.
fn home(databases: &Databases, node: usize) -> NodeHome {
    let home = NodeHome::new(&format!(
        "[log]\nurl = {:?}\n[cluster]\nnode = {:?}\nlisten = \"{}:18791\"\nsecret_file = \"cluster.key\"\nworkspace = \"main\"\n",
        databases.url(),
        NAMES[node],
        NODES[node]
    ));
    crate::peer_door::write_secret(&home, &"the secret of all nodes".repeat(2));
    home
}
