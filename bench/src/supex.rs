//! The supex bridge in comparison with the least possible work: a line echo for `ping`, and a Ruby on a pipe for
//! `eval_ruby`.
//!
//! The compared programs alternate in batches, so that other load on the machine affects all of them alike. Their cores
//! are fixed (`round_trips.rs`). With all programs on one core, the figures are the work of two processes for the pipe, and of
//! three for a server between the Ruby and the client. A proxy that only forwards lines to the same Ruby shows how much of
//! the difference is due to the third process.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::profile::end;
use crate::round_trips::{LineClient, on_one_and_two_cores, timed};
use crate::stats::{median, verdict};

const BATCHES: usize = 41;
const PINGS: u32 = 1000;
const EVALS: u32 = 200;

/// With this argument, the program is the echo.
pub(crate) const ECHO: &str = "echo";

/// How long the server may take to start.
const START_WAIT: Duration = Duration::from_secs(60);

// What the table holds its figures to.
const MIN_PING_RATIO: f64 = 0.6;
const MAX_EVAL_RATIO: f64 = 3.0;

const HELLO: &str = r#"{"jsonrpc":"2.0","method":"hello","params":{"name":"bench","version":"1","agent":"bench","pid":1},"id":0}"#;
const PING: &str = r#"{"jsonrpc":"2.0","method":"ping","params":{},"id":3}"#;
const EVAL: &str = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"eval_ruby","arguments":{"code":"1+1"}},"id":2}"#;
/// After this line, the echo forwards the lines of the connection to a Ruby.
const FORWARD_TO_RUBY: &str = "ruby";
const BARE_RUBY: &str = "STDOUT.sync = true; while (line = STDIN.gets); STDOUT.puts(eval(line).to_s); end";

/// All figures of one run.
pub(crate) struct Supex {
    /// With all programs on one core.
    same_core: Figures,
    /// With the client on another core; None on a machine with one core.
    other_core: Option<Figures>,
}

/// Seconds for one round trip.
struct Figures {
    ping: f64,
    echo: f64,
    eval: f64,
    pipe: f64,
    proxy: f64,
}

/// Measures `parlor serve` in a new folder.
pub(crate) fn measure(parlor: &Path) -> anyhow::Result<Supex> {
    let folder = tempfile::tempdir()?;
    let (same_core, other_core) =
        on_one_and_two_cores(|| Programs::start(parlor, folder.path()), Programs::alternate)?;
    Ok(Supex { same_core, other_core })
}

/// The compared programs, and connections to them.
struct Programs {
    bridge: LineClient<TcpStream>,
    echo: LineClient<TcpStream>,
    proxy: LineClient<TcpStream>,
    ruby: RubyPipe,
    _server: Server,
    _echoes: [Echo; 2],
}

impl Programs {
    /// Starts the programs, which run on the core of this thread.
    fn start(parlor: &Path, home: &Path) -> anyhow::Result<Self> {
        let server = Server::start(parlor, home)?;
        let echoes = [Echo::start()?, Echo::start()?];
        let mut bridge = line_client(server.address)?;
        bridge.ask(HELLO)?;
        let mut proxy = line_client(echoes[1].address)?;
        proxy.ask(FORWARD_TO_RUBY)?;
        let echo = line_client(echoes[0].address)?;
        Ok(Self { bridge, echo, proxy, ruby: RubyPipe::start()?, _server: server, _echoes: echoes })
    }

    /// Measures all programs in alternating batches.
    fn alternate(&mut self) -> anyhow::Result<Figures> {
        let mut times: [Vec<f64>; 5] = Default::default();
        for _ in 0..BATCHES {
            let [pings, echoes, evals, pipes, proxies] = &mut times;
            pings.push(timed(PINGS, || self.bridge.ask(PING))?);
            echoes.push(timed(PINGS, || self.echo.ask(PING))?);
            evals.push(timed(EVALS, || self.bridge.ask(EVAL))?);
            pipes.push(timed(EVALS, || self.ruby.ask("1+1"))?);
            proxies.push(timed(EVALS, || self.proxy.ask("1+1"))?);
        }
        let (bridge, proxy) = (self.bridge.last_answer(), self.proxy.last_answer());
        ensure!(bridge.contains("\"result\":\"2\"") && proxy == "2\n", "1+1 is not 2: {bridge} {proxy}");
        let [ping, echo, eval, pipe, proxy] = times.map(median);
        Ok(Figures { ping, echo, eval, pipe, proxy })
    }
}

