//! The ACP door in comparison with published agents: the time from the start to the answer of `initialize`, and the resident
//! memory after it, once nothing changes any more.
//!
//! All programs have a new home in each round, without a login or a key. Agents may be scripts that start the real program, so
//! memory is that of the whole tree of processes.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::stats::{Spread, verdict};

const ROUNDS: usize = 7;

/// An agent that has not answered `initialize` after this time counts as broken.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How often the memory is read. It counts as that of an idle agent when it has changed by less than [`IDLE_CHANGE`] in this many
/// reads, or after [`IDLE_LIMIT`].
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
const IDLE_CHECKS: usize = 20;
const IDLE_CHANGE: f64 = 0.01;
const IDLE_LIMIT: Duration = Duration::from_secs(20);

/// What parlor may need, as a part of what the better of the other agents needs.
const MAX_RATIO: f64 = 0.25;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;

/// One agent: what it is called, its program and arguments, and how its memory is counted.
struct Agent {
    name: String,
    program: PathBuf,
    args: &'static [&'static str],
    counting: Counting,
}

/// How the memory of a tree of processes is counted.
#[derive(Clone, Copy)]
enum Counting {
    /// All resident pages of each process (`Rss`).
    InFull,
    /// Pages that processes share are divided among them (`Pss`), so a tree of several processes counts them once.
    Shared,
}

/// The figures of one agent over all rounds.
pub(crate) struct Figures {
    name: String,
    /// From the start to the answer, in milliseconds.
    start: Spread,
    /// In MiB.
    memory: Spread,
}

/// Measures parlor and the other agents in turns. The first of the figures are parlor's.
pub(crate) fn measure(parlor: &Path, opencode: &Path, gemini: &Path) -> anyhow::Result<Vec<Figures>> {
    let agent = |name: &str, program: &Path, args: &'static [&'static str], counting: Counting| Agent {
        name: name.to_owned(),
        program: program.to_owned(),
        args,
        counting,
    };
    // parlor's memory is counted in full, which can only make it look larger than the others'.
    let agents = [
        agent("parlor stdio acp", parlor, &["stdio", "acp"], Counting::InFull),
        agent("opencode acp", opencode, &["acp"], Counting::Shared),
        agent("gemini --acp", gemini, &["--acp"], Counting::Shared),
    ];
    let mut rounds: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); agents.len()];
    for _ in 0..ROUNDS {
        for (agent, (starts, memories)) in agents.iter().zip(&mut rounds) {
            let (start, memory) =
                measure_once(agent).with_context(|| format!("{} was not measured", agent.name))?;
            starts.push(start);
            memories.push(memory);
        }
    }
    let figures = |(agent, (starts, memories)): (Agent, (Vec<f64>, Vec<f64>))| Figures {
        name: agent.name,
        start: Spread::of(starts),
        memory: Spread::of(memories),
    };
    Ok(agents.into_iter().zip(rounds).map(figures).collect())
}

/// The figures as a Markdown table, each with its spread and bound.
pub(crate) fn table(figures: &[Figures]) -> String {
    let names: Vec<&str> = figures.iter().map(|figures| figures.name.as_str()).collect();
    let mut table = format!("| ACP door, {ROUNDS} rounds | {} | parlor : better one |\n", names.join(" | "));
    table += &format!("|---|{}---|\n", "---|".repeat(figures.len()));
    table += &row("start to `initialize` answered", "ms", figures, |figures| &figures.start);
    table += &row("resident after it, all processes", "MiB", figures, |figures| &figures.memory);
    table
}

