//! The memory of idle sessions, and the time that `parlor chat` takes for an answer.

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

use crate::process_status::status_number;
use crate::stats::{median, verdict};

/// How many sessions are open and idle.
pub(crate) const SESSIONS: usize = 1000;

/// The most bytes that one idle session may take.
const MAX_IDLE_BYTES: f64 = 8.0 * 1024.0;

/// The most milliseconds that an answer may take beyond `--version`.
const MAX_ANSWER_MS: f64 = 60.0;

/// How often each command is run.
const ROUNDS: usize = 25;

/// All figures of one run.
pub(crate) struct Costs {
    /// The memory of one idle session, in bytes.
    idle: f64,
    /// The time of `parlor --version`, the median, in milliseconds.
    version: f64,
    /// The time of `parlor chat '/say hi'`, the median, in milliseconds.
    chat: f64,
}

/// Measures `parlor` with databases below `parent`. Idle sessions are measured in a child process, which is this program
/// with the arguments `idle_arg` and a folder.
pub(crate) fn measure(parlor: &Path, idle_arg: &str, parent: &Path) -> anyhow::Result<Costs> {
    std::fs::create_dir_all(parent)?;
    let folder = tempfile::tempdir_in(parent)?;
    let child =
        Command::new(std::env::current_exe()?).arg(idle_arg).arg(folder.path().join("idle")).output()?;
    ensure!(child.status.success(), "measuring failed: {}", String::from_utf8_lossy(&child.stderr));
    let idle = String::from_utf8(child.stdout)?.trim().parse().context("the child printed no number")?;
    let home = folder.path().join("home");
    let (mut versions, mut chats) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        versions.push(milliseconds(parlor, &["--version"], &home)?);
        chats.push(milliseconds(parlor, &["chat", "/say hi"], &home)?);
    }
    Ok(Costs { idle, version: median(versions), chat: median(chats) })
}

/// The figures as a Markdown table, each with its bound.
pub(crate) fn table(costs: &Costs) -> String {
    let more = costs.chat - costs.version;
    format!(
        "| sessions | parlor | held to |\n|---|---|---|\n\
         | one of {SESSIONS} idle sessions | {:.1} KiB | at most {:.0} KiB: {} |\n\
         | `parlor chat '/say hi'`, start to last byte, p50 | {:.1} ms, `--version` {:.1} ms | {more:.1} ms more, at most \
         {MAX_ANSWER_MS:.0}: {} |\n",
        costs.idle / 1024.0,
        MAX_IDLE_BYTES / 1024.0,
        verdict(costs.idle <= MAX_IDLE_BYTES),
        costs.chat,
        costs.version,
        verdict(more <= MAX_ANSWER_MS),
    )
}

/// Opens sessions in `folder`, and returns how many bytes of memory each takes.
pub(crate) fn idle_session_bytes(folder: &Path) -> anyhow::Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let clock = Arc::new(SystemClock);
        let sessions = Sessions::new(SessionDeps {
            log: Arc::new(SqliteLog::open(folder, Arc::clone(&clock) as _)?),
            agents: Agents::new(AgentId::parse("local")?, Arc::new(LocalAgent::default())),
            tools: Toolbox::standard(ShellTool::default()),
            media: MediaStore::open(folder)?,
            env: Vec::new().into(),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TimeOrderedIds::new(clock)),
        });
        // The first session also allocates what is needed only once, so it is not counted.
        sessions.create(None, new_session()).await?;
        let before = anonymous_bytes()?;
        for _ in 0..SESSIONS {
            sessions.create(None, new_session()).await?;
        }
        let after = anonymous_bytes()?;
        sessions.close().await;
        Ok((after - before).max(0.0) / SESSIONS as f64)
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

/// The anonymous memory of this process, in bytes.
fn anonymous_bytes() -> anyhow::Result<f64> {
    Ok(status_number(std::process::id(), "RssAnon:")? * 1024.0)
}

fn milliseconds(parlor: &Path, args: &[&str], home: &Path) -> anyhow::Result<f64> {
    let mut command = Command::new(parlor);
    command.args(args).env("PARLOR_HOME", home).stdin(Stdio::null()).stderr(Stdio::inherit());
    let begun = Instant::now();
    let output = command.output()?;
    let elapsed = begun.elapsed();
    ensure!(output.status.success(), "parlor {args:?} failed");
    Ok(elapsed.as_secs_f64() * 1000.0)
}
