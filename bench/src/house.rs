//! What sessions cost that nobody uses, and how long a person waits for the first word.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use parlor_engine::{Agents, MediaStore, SessionDeps, Sessions};
use parlor_log::{SqliteLog, SystemClock, TimeOrderedIds};
use parlor_model::LocalAgent;
use parlor_tools::{ShellTool, Toolbox};
use parlor_vocab::{AgentChoice, AgentId, NewSession};

/// How many sessions are open and idle.
pub(crate) const SESSIONS: usize = 1000;

/// The most that one of them may take, in bytes.
const IDLE_BYTES: f64 = 8.0 * 1024.0;

/// The most that an answer may take beyond `--version`, in milliseconds.
const ANSWER_MS: f64 = 60.0;

/// How often each program is started.
const STARTS: usize = 25;

/// All figures of one run.
pub(crate) struct Costs {
    /// Bytes for each idle session.
    idle: f64,
    /// Milliseconds of `parlor --version`, the median.
    version: f64,
    /// Milliseconds of `parlor chat '/say hi'`, the median.
    chat: f64,
}

/// Measures `parlor`. Idle sessions are counted in a process of their own, which is this program
/// called with `idle` and a folder.
pub(crate) fn measure(parlor: &Path, idle: &str, place: &Path) -> anyhow::Result<Costs> {
    std::fs::create_dir_all(place)?;
    let folder = tempfile::tempdir_in(place)?;
    let counted =
        Command::new(std::env::current_exe()?).arg(idle).arg(folder.path().join("idle")).output()?;
    ensure!(counted.status.success(), "counting failed: {}", String::from_utf8_lossy(&counted.stderr));
    let idle = String::from_utf8(counted.stdout)?.trim().parse().context("a number of bytes")?;
    let home = folder.path().join("home");
    let (mut versions, mut chats) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        versions.push(milliseconds(parlor, &["--version"], &home)?);
        chats.push(milliseconds(parlor, &["chat", "/say hi"], &home)?);
    }
    Ok(Costs { idle, version: median(versions), chat: median(chats) })
}

/// The figures as a Markdown table, each with the bound it is held to.
pub(crate) fn table(costs: &Costs) -> String {
    let verdict = |held: bool| if held { "held" } else { "**missed**" };
    let more = costs.chat - costs.version;
    format!(
        "| sessions | parlor | held to |\n|---|---|---|\n\
         | one of {SESSIONS} idle sessions | {:.1} KiB | at most {:.0} KiB: {} |\n\
         | `parlor chat '/say hi'`, start to last byte, p50 | {:.1} ms, `--version` {:.1} ms | {more:.1} ms more, at most \
         {ANSWER_MS:.0}: {} |\n",
        costs.idle / 1024.0,
        IDLE_BYTES / 1024.0,
        verdict(costs.idle <= IDLE_BYTES),
        costs.chat,
        costs.version,
        verdict(more <= ANSWER_MS),
    )
}

/// Opens sessions in `folder` and tells how many bytes each takes.
pub(crate) fn idle(folder: &Path) -> anyhow::Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let clock = Arc::new(SystemClock);
        let house = Sessions::new(SessionDeps {
            log: Arc::new(SqliteLog::open(folder, Arc::clone(&clock) as _)?),
            agents: Agents::new(AgentId::parse("local")?, Arc::new(LocalAgent::default())),
            tools: Toolbox::standard(ShellTool::default()),
            media: MediaStore::open(folder)?,
            env: Vec::new().into(),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TimeOrderedIds::new(clock)),
        });
        // What is needed once is not counted.
        house.create(None, new_session()).await?;
        let before = anonymous_bytes()?;
        for _ in 0..SESSIONS {
            house.create(None, new_session()).await?;
        }
        let after = anonymous_bytes()?;
        house.close().await;
        Ok(after.saturating_sub(before) as f64 / SESSIONS as f64)
    })
}

fn new_session() -> NewSession {
    NewSession {
        title: None,
        door: "bench".to_owned(),
        folder: "/tmp".into(),
        choice: AgentChoice::default(),
        system: None,
        forked_from: None,
    }
}

/// The memory of this process that belongs to it alone.
fn anonymous_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("a line RssAnon")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024)
}

fn milliseconds(parlor: &Path, args: &[&str], home: &Path) -> anyhow::Result<f64> {
    let mut command = Command::new(parlor);
    command.args(args).env("PARLOR_HOME", home).stdin(Stdio::null()).stderr(Stdio::inherit());
    let begun = Instant::now();
    let output = command.output()?;
    let taken = begun.elapsed();
    ensure!(output.status.success(), "parlor {args:?} failed");
    Ok(taken.as_secs_f64() * 1000.0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
