//! What is done to nodes, databases and their network, at random.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use super::Chance;
use super::clients::{HTTP_PORT, Surroundings, TOKEN};
use super::databases::Databases;
use super::network::NODES;
use crate::checker::{Fault, FaultKind};
use crate::server::{PARLOR, Server};

/// The names of the nodes.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// How long all nodes may take to start when everything is well.
const START_TIME: Duration = Duration::from_secs(60);

/// What can go wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nemesis {
    KillNode,
    PauseNode,
    StopNode,
    CutDatabase,
    CutNodes,
    LosePrimary,
    RestartAll,
}

/// The nodes and databases, and what was done to them.
pub(super) struct Cluster {
    surroundings: Arc<Surroundings>,
    databases: Databases,
    servers: Vec<Server>,
    faults: Vec<Fault>,
    pub(super) count: usize,
}

impl Cluster {
    pub(super) async fn start(surroundings: Arc<Surroundings>, databases: Databases) -> Self {
        let mut cluster = Self { surroundings, databases, servers: Vec::new(), faults: Vec::new(), count: 0 };
        for node in 0..NODES.len() {
            let server = cluster.serve(node).await;
            cluster.servers.push(server);
        }
        cluster
    }

    /// What was done.
    pub(super) fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Starts a node. It ends if the database cannot be reached just then; systemd would start it again.
    async fn serve(&self, node: usize) -> Server {
        let home = &self.surroundings.homes[node];
        let deadline = Instant::now() + START_TIME;
        loop {
            let mut command = std::process::Command::new(PARLOR);
            let address = format!("{}:{HTTP_PORT}", NODES[node]);
            command.args(["serve", "--listen", &address, "--no-supex"]).current_dir(home.path());
            command.env("PARLOR_HOME", home.path()).env("SUPRCLAW_CHANNELS_SUPR_TOKEN", TOKEN);
            let mut command = self.surroundings.network.command_of(node, &command);
            let log =
                std::fs::File::options().append(true).create(true).open(home.path().join("stderr")).unwrap();
            command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(log);
            match tokio::task::block_in_place(|| Server::spawn(command, home.path())) {
                Ok(server) => return server,
                Err(error) => assert!(Instant::now() < deadline, "{error}{}", home.log()),
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn restart(&mut self, node: usize) {
        self.servers[node] = self.serve(node).await;
    }

    /// Does this, waits until everything is whole again, and a little longer.
    pub(super) async fn strike(&mut self, nemesis: Nemesis, chance: &mut Chance) {
        let (node, from) = (chance.below(3) as usize, now());
        let pause = Duration::from_millis(chance.below(7000));
        let quiet = Duration::from_millis(500 + chance.below(11000));
        eprintln!("{from} {nemesis:?} {}", NAMES[node]);
        let kind = match nemesis {
            Nemesis::KillNode => {
                self.servers[node].kill();
                sleep(pause).await;
                self.restart(node).await;
                Some(FaultKind::Killed)
            }
            Nemesis::PauseNode => {
                let pid = Pid::from_raw(self.servers[node].pid().try_into().unwrap()).unwrap();
                kill_process(pid, Signal::STOP).unwrap();
                sleep(Duration::from_secs(6) + pause).await;
                kill_process(pid, Signal::CONT).unwrap();
                Some(FaultKind::Paused)
            }
            Nemesis::StopNode => {
                tokio::task::block_in_place(|| self.servers[node].stop());
                self.restart(node).await;
                None
            }
            Nemesis::CutDatabase => {
                self.surroundings.network.cut_database(node, true);
                sleep(Duration::from_secs(1) + 2 * pause).await;
                self.surroundings.network.cut_database(node, false);
                Some(FaultKind::CutOff)
            }
            Nemesis::CutNodes => {
                let other = (node + 1) % NODES.len();
                self.surroundings.network.cut_nodes(node, other, true);
                sleep(Duration::from_secs(1) + 2 * pause).await;
                self.surroundings.network.cut_nodes(node, other, false);
                None
            }
            Nemesis::LosePrimary => {
                self.databases.lose_primary();
                sleep(pause).await;
                self.databases.add_standby().await;
                None
            }
            Nemesis::RestartAll => {
                for server in &mut self.servers {
                    server.kill();
                }
                self.databases.kill_all();
                sleep(pause).await;
                self.databases.restart_all().await;
                for node in 0..NODES.len() {
                    self.restart(node).await;
                }
                None
            }
        };
        let until = now();
        sleep(quiet).await;
        if let Some(kind) = kind {
            let node = NAMES[node].to_owned();
            self.faults.push(Fault { node, kind, from, until, alone_until: now() });
        }
        self.count += 1;
    }
}

/// The time in milliseconds.
fn now() -> i64 {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    time.as_millis() as i64
}
