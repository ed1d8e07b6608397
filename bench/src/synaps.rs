//! Children of the synaps door beside those of its peer: how soon they are ready, what they cost when
//! they are idle, and how long a turn takes that says one word.
//!
//! The peer has no key, so its turn fails at once, which is enough to have had one. What it says to a
//! model cannot be measured here.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

const START_ROUNDS: usize = 41;
const TURN_ROUNDS: usize = 201;
const CHILDREN: usize = 20;

/// How often idle children are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Children that have not changed for so many looks are idle.
const STILL_LOOKS: usize = 25;

/// What the door is held to.
const MAX_READY_MS: f64 = 25.0;
const MAX_IDLE_MIB: f64 = 12.0;
const MAX_IDLE_THREADS: f64 = 4.0;

/// The figures of one program.
#[derive(Default)]
pub(crate) struct Figures {
    /// Milliseconds from start to `ready`.
    ready: f64,
    /// What an idle child keeps resident, in MiB: the largest.
    memory: f64,
    /// How many threads an idle child has: the most.
    threads: f64,
}

/// All figures of one run.
pub(crate) struct Synaps {
    parlor: Figures,
    peer: Figures,
    /// Microseconds from a prompt to its answer.
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
        parlor: Figures { ready: median(parlor_starts), ..idle(&parlor)? },
        peer: Figures { ready: median(peer_starts), ..idle(&peer)? },
        turn: median(turns),
    })
}

/// The figures as a Markdown table, each with the bound it is held to.
pub(crate) fn table(figures: &Synaps) -> String {
    let Synaps { parlor, peer, turn } = figures;
    let row = |name: &str, unit: &str, parlor: f64, peer: f64, bound: &str, is_held: bool| {
        let verdict = if is_held { "held" } else { "**missed**" };
        format!(
            "| {name} | {parlor:.1}{unit} | {peer:.1}{unit} | {:.2} | {bound}{unit}: {verdict} |\n",
            parlor / peer
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

/// Starts children, lets each have a turn, and looks at them once they are idle.
fn idle(program: &Program) -> anyhow::Result<Figures> {
    let mut children = Vec::new();
    for _ in 0..CHILDREN {
        let mut child = Served::start(program)?;
        child.turn(program.prompt)?;
        children.push(child);
    }
    let look = || children.iter().map(Served::look).collect::<anyhow::Result<Vec<(f64, f64)>>>();
    let (mut before, mut looks) = (look()?, 0);
    while looks < STILL_LOOKS {
        std::thread::sleep(LOOK);
        let now = look()?;
        looks = if now == before { looks + 1 } else { 0 };
        before = now;
    }
    let most = |figure: fn(&(f64, f64)) -> f64| before.iter().map(figure).fold(0.0, f64::max);
    Ok(Figures { memory: most(|(memory, _)| *memory), threads: most(|(_, threads)| *threads), ready: 0.0 })
}

struct Program {
    /// A link to the program under the name that both have.
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

/// A child that is ready.
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
                bail!("the child left before it said {mark}");
            }
        }
        Ok(())
    }

    /// What it keeps resident, in MiB, and how many threads it has.
    fn look(&self) -> anyhow::Result<(f64, f64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let number = |name: &str| -> anyhow::Result<f64> {
            let line = status.lines().find(|line| line.starts_with(name)).context("no such line")?;
            Ok(line.split_whitespace().nth(1).context("no figure")?.parse()?)
        };
        Ok((number("VmRSS:")? / 1024.0, number("Threads:")?))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Ours, started above; a child that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