/// Asks a new server to evaluate so many expressions, one after another, and ends it.
pub(crate) fn ask_evals(parlor: &Path, home: &Path, count: u64) -> anyhow::Result<()> {
    let mut server = Server::start(parlor, home)?;
    let mut client = line_client(server.address)?;
    client.ask(HELLO)?;
    for _ in 0..count {
        client.ask(EVAL)?;
    }
    end(&mut server.child)
}

/// The figures as a Markdown table.
pub(crate) fn table(figures: &Supex) -> String {
    let Figures { ping, echo, .. } = &figures.same_core;
    let ping_ratio = echo / ping;
    let mut table = format!(
        "| supex door | limit | parlor | parlor : limit |\n\
         |---|---|---|---|\n\
         | `ping` round trips, beside a line echo in tokio | {:.0}/s | {:.0}/s | {ping_ratio:.2} (at least {MIN_PING_RATIO:.2}: {}) |\n",
        1.0 / echo,
        1.0 / ping,
        verdict(ping_ratio >= MIN_PING_RATIO),
    );
    for (cores, figures) in [
        ("the client on a core of its own", figures.other_core.as_ref()),
        ("all on one core", Some(&figures.same_core)),
    ] {
        let Some(Figures { eval, pipe, proxy, .. }) = figures else { continue };
        let (eval_ratio, proxy_ratio) = (eval / pipe, proxy / pipe);
        table.push_str(&format!(
            "| `eval_ruby \"1+1\"`, beside a Ruby on a pipe, {cores} | {:.1} µs | {:.1} µs | {eval_ratio:.2} (at most {MAX_EVAL_RATIO:.2}: {}; a proxy in tokio before that Ruby: {proxy_ratio:.2}) |\n",
            pipe * 1e6,
            eval * 1e6,
            verdict(eval_ratio <= MAX_EVAL_RATIO),
        ));
    }
    table
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
                let addresses: serde_json::Value = serde_json::from_str(&text)?;
                let address =
                    addresses["supex"].as_str().context("serve.json has no supex address")?.parse()?;
                return Ok(Self { child, address });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill()?;
        anyhow::bail!("`parlor serve` was not ready within {START_WAIT:?}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line_client(address: SocketAddr) -> anyhow::Result<LineClient<TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(LineClient::new(stream))
}

/// The echo in a process of its own, killed when dropped.
struct Echo {
    child: Child,
    address: SocketAddr,
}

impl Echo {
    fn start() -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?).arg(ECHO).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout is piped")?).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().parse()? })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints its address, and echoes the lines of one connection or forwards them to a Ruby, with the least work that tokio can
/// do.
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
            if line.trim_ascii() == FORWARD_TO_RUBY.as_bytes() {
                return forward_to_ruby(from, to).await;
            }
            line.clear();
        }
        Ok(())
    })
}

async fn forward_to_ruby(
    mut from: impl AsyncBufRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> anyhow::Result<()> {
    let mut ruby = bare_ruby()?;
    let mut input = Sender::from_owned_fd(ruby.stdin.take().context("stdin is piped")?.into())?;
    let output = Receiver::from_owned_fd(ruby.stdout.take().context("stdout is piped")?.into())?;
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

/// A Ruby that evaluates lines from a pipe. It ends when the pipe is closed.
fn bare_ruby() -> anyhow::Result<Child> {
    Command::new("ruby")
        .args(["-e", BARE_RUBY])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run ruby")
}

/// A Ruby on a pipe, killed when dropped.
struct RubyPipe {
    child: Child,
    reader: BufReader<std::process::ChildStdout>,
    line: String,
}

impl RubyPipe {
    fn start() -> anyhow::Result<Self> {
        let mut child = bare_ruby()?;
        let reader = BufReader::new(child.stdout.take().context("stdout is piped")?);
        Ok(Self { child, reader, line: String::new() })
    }

    fn ask(&mut self, code: &str) -> anyhow::Result<()> {
        let input = self.child.stdin.as_mut().context("stdin is piped")?;
        input.write_all(format!("{code}\n").as_bytes())?;
        self.line.clear();
        self.reader.read_line(&mut self.line)?;
        ensure!(self.line == "2\n", "1+1 is not 2: {:?}", self.line);
        Ok(())
    }
}

impl Drop for RubyPipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
