//! Children of the synaps door in comparison with those of its peer: the time until they are ready, their memory and threads
//! when they are idle, and the time of a turn that says one word.
//!
//! The peer has no key, so its turn fails at once, which is enough for the figures after a turn. The time of its turn is not
//! measured.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::process_status::{resident_mib, status_number};
use crate::stats::{median, verdict};

const START_ROUNDS: usize = 41;
const TURN_ROUNDS: usize = 201;
const CHILDREN: usize = 20;

/// How often the figures of the children are read, and after how many reads without a change the children count as idle.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
const IDLE_CHECKS: usize = 25;

// What the table holds its figures to.
const MAX_READY_MS: f64 = 25.0;
const MAX_IDLE_MIB: f64 = 12.0;
const MAX_IDLE_THREADS: f64 = 4.0;

/// The figures of one program.
#[derive(Default)]
pub(crate) struct Figures {
    /// The time from the start to `ready`, in milliseconds.
    ready: f64,
    /// The largest resident memory of an idle child, in MiB.
    memory: f64,
    /// The most threads of an idle child.
    threads: f64,
}

/// All figures of one run.
pub(crate) struct Synaps {
    parlor: Figures,
    peer: Figures,
    /// The time from a prompt to its answer, in microseconds.
    turn: f64,
}

/// Measures both programs in new folders.
pub(crate) fn measure(parlor: &Path, peer: &Path) -> anyhow::Result<Synaps> {
    let folder = tempfile::tempdir()?;
    let parlor = Program::new(parlor, folder.path().join("parlor"), "/say hi")?;
    let peer = Program::new(peer, folder.path().join("peer"), "hello")?;
    let (mut parlor_starts, mut peer_starts) = (Vec::new(), Vec::new());
    for _ in 0..START_ROUNDS {
        for (program, starts) in [(&parlor, &mut parlor_starts), (&peer, &mut peer_starts)] {
            let begun = Instant::now();
            let child = Served::start(program)?;
            starts.push(begun.elapsed().as_secs_f64() * 1e3);
            drop(child);
        }
    }
    let mut child = Served::start(&parlor)?;
    let mut turns = Vec::new();
    for _ in 0..TURN_ROUNDS {
        let begun = Instant::now();
        child.turn(parlor.prompt)?;
        turns.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    drop(child);
    Ok(Synaps {
        parlor: Figures { ready: median(parlor_starts), ..idle_figures(&parlor)? },
        peer: Figures { ready: median(peer_starts), ..idle_figures(&peer)? },
        turn: median(turns),
    })
}

/// The figures as a Markdown table, each with its bound.
pub(crate) fn table(figures: &Synaps) -> String {
    let Synaps { parlor, peer, turn } = figures;
    let row = |name: &str, unit: &str, parlor: f64, peer: f64, bound: &str, is_held: bool| {
        format!(
            "| {name} | {parlor:.1}{unit} | {peer:.1}{unit} | {:.2} | {bound}{unit}: {} |\n",
            parlor / peer,
            verdict(is_held),
        )
    };
    let mut table = String::from(
        "| synaps door | parlor | peer | parlor : peer | bound |\n\
         |---|---|---|---|---|\n",
    );
    let bound = format!("at most {MAX_READY_MS:.0}");
    table +=
        &row("start to `ready`, p50", " ms", parlor.ready, peer.ready, &bound, parlor.ready <= MAX_READY_MS);
    let name = format!("resident, the largest of {CHILDREN} idle children");
    let bound = format!("under {MAX_IDLE_MIB:.0}");
    table += &row(&name, " MiB", parlor.memory, peer.memory, &bound, parlor.memory < MAX_IDLE_MIB);
    let name = format!("threads, the most of {CHILDREN} idle children");
    let bound = format!("at most {MAX_IDLE_THREADS:.0}");
    table += &row(&name, "", parlor.threads, peer.threads, &bound, parlor.threads <= MAX_IDLE_THREADS);
    table += &format!("| `/say hi` to its answer, p50 | {turn:.0} µs | - | - | - |\n");
    table
}

/// Starts children, runs a turn in each, and reads their memory and threads once they are idle.
fn idle_figures(program: &Program) -> anyhow::Result<Figures> {
    let mut children = Vec::new();
    for _ in 0..CHILDREN {
        let mut child = Served::start(program)?;
        child.turn(program.prompt)?;
        children.push(child);
    }
    let figures =
        || children.iter().map(Served::memory_and_threads).collect::<anyhow::Result<Vec<(f64, f64)>>>();
    let (mut before, mut unchanged) = (figures()?, 0);
    while unchanged < IDLE_CHECKS {
        std::thread::sleep(CHECK_INTERVAL);
        let now = figures()?;
        unchanged = if now == before { unchanged + 1 } else { 0 };
        before = now;
    }
    let most = |figure: fn(&(f64, f64)) -> f64| before.iter().map(figure).fold(0.0, f64::max);
    Ok(Figures { memory: most(|(memory, _)| *memory), threads: most(|(_, threads)| *threads), ready: 0.0 })
}

struct Program {
    /// A link to the program. Both links are called `synaps`, by which parlor chooses its door.
    path: PathBuf,
    folder: PathBuf,
    prompt: &'static str,
}

impl Program {
    fn new(program: &Path, folder: PathBuf, prompt: &'static str) -> anyhow::Result<Self> {
        std::fs::create_dir(&folder)?;
        let path = folder.join("synaps");
        std::os::unix::fs::symlink(program, &path)?;
        Ok(Self { path, folder, prompt })
    }
}

/// A child that has sent `ready`, killed when dropped.
struct Served {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Served {
    fn start(program: &Program) -> anyhow::Result<Self> {
        let mut child = Command::new(&program.path)
            .arg("rpc")
            .current_dir(&program.folder)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &program.folder)
            .env("SYNAPS_BASE_DIR", program.folder.join("base"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.path.display()))?;
        let stdin = child.stdin.take().context("stdin is piped")?;
        let stdout = child.stdout.take().map(BufReader::new).context("stdout is piped")?;
        let mut served = Self { child, stdin, stdout };
        served.read_until(r#""type":"ready""#)?;
        Ok(served)
    }

    fn turn(&mut self, prompt: &str) -> anyhow::Result<()> {
        writeln!(self.stdin, r#"{{"type":"prompt","id":"p","message":"{prompt}"}}"#)?;
        self.read_until(r#""command":"prompt""#)
    }

    fn read_until(&mut self, mark: &str) -> anyhow::Result<()> {
        let mut line = String::new();
        while !line.contains(mark) {
            line.clear();
            if self.stdout.read_line(&mut line)? == 0 {
                bail!("the child ended before it sent {mark}");
            }
        }
        Ok(())
    }

    /// The child's resident memory, in MiB, and its number of threads.
    fn memory_and_threads(&self) -> anyhow::Result<(f64, f64)> {
        Ok((resident_mib(self.child.id())?, status_number(self.child.id(), "Threads:")?))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // An error means that the child has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
