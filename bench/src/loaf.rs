//! The loaf door in comparison with two substitutes: a server in Node, which other servers of this dialect use, and a line
//! echo in Rust, which does the least possible work.
//!
//! The Node server splits lines with `readline`, parses each with `JSON.parse` and answers as the door does. The Rust echo
//! reads each line and writes it back. All get the same pings at once, as fast as they read them. They alternate, so that
//! other load on the machine affects all of them alike.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::process_status::resident_mib;
use crate::profile::end;
use crate::stats::{median, verdict};

const START_ROUNDS: usize = 41;
const PINGS: usize = 100_000;
const PING_ROUNDS: usize = 7;

/// The most bytes that one read of answers takes.
const READ_BYTES: usize = 256 * 1024;

/// With this argument, the program is the echo in Rust.
pub(crate) const ECHO: &str = "line-echo";

/// How often a server's memory is read, and after how many reads without a change the server counts as idle.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
const IDLE_CHECKS: usize = 25;

// What the table holds its figures to.
const MAX_HANDSHAKE_MS: f64 = 20.0;
const MAX_IDLE_MIB: f64 = 16.0;
const MIN_NODE_RATIO: f64 = 3.0;
const MIN_ECHO_RATIO: f64 = 0.5;

/// The substitute for a server in Node.
const NODE_ECHO: &str = r#"
const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const request = JSON.parse(line);
  const result = { ok: true, time: new Date().toISOString() };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: request.id, result }) + "\n");
});
"#;

/// All figures of one run.
pub(crate) struct Loaf {
    /// The time from the start to the answer to the handshake, in milliseconds.
    handshake: f64,
    /// The resident memory of an idle server after a turn, in MiB.
    memory: f64,
    /// Pings per second of the door, of Node, and of the echo in Rust.
    pings: [f64; 3],
}

/// Measures the program in a new folder.
pub(crate) fn measure(parlor: &Path) -> anyhow::Result<Loaf> {
    let folder = tempfile::tempdir()?;
    let mut starts = Vec::new();
    for _ in 0..START_ROUNDS {
        let begun = Instant::now();
        let mut server = Served::parlor(parlor, folder.path())?;
        server.request(r#"{"jsonrpc":"2.0","id":1,"method":"rpc.handshake"}"#, r#""id":1,"#)?;
        starts.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let memory = idle_memory(parlor, folder.path())?;
    let this_program = std::env::current_exe()?;
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..PING_ROUNDS {
        rates[0].push(Served::parlor(parlor, folder.path())?.pings()?);
        rates[1].push(Served::start(Command::new("node").args(["-e", NODE_ECHO]))?.pings()?);
        rates[2].push(Served::start(Command::new(&this_program).arg(ECHO))?.pings()?);
    }
    Ok(Loaf { handshake: median(starts), memory, pings: rates.map(median) })
}

/// The figures as a Markdown table.
pub(crate) fn table(figures: &Loaf) -> String {
    let Loaf { handshake, memory, pings: [parlor, node, echo] } = figures;
    let (node_ratio, echo_ratio) = (parlor / node, parlor / echo);
    format!(
        "| loaf door | parlor | beside | ratio | bound |\n\
         |---|---|---|---|---|\n\
         | start to handshake, p50 | {handshake:.1} ms | - | - | at most {MAX_HANDSHAKE_MS:.0} ms: {} |\n\
         | resident, idle after a turn | {memory:.1} MiB | - | - | at most {MAX_IDLE_MIB:.0} MiB: {} |\n\
         | {PINGS} pipelined pings, beside Node's readline and JSON.parse | {parlor:.0}/s | {node:.0}/s | {node_ratio:.2} | at least {MIN_NODE_RATIO}: {} |\n\
         | the same, beside a line echo in Rust | {parlor:.0}/s | {echo:.0}/s | {echo_ratio:.2} | at least {MIN_ECHO_RATIO}: {} |\n",
        verdict(*handshake <= MAX_HANDSHAKE_MS),
        verdict(*memory <= MAX_IDLE_MIB),
        verdict(node_ratio >= MIN_NODE_RATIO),
        verdict(echo_ratio >= MIN_ECHO_RATIO),
    )
}

/// Asks a new server so many pings, one after another, and ends it.
pub(crate) fn ask_pings(parlor: &Path, folder: &Path, count: u64) -> anyhow::Result<()> {
    let mut server = Served::parlor(parlor, folder)?;
    for id in 0..count {
        server.request(ping(id).trim_end(), &format!("\"id\":{id},"))?;
    }
    end(&mut server.child)
}

fn ping(id: u64) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"system.ping\"}}\n")
}

/// Echoes lines from stdin to stdout.
pub(crate) fn echo() -> anyhow::Result<()> {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        output.write_all(&line)?;
        line.clear();
    }
    Ok(())
}

/// The resident memory of a server that is idle after a turn, in MiB.
fn idle_memory(parlor: &Path, folder: &Path) -> anyhow::Result<f64> {
    let mut server = Served::parlor(parlor, folder)?;
    let created = server.request(r#"{"jsonrpc":"2.0","id":1,"method":"session.create"}"#, r#""id":1,"#)?;
    let session = created.split("\"session_id\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let session = session.context("the answer to session.create has no session_id")?;
    let send = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"session.send","params":{{"session_id":"{session}","text":"/say hi"}}}}"#
    );
    server.request(&send, r#""pending":false"#)?;
    let pid = server.child.id();
    let (mut before, mut unchanged) = (resident_mib(pid)?, 0);
    while unchanged < IDLE_CHECKS {
        std::thread::sleep(CHECK_INTERVAL);
        let now = resident_mib(pid)?;
        unchanged = if now == before { unchanged + 1 } else { 0 };
        before = now;
    }
    Ok(before)
}

/// A running server, killed when dropped.
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

    /// Sends a line, and reads lines until one contains `mark`.
    fn request(&mut self, line: &str, mark: &str) -> anyhow::Result<String> {
        writeln!(self.stdin.as_mut().context("stdin is open")?, "{line}")?;
        let mut answer = String::new();
        while !answer.contains(mark) {
            answer.clear();
            if self.stdout.read_line(&mut answer)? == 0 {
                bail!("the server ended before it sent {mark}");
            }
        }
        Ok(answer)
    }

    /// Sends all pings at once, and returns the number of answers per second.
    fn pings(mut self) -> anyhow::Result<f64> {
        // The first one is answered before the clock starts.
        self.request(ping(0).trim_end(), "\"id\":0,")?;
        let all: String = (1..=PINGS as u64).map(ping).collect();
        let mut stdin = self.stdin.take().context("stdin is open")?;
        let begun = Instant::now();
        let writer = std::thread::spawn(move || {
            let written = stdin.write_all(all.as_bytes());
            // Stdin stays open: some servers end with it before they have answered everything.
            (stdin, written)
        });
        let (mut buffer, mut lines) = (vec![0; READ_BYTES], 0);
        while lines < PINGS {
            let count = self.stdout.get_mut().read(&mut buffer)?;
            ensure!(count > 0, "the server ended after {lines} answers");
            lines += memchr::memchr_iter(b'\n', &buffer[..count]).count();
        }
        let seconds = begun.elapsed().as_secs_f64();
        let (_stdin, written) = writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))?;
        written?;
        Ok(PINGS as f64 / seconds)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // An error means that the server has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
