//! The loaf door beside two stand-ins: a line echo in Node, which is what servers of this dialect are written
//! in, and the least that could be there, a line echo in Rust.
//!
//! The Node one splits lines with `readline`, parses each with `JSON.parse` and answers as the door does. The
//! Rust one reads a line and writes it, one after another. All get the same pings at once, as fast as they take
//! them, and take turns, so that what else the machine does meets all of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

const START_ROUNDS: usize = 41;
const PINGS: usize = 100_000;
const PING_ROUNDS: usize = 7;

/// The largest piece in which answers are read.
const READ_BYTES: usize = 256 * 1024;

/// The argument under which this program is the echo in Rust.
pub(crate) const ECHO: &str = "line-echo";

/// How often an idle server is looked at, and after how many looks without a change it counts as idle.
const LOOK: Duration = Duration::from_millis(100);
const STILL_LOOKS: usize = 25;

/// What the door is held to.
const MAX_HANDSHAKE_MS: f64 = 20.0;
const MAX_IDLE_MIB: f64 = 16.0;
const LEAST_OF_NODE: f64 = 3.0;
const LEAST_OF_ECHO: f64 = 0.5;

/// The stand-in for the peer.
const NODE_ECHO: &str = r#"
const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const request = JSON.parse(line);
  const result = { ok: true, time: new Date().toISOString() };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: request.id, result }) + "\n");
});
"#;

/// The figures of one run.
pub(crate) struct Loaf {
    /// Milliseconds from start to the handshake's answer.
    handshake: f64,
    /// What an idle server keeps resident after a turn, in MiB.
    memory: f64,
    /// Pings a second: the door, Node, Rust.
    pings: [f64; 3],
}

/// Measures the program in a new folder.
pub(crate) fn measure(parlor: &Path) -> anyhow::Result<Loaf> {
    let folder = tempfile::tempdir()?;
    let mut starts = Vec::new();
    for _ in 0..START_ROUNDS {
        let begun = Instant::now();
        let mut server = Served::parlor(parlor, folder.path())?;
        server.ask(r#"{"jsonrpc":"2.0","id":1,"method":"rpc.handshake"}"#, r#""id":1,"#)?;
        starts.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let memory = idle(parlor, folder.path())?;
    let me = std::env::current_exe()?;
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..PING_ROUNDS {
        rates[0].push(Served::parlor(parlor, folder.path())?.pings()?);
        rates[1].push(Served::start(Command::new("node").args(["-e", NODE_ECHO]))?.pings()?);
        rates[2].push(Served::start(Command::new(&me).arg(ECHO))?.pings()?);
    }
    Ok(Loaf { handshake: median(starts), memory, pings: rates.map(median) })
}

/// The figures as a Markdown table.
pub(crate) fn table(figures: &Loaf) -> String {
    let Loaf { handshake, memory, pings: [parlor, node, echo] } = figures;
    let verdict = |is_held: bool| if is_held { "held" } else { "**missed**" };
    let (of_node, of_echo) = (parlor / node, parlor / echo);
    format!(
        "| loaf door | parlor | beside | ratio | bound |\n\
         |---|---|---|---|---|\n\
         | start to handshake, p50 | {handshake:.1} ms | - | - | at most {MAX_HANDSHAKE_MS:.0} ms: {} |\n\
         | resident, idle after a turn | {memory:.1} MiB | - | - | at most {MAX_IDLE_MIB:.0} MiB: {} |\n\
         | {PINGS} pipelined pings, beside Node's readline and JSON.parse | {parlor:.0}/s | {node:.0}/s | {of_node:.2} | at least {LEAST_OF_NODE}: {} |\n\
         | the same, beside a line echo in Rust | {parlor:.0}/s | {echo:.0}/s | {of_echo:.2} | at least {LEAST_OF_ECHO}: {} |\n",
        verdict(*handshake <= MAX_HANDSHAKE_MS),
        verdict(*memory <= MAX_IDLE_MIB),
        verdict(of_node >= LEAST_OF_NODE),
        verdict(of_echo >= LEAST_OF_ECHO),
    )
}

/// Echoes lines, as this program's own child.
pub(crate) fn echo() -> anyhow::Result<()> {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        output.write_all(&line)?;
        line.clear();
    }
    Ok(())
}

/// What a server keeps resident once it is idle, in MiB.
fn idle(parlor: &Path, folder: &Path) -> anyhow::Result<f64> {
    let mut server = Served::parlor(parlor, folder)?;
    let created = server.ask(r#"{"jsonrpc":"2.0","id":1,"method":"session.create"}"#, r#""id":1,"#)?;
    let session = created.split("\"session_id\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let session = session.context("no session in the answer")?;
    let send = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"session.send","params":{{"session_id":"{session}","text":"/say hi"}}}}"#
    );
    server.ask(&send, r#""pending":false"#)?;
    let (mut before, mut looks) = (server.resident()?, 0);
    while looks < STILL_LOOKS {
        std::thread::sleep(LOOK);
        let now = server.resident()?;
        looks = if now == before { looks + 1 } else { 0 };
        before = now;
    }
    Ok(before)
}

/// A server that runs, killed when dropped.
struct Served {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Served {
    fn parlor(parlor: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(parlor);
        command.args(["stdio", "loaf"]).current_dir(folder).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", folder).env("PARLOR_HOME", folder);
        Self::start(&mut command)
    }

    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map(BufReader::new).context("stdout is piped")?;
        Ok(Self { child, stdin, stdout })
    }

    /// Sends a line, and reads up to the line that holds `mark`.
    fn ask(&mut self, line: &str, mark: &str) -> anyhow::Result<String> {
        writeln!(self.stdin.as_mut().context("stdin is open")?, "{line}")?;
        let mut answer = String::new();
        while !answer.contains(mark) {
            answer.clear();
            if self.stdout.read_line(&mut answer)? == 0 {
                bail!("the server left before it said {mark}");
            }
        }
        Ok(answer)
    }

    /// Sends all pings at once, and counts the answers. Gives how many a second there were.
    fn pings(mut self) -> anyhow::Result<f64> {
        let ping = |id: usize| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"system.ping\"}}\n");
        // The first one is answered before the clock starts.
        self.ask(ping(0).trim_end(), "\"id\":0,")?;
        let all: String = (1..=PINGS).map(ping).collect();
        let mut stdin = self.stdin.take().context("stdin is open")?;
        let begun = Instant::now();
        let writer = std::thread::spawn(move || {
            let written = stdin.write_all(all.as_bytes());
            // Kept open: some servers end with it before they have said everything.
            (stdin, written)
        });
        let (mut buffer, mut lines) = (vec![0; READ_BYTES], 0);
        while lines < PINGS {
            let count = self.stdout.get_mut().read(&mut buffer)?;
            ensure!(count > 0, "the server left after {lines} answers");
            lines += memchr::memchr_iter(b'\n', &buffer[..count]).count();
        }
        let seconds = begun.elapsed().as_secs_f64();
        let (_stdin, written) = writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))?;
        written?;
        Ok(PINGS as f64 / seconds)
    }

    fn resident(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
        let kib: f64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
        Ok(kib / 1024.0)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Ours, started above; a server that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