fn row(name: &str, unit: &str, figures: &[Figures], spread: fn(&Figures) -> &Spread) -> String {
    let cells = figures.iter().map(|figures| {
        let Spread { least, median, most } = spread(figures);
        format!("{median:.1} {unit} ({least:.1} to {most:.1})")
    });
    let cells: Vec<String> = cells.collect();
    let (parlor, others) =
        figures.split_first().map_or((f64::NAN, figures), |(parlor, others)| (spread(parlor).median, others));
    let better = others.iter().map(|figures| spread(figures).median).fold(f64::INFINITY, f64::min);
    let ratio = parlor / better;
    format!(
        "| {name} | {} | {ratio:.2} (at most {MAX_RATIO}: {}) |\n",
        cells.join(" | "),
        verdict(ratio <= MAX_RATIO),
    )
}

/// Starts an agent once: the milliseconds to its answer, and its MiB when it is idle.
fn measure_once(agent: &Agent) -> anyhow::Result<(f64, f64)> {
    let home = tempfile::tempdir()?;
    let begun = Instant::now();
    let mut running = Running::start(agent, home.path())?;
    running.initialize()?;
    let start = begun.elapsed().as_secs_f64() * 1e3;
    Ok((start, running.idle_memory(agent.counting)?))
}

/// An agent and the processes that it has started, killed when dropped.
struct Running {
    child: Child,
    /// The lines of its stdout.
    lines: mpsc::Receiver<String>,
}

impl Running {
    fn start(agent: &Agent, home: &Path) -> anyhow::Result<Self> {
        let path = std::env::var_os("PATH").context("PATH is not set")?;
        let mut child = Command::new(&agent.program)
            .args(agent.args)
            .current_dir(home)
            .env_clear()
            .env("PATH", path)
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", agent.program.display()))?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    fn initialize(&mut self) -> anyhow::Result<()> {
        let stdin = self.child.stdin.as_mut().context("stdin is piped")?;
        writeln!(stdin, "{INITIALIZE}")?;
        let until = Instant::now() + START_LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).context("it ended or did not answer `initialize`")?;
            let Ok(answer) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
            match (answer.get("id"), answer.get("result")) {
                (Some(id), Some(result)) if *id == 0 && result["protocolVersion"] == 1 => return Ok(()),
                (Some(_), _) if answer.get("error").is_some() => bail!("it answered {line}"),
                _ => {}
            }
        }
    }

    fn idle_memory(&self, counting: Counting) -> anyhow::Result<f64> {
        let until = Instant::now() + IDLE_LIMIT;
        let (mut reference, mut unchanged) = (self.memory(counting)?, 0);
        while unchanged < IDLE_CHECKS && Instant::now() < until {
            std::thread::sleep(CHECK_INTERVAL);
            let now = self.memory(counting)?;
            if (now - reference).abs() <= reference * IDLE_CHANGE {
                unchanged += 1;
            } else {
                (reference, unchanged) = (now, 0);
            }
        }
        Ok(reference)
    }

    /// The memory of all processes, in MiB.
    fn memory(&self, counting: Counting) -> anyhow::Result<f64> {
        let line = match counting {
            Counting::InFull => "Rss:",
            Counting::Shared => "Pss:",
        };
        let mut kib = 0.0;
        for pid in tree(self.child.id())? {
            // A process that has just ended has no memory.
            let Ok(rollup) = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else { continue };
            let figure = rollup.lines().find(|text| text.starts_with(line));
            let figure = figure.and_then(|text| text.split_whitespace().nth(1));
            kib += figure.and_then(|number| number.parse::<f64>().ok()).unwrap_or_default();
        }
        if kib <= 0.0 {
            bail!("it has ended");
        }
        Ok(kib / 1024.0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The tree is read first: children of a process that has ended belong to another one. Errors mean that it has ended.
        for pid in tree(self.child.id()).unwrap_or_default() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

/// A process and all that descend from it.
fn tree(root: u32) -> anyhow::Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name of the program is in parentheses and may contain any character.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if let Some(parent) = parent.and_then(|parent| parent.parse::<u32>().ok()) {
            parents.push((pid, parent));
        }
    }
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(of) = tree.get(next).copied() {
        tree.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        next += 1;
    }
    Ok(tree)
}
