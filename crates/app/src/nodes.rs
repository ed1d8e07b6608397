//! `parlor nodes`: lists the nodes that share a log.

use std::io::Write;

use clap::Args;
use parlor_engine::Sessions;
use parlor_log::NodeRecord;
use serde::Serialize;

use crate::json;
use crate::settings::Config;

/// The arguments of `parlor nodes`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// A node as `--json` prints it. Members may be added but not renamed.
#[derive(Serialize)]
struct NodeLine<'a> {
    node: &'a str,
    pid: u32,
    workspace: Option<&'a str>,
    address: Option<&'a str>,
    version: Option<&'a str>,
    alive: bool,
    heartbeat_age_ms: u64,
    up_ms: u64,
    sessions: u64,
    runs: u64,
}

impl<'a> NodeLine<'a> {
    fn new(record: &'a NodeRecord) -> Self {
        Self {
            node: &record.node,
            pid: record.pid,
            workspace: record.workspace.as_deref(),
            address: record.announcement.address.as_deref(),
            version: record.announcement.version.as_deref(),
            alive: record.is_alive,
            heartbeat_age_ms: record.heartbeat_age.as_millis() as u64,
            up_ms: record.up.as_millis() as u64,
            sessions: record.sessions,
            runs: record.runs,
        }
    }
}

/// Lists the nodes, those that are alive first.
pub(crate) async fn nodes(
    sessions: &Sessions,
    config: &Config,
    options: &Options,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let nodes = sessions.nodes().await?;
    if options.json {
        for node in &nodes {
            json::write_line(out, &NodeLine::new(node))?;
        }
        return Ok(());
    }
    if nodes.is_empty() {
        let why = match config.log.url {
            Some(_) => "No node is running: parlor serve starts one.",
            None => "The log is on this machine alone: [log] url in parlor.toml names one that nodes share.",
        };
        writeln!(out, "{why}")?;
        return Ok(());
    }
    writeln!(
        out,
        "{:16} {:16} {:24} {:>8} {:>6}  STATE",
        "NODE", "WORKSPACE", "ADDRESS", "SESSIONS", "RUNS"
    )?;
    for node in &nodes {
        let address = node.announcement.address.as_deref().unwrap_or("-");
        let state = match node.is_alive {
            true => format!("up {}", rough_time(node.up.as_secs())),
            false => format!("gone for {}", rough_time(node.heartbeat_age.as_secs())),
        };
        let workspace = node.workspace.as_deref().unwrap_or("-");
        let NodeRecord { node, sessions, runs, .. } = node;
        writeln!(out, "{node:16} {workspace:16} {address:24} {sessions:>8} {runs:>6}  {state}")?;
    }
    Ok(())
}

/// `7 s`, `3 min`, `2 h` or `5 days`.
fn rough_time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        172_800.. => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rough() {
        let times = [0, 119, 120, 7199, 7200, 172_799, 172_800].map(rough_time);
        assert_eq!(times, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days"]);
    }
}
