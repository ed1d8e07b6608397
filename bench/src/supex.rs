//! The Supex bridge beside the least that could be there: a line echo for `ping`, a Ruby on a pipe for
//! `eval_ruby`.
//!
//! Both of a pair take turns in batches, so that what else the machine does meets both. All processes share
//! one core: whether two that talk happen to be on the same one is chance, and makes a difference of five times.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

const BATCHES: usize = 41;
const PINGS: u32 = 1000;
const EVALS: u32 = 200;

/// The argument under which this program is the echo.
pub(crate) const ECHO: &str = "echo";

/// How long to wait for the server to be there.
const START_WAIT: Duration = Duration::from_secs(20);

/// What the door is held to.
const LEAST_PINGS: f64 = 0.6;
const MOST_EVAL: f64 = 3.0;

const HELLO: &str = r#"{"jsonrpc":"2.0","method":"hello","params":{"name":"bench","version":"1","agent":"bench","pid":1},"id":0}"#;
const PING: &str = r#"{"jsonrpc":"2.0","method":"ping","params":{},"id":3}"#;
const EVAL: &str = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"eval_ruby","arguments":{"code":"1+1"}},"id":2}"#;
const BARE_RUBY: &str = "STDOUT.sync = true; while (line = STDIN.gets); STDOUT.puts(eval(line).to_s); end";

/// Seconds for one round trip, each.
pub(crate) struct Supex {
    ping: f64,
    echo: f64,
    eval: f64,
    pipe: f64,
}

/// Measures `parlor serve` in a new folder.
pub(crate) fn measure(parlor: &Path) -> anyhow::Result<Supex> {
    let mut core = CpuSet::new();
    core.set(0);
    let everywhere = sched_getaffinity(None)?;
    sched_setaffinity(None, &core)?;
    let figures = measure_here(parlor);
    sched_setaffinity(None, &everywhere)?;
    figures
}

/// Measures wherever this thread is; what it starts is there too.
fn measure_here(parlor: &Path) -> anyhow::Result<Supex> {
    let folder = tempfile::tempdir()?;
    let server = Server::start(parlor, folder.path())?;
    let mut bridge = Wire::to(server.address)?;
    bridge.ask(HELLO)?;
    let echo_server = Echo::start()?;
    let mut echo = Wire::to(echo_server.address)?;
    let mut ruby = Pipe::start()?;
    let (mut pings, mut echoes, mut evals, mut pipes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        pings.push(timed(PINGS, || bridge.ask(PING))?);
        echoes.push(timed(PINGS, || echo.ask(PING))?);
        evals.push(timed(EVALS, || bridge.ask(EVAL))?);
        pipes.push(timed(EVALS, || ruby.ask("1+1"))?);
    }
    ensure!(bridge.line.contains("\"result\":\"2\""), "no evaluation: {}", bridge.line);
    Ok(Supex { ping: median(pings), echo: median(echoes), eval: median(evals), pipe: median(pipes) })
}

/// The figures as a Markdown table.
pub(crate) fn table(figures: &Supex) -> String {
    let Supex { ping, echo, eval, pipe } = figures;
    let verdict = |is_held: bool| if is_held { "held" } else { "**missed**" };
    let (pings, evals) = (echo / ping, eval / pipe);
    let (per_second, micros) = (|time: &f64| 1.0 / time, |time: &f64| time * 1e6);
    format!(
        "| supex door | limit | parlor | parlor : limit |\n\
         |---|---|---|---|\n\
         | `ping` round trips, beside a line echo in tokio | {:.0}/s | {:.0}/s | {pings:.2} (at least {LEAST_PINGS:.2}: {}) |\n\
         | `eval_ruby \"1+1\"`, beside a Ruby on a pipe | {:.1} µs | {:.1} µs | {evals:.2} (at most {MOST_EVAL:.2}: {}) |\n",
        per_second(echo),
        per_second(ping),
        verdict(pings >= LEAST_PINGS),
        micros(pipe),
        micros(eval),
        verdict(evals <= MOST_EVAL),
    )
}

/// Seconds for one of `count` calls.
fn timed(count: u32, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    for _ in 0..count {
        call()?;
    }
    Ok((begun.elapsed() / count).as_secs_f64())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// `parlor serve`, killed when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(parlor: &Path, home: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(parlor)
            .args(["serve", "--supex", "127.0.0.1:0", "--supex-repl", "127.0.0.1:0"])
            .env("PARLOR_HOME", home)
            .stdout(Stdio::null())
            .spawn()?;
        let deadline = Instant::now() + START_WAIT;
        while Instant::now() < deadline {
            if let Ok(text) = std::fs::read_to_string(home.join("serve.json")) {
                let served: serde_json::Value = serde_json::from_str(&text)?;
                let address = served["supex"].as_str().context("no bridge")?.parse()?;
                return Ok(Self { child, address });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill()?;
        anyhow::bail!("parlor does not serve")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A plain socket on which each line is answered by one.
struct Wire {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    line: String,
}

impl Wire {
    fn to(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), stream, line: String::new() })
    }

    fn ask(&mut self, line: &str) -> anyhow::Result<()> {
        self.stream.write_all(format!("{line}\n").as_bytes())?;
        self.line.clear();
        ensure!(self.reader.read_line(&mut self.line)? > 0, "the connection ended");
        Ok(())
    }
}

/// The echo in a process of its own, as parlor is; killed when dropped.
struct Echo {
    child: Child,
    address: SocketAddr,
}

impl Echo {
    fn start() -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?).arg(ECHO).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout was asked for")?).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().parse()? })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says where it listens, and sends the lines of one connection back: the least that tokio can do.
pub(crate) fn echo() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (from, mut to) = stream.split();
        let mut from = tokio::io::BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).await? > 0 {
            to.write_all(&line).await?;
            line.clear();
        }
        Ok(())
    })
}

/// A Ruby that evaluates lines from a pipe, killed when dropped.
struct Pipe {
    child: Child,
    reader: BufReader<std::process::ChildStdout>,
    line: String,
}

impl Pipe {
    fn start() -> anyhow::Result<Self> {
        let mut child = Command::new("ruby")
            .args(["-e", BARE_RUBY])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run ruby")?;
        let reader = BufReader::new(child.stdout.take().context("stdout was asked for")?);
        Ok(Self { child, reader, line: String::new() })
    }

    fn ask(&mut self, code: &str) -> anyhow::Result<()> {
        let input = self.child.stdin.as_mut().context("stdin was asked for")?;
        input.write_all(format!("{code}\n").as_bytes())?;
        self.line.clear();
        self.reader.read_line(&mut self.line)?;
        ensure!(self.line == "2\n", "no evaluation: {:?}", self.line);
        Ok(())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
