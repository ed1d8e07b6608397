//! The processor time of three nodes that carry the sessions of one.

use std::path::Path;

use parlor_log::postgres::test_server::TestServer;
use tokio::task::JoinSet;

use crate::stats::Spread;
use crate::supr::{Client, Server};

/// How many sessions are busy at the same time, on all nodes together.
pub(super) const SESSIONS: usize = 300;

/// How many messages each session gets in a round, one after another.
const MESSAGES: usize = 3;

/// How many rounds there are. Each measures one node and three nodes.
const ROUNDS: usize = 5;

/// What the agent of all nodes does: several events for each message.
const SCRIPT: &str =
    "[otherwise]\nsteps = [ { think = \"a thought of some length\" }, { say = \"and what is said\" } ]\n";

/// The processor time of all nodes for a message, in microseconds.
pub(super) struct NodeFigures {
    pub(super) one: f64,
    pub(super) three: f64,
    pub(super) ratio: Spread,
}

pub(super) async fn measure(server: &TestServer, parlor: &Path) -> anyhow::Result<NodeFigures> {
    let alone = start(server, parlor, 1).await?;
    let cluster = start(server, parlor, 3).await?;
    let (mut ones, mut threes) = (Vec::new(), Vec::new());
    // The first one warms up.
    for round in 0..=ROUNDS {
        let (one, three) = (busy_micros(&alone, round).await?, busy_micros(&cluster, round).await?);
        if round > 0 {
            ones.push(one);
            threes.push(three);
        }
    }
    let ratio = Spread::of(threes.iter().zip(&ones).map(|(three, one)| three / one).collect());
    Ok(NodeFigures { one: crate::stats::median(ones), three: crate::stats::median(threes), ratio })
}

/// Starts nodes on a database of their own.
async fn start(server: &TestServer, parlor: &Path, count: usize) -> anyhow::Result<Vec<Server>> {
    let url = server.url(&server.new_database().await);
    let node = |number: usize| {
        let settings = format!(
            "default_agent = \"script\"\n[agents.script]\nkind = \"script\"\nfile = \"script.toml\"\n\
             [log]\nurl = \"{url}\"\n[cluster]\nnode = \"n{number}\"\nworkspace = \"bench\"\n"
        );
        Server::with(parlor, crate::DATABASE_FOLDER, &settings, SCRIPT)
    };
    (0..count).map(node).collect()
}

/// The processor time of the nodes for each message while all sessions are busy. Clients are spread over the nodes.
async fn busy_micros(nodes: &[Server], round: usize) -> anyhow::Result<f64> {
    let mut clients = Vec::new();
    for number in 0..SESSIONS {
        let node = &nodes[number % nodes.len()];
        let mut client = node.connect(&format!("?session_id=round-{round}-{number}")).await?;
        client.frame().await?;
        clients.push(client);
    }
    let before = cpu_seconds(nodes)?;
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(use_session(client));
    }
    let mut open = Vec::new();
    while let Some(client) = tasks.join_next().await {
        open.push(client??);
    }
    Ok((cpu_seconds(nodes)? - before) * 1e6 / (SESSIONS * MESSAGES) as f64)
}

fn cpu_seconds(nodes: &[Server]) -> anyhow::Result<f64> {
    nodes.iter().map(Server::cpu_seconds).sum()
}

async fn use_session(mut client: Client) -> anyhow::Result<Client> {
    for _ in 0..MESSAGES {
        client.send_message("go").await?;
        while !client.frame().await?.contains("\"run.completed\"") {}
    }
    Ok(client)
}
