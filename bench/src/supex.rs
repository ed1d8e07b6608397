//! The Supex bridge beside the least that could be there: a line echo for `ping`, a Ruby on a pipe for
//! `eval_ruby`.
//!
//! Those that are compared take turns in batches, so that what else the machine does meets all. Whether two
//! that talk happen to be on the same core is chance, and makes a difference of five times, so it is
//! settled here, in two ways. With the client on a core of its own, each waking costs what it costs a
//! client of a server. With all on one core a waking costs next to nothing, and what is left is the work: of
//! two processes for the pipe, of three for whatever stands between it and a client. How much of that is due
//! to a third one alone shows a proxy, which passes lines on to the same Ruby and does nothing else.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};

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
/// With this line a connection to the echo asks to be passed on to a Ruby.
const PASS_ON: &str = "ruby";
const BARE_RUBY: &str = "STDOUT.sync = true; while (line = STDIN.gets); STDOUT.puts(eval(line).to_s); end";

/// What was measured.
pub(crate) struct Supex {
    /// With all on one core.
    near: Figures,
    /// With the client on another core; none where there is no other.
    apart: Option<Figures>,
}

/// Seconds for one round trip, each.
struct Figures {
    ping: f64,
    echo: f64,
    eval: f64,
    pipe: f64,
    proxy: f64,
}

/// Measures `parlor serve` in a new folder.
pub(crate) fn measure(parlor: &Path) -> anyhow::Result<Supex> {
    let everywhere = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| everywhere.is_set(*core)).collect();
    let figures = measure_on(&cores, parlor);
    sched_setaffinity(None, &everywhere)?;
    figures
}

/// Measures with all that is started on the first of the cores, and this thread there and on the second.
fn measure_on(cores: &[usize], parlor: &Path) -> anyhow::Result<Supex> {
    let (first, second) = (cores.first().context("no core to run on")?, cores.get(1));
    move_to(*first)?;
    let folder = tempfile::tempdir()?;
    let mut peers = Peers::start(parlor, folder.path())?;
    let near = peers.take_turns()?;
    let apart = second.map(|core| move_to(*core).and_then(|()| peers.take_turns())).transpose()?;
    Ok(Supex { near, apart })
}

fn move_to(core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Those who are compared, and connections to them.
struct Peers {
    bridge: Wire,
    echo: Wire,
    proxy: Wire,
    ruby: Pipe,
    _server: Server,
    _echoes: [Echo; 2],
}

impl Peers {
    /// They run on the core on which this thread is.
    fn start(parlor: &Path, home: &Path) -> anyhow::Result<Self> {
        let server = Server::start(parlor, home)?;
        let echoes = [Echo::start()?, Echo::start()?];
        let mut bridge = Wire::to(server.address)?;
        bridge.ask(HELLO)?;
        let mut proxy = Wire::to(echoes[1].address)?;
        proxy.ask(PASS_ON)?;
        let echo = Wire::to(echoes[0].address)?;
        Ok(Self { bridge, echo, proxy, ruby: Pipe::start()?, _server: server, _echoes: echoes })
    }

    fn take_turns(&mut self) -> anyhow::Result<Figures> {
        let mut times: [Vec<f64>; 5] = Default::default();
        for _ in 0..BATCHES {
            let [pings, echoes, evals, pipes, proxies] = &mut times;
            pings.push(timed(PINGS, || self.bridge.ask(PING))?);
            echoes.push(timed(PINGS, || self.echo.ask(PING))?);
            evals.push(timed(EVALS, || self.bridge.ask(EVAL))?);
            pipes.push(timed(EVALS, || self.ruby.ask("1+1"))?);
            proxies.push(timed(EVALS, || self.proxy.ask("1+1"))?);
        }
        let (value, passed_on) = (&self.bridge.line, &self.proxy.line);
        ensure!(value.contains("\"result\":\"2\"") && passed_on == "2\n", "no value: {value} {passed_on}");
        let [ping, echo, eval, pipe, proxy] = times.map(median);
        Ok(Figures { ping, echo, eval, pipe, proxy })
    }
}

/// The figures as a Markdown table.
pub(crate) fn table(figures: &Supex) -> String {
    let Figures { ping, echo, .. } = &figures.near;
    let pings = echo / ping;
    let mut table = format!(
        "| supex door | limit | parlor | parlor : limit |\n\
         |---|---|---|---|\n\
         | `ping` round trips, beside a line echo in tokio | {:.0}/s | {:.0}/s | {pings:.2} (at least {LEAST_PINGS:.2}: {}) |\n",
        1.0 / echo,
        1.0 / ping,
        verdict(pings >= LEAST_PINGS),
    );
    for (place, figures) in [
        ("the client on a core of its own", figures.apart.as_ref()),
        ("all on one core", Some(&figures.near)),
    ] {
        let Some(Figures { eval, pipe, proxy, .. }) = figures else { continue };
        let (evals, proxies) = (eval / pipe, proxy / pipe);
        table.push_str(&format!(
            "| `eval_ruby \"1+1\"`, beside a Ruby on a pipe, {place} | {:.1} µs | {:.1} µs | {evals:.2} (at most {MOST_EVAL:.2}: {}; a proxy in tokio before that Ruby: {proxies:.2}) |\n",
            pipe * 1e6,
            eval * 1e6,
            verdict(evals <= MOST_EVAL),
        ));
    }
    table
}

fn verdict(is_held: bool) -> &'static str {
    if is_held { "held" } else { "**missed**" }
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
            .args(["serve", "--no-http", "--supex", "127.0.0.1:0", "--supex-repl", "127.0.0.1:0"])
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

/// Says where it listens, and sends the lines of one connection back, or passes them on to a Ruby: the least
/// that tokio can do.
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
            if line.trim_ascii() == PASS_ON.as_bytes() {
                return pass_on(from, to).await;
            }
            line.clear();
        }
        Ok(())
    })
}

async fn pass_on(mut from: impl AsyncBufRead + Unpin, mut to: impl AsyncWrite + Unpin) -> anyhow::Result<()> {
    let mut ruby = bare_ruby()?;
    let mut input = Sender::from_owned_fd(ruby.stdin.take().context("stdin was asked for")?.into())?;
    let output = Receiver::from_owned_fd(ruby.stdout.take().context("stdout was asked for")?.into())?;
    let mut output = tokio::io::BufReader::new(output);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).await? > 0 {
        input.write_all(&line).await?;
        line.clear();
        output.read_until(b'\n', &mut line).await?;
        to.write_all(&line).await?;
        line.clear();
    }
    Ok(())
}

/// A Ruby that evaluates lines from a pipe. It ends when nobody holds the pipe.
fn bare_ruby() -> anyhow::Result<Child> {
    Command::new("ruby")
        .args(["-e", BARE_RUBY])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run ruby")
}

/// Such a Ruby, killed when dropped.
struct Pipe {
    child: Child,
    reader: BufReader<std::process::ChildStdout>,
    line: String,
}

impl Pipe {
    fn start() -> anyhow::Result<Self> {
        let mut child = bare_ruby()?;
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
