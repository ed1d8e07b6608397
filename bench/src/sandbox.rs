//! The cost of a sandbox: the start and end of `/bin/true` with and without it, by the code that starts the processes of agents;
//! and of the programs `parlor sandbox` and `codex sandbox`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use parlor_process::{ProcessNumber, Sandbox, spawn_in};
use parlor_vocab::{PolicyMode, ProcessId, StartProcess, StdioKind};
use tokio::sync::mpsc;

use crate::stats::{median, verdict};

/// How often each is started.
const ROUNDS: usize = 300;

/// What a sandbox may cost at p50, in milliseconds.
const MAX_COST: f64 = 3.0;

/// How often each program is started. They take longer.
const PROGRAM_ROUNDS: usize = 50;

/// How many times faster than codex's program parlor's is at least.
const MIN_FACTOR: f64 = 2.0;

/// The p50 in milliseconds.
pub(crate) struct SandboxFigures {
    plain: f64,
    sandboxed: f64,
}

/// The p50 of the programs in milliseconds.
pub(crate) struct ProgramFigures {
    parlor: f64,
    codex: f64,
}

/// Starts `parlor sandbox` and `codex sandbox` in turns.
pub(crate) fn measure_programs(parlor: &Path, codex: &Path, folder: &Path) -> anyhow::Result<ProgramFigures> {
    let state = folder.join("sandbox-state");
    std::fs::create_dir_all(&state)?;
    let (folder, state) = (folder.canonicalize()?, state.canonicalize()?);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..PROGRAM_ROUNDS {
        for (program, times) in [parlor, codex].into_iter().zip(&mut times) {
            let mut command = Command::new(program);
            command.args(["sandbox", "--", "/bin/true"]).current_dir(&folder).stdin(Stdio::null());
            command.env("PARLOR_HOME", &state).env("CODEX_HOME", &state);
            let begun = Instant::now();
            let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{} sandbox -- /bin/true failed: {said}", program.display());
        }
    }
    let [parlor, codex] = times.map(median);
    Ok(ProgramFigures { parlor, codex })
}

/// The figures of the programs as a Markdown table.
pub(crate) fn program_table(figures: &ProgramFigures) -> String {
    let factor = figures.codex / figures.parlor;
    format!(
        "| sandbox of a program | parlor sandbox | codex sandbox | factor |\n|---|---|---|---|\n\
         | start to end with /bin/true, p50 | {:.2} ms | {:.2} ms | {factor:.1} (at least {MIN_FACTOR}: {}) |\n",
        figures.parlor,
        figures.codex,
        verdict(factor >= MIN_FACTOR),
    )
}

/// Starts `/bin/true` in turns without and with a sandbox.
pub(crate) fn measure(folder: &Path) -> anyhow::Result<SandboxFigures> {
    std::fs::create_dir_all(folder)?;
    let folder = folder.canonicalize()?;
    let home = std::env::home_dir().context("no home folder")?;
    let sandbox = Sandbox::new(PolicyMode::Workspace, &folder, Some(&home));
    let start = StartProcess {
        process: ProcessId::parse("true")?,
        program: "/bin/true".to_owned(),
        args: Vec::new(),
        arg0: None,
        folder,
        env: Vec::new(),
        stdio: StdioKind::Pipes,
        retain_bytes: 0,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (sandbox, times) in [None, Some(&sandbox)].into_iter().zip(&mut times) {
                let begun = Instant::now();
                let (sender, mut reports) = mpsc::channel(4);
                let _process = spawn_in(sandbox, &start, ProcessNumber(1), sender)?;
                while reports.recv().await.is_some() {}
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        let [plain, sandboxed] = times.map(median);
        Ok(SandboxFigures { plain, sandboxed })
    })
}

/// The figures as a Markdown table.
pub(crate) fn table(figures: &SandboxFigures) -> String {
    let cost = figures.sandboxed - figures.plain;
    format!(
        "| sandbox | without | in mode workspace | cost |\n|---|---|---|---|\n\
         | start to end of /bin/true, p50 | {:.2} ms | {:.2} ms | {cost:.2} ms (at most {MAX_COST} ms: {}) |\n",
        figures.plain,
        figures.sandboxed,
        verdict(cost <= MAX_COST),
    )
}
