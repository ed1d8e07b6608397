//! The exec door in comparison with its peer: output of a process, spawning, start and memory.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::PRODUCE;
use crate::exec_server::{Program, READ_BYTES, Server};
use crate::stats::median;

/// How many bytes of output one round has.
pub(crate) const OUTPUT_BYTES: usize = 256 << 20;
const OUTPUT_ROUNDS: usize = 15;
const SPAWN_ROUNDS: usize = 400;
const START_ROUNDS: usize = 21;

/// One figure: the limit of the machine, parlor, and the peer.
pub(crate) struct Figure {
    pub(crate) limit: Option<f64>,
    pub(crate) parlor: f64,
    pub(crate) peer: f64,
}

/// All figures of one run.
pub(crate) struct Exec {
    /// The throughput of a process's output, in MiB per second.
    pub(crate) output: Figure,
    /// The time from a process's spawn to its exit, in microseconds.
    pub(crate) spawn: Figure,
    /// The time from the server's start to the answer to `initialize`, in milliseconds.
    pub(crate) start: Figure,
    /// The server's peak memory after the output, in MiB.
    pub(crate) memory: Figure,
}

pub(crate) fn measure(parlor: &Program, peer: &Program) -> anyhow::Result<Exec> {
    let (output, memory) = output(parlor, peer)?;
    Ok(Exec { output, memory, spawn: spawn(parlor, peer)?, start: start(parlor, peer)? })
}

fn output(parlor: &Program, peer: &Program) -> anyhow::Result<(Figure, Figure)> {
    let this_program = std::env::current_exe()?;
    let this_program = this_program.to_str().context("the path of this program is not UTF-8")?;
    let size = OUTPUT_BYTES.to_string();
    let argv = [this_program, PRODUCE, &size];
    let mut servers = [Server::start(parlor)?, Server::start(peer)?];
    let mut plain = Vec::new();
    let mut served = [Vec::new(), Vec::new()];
    for _ in 0..OUTPUT_ROUNDS {
        plain.push(rate(|| plain_pipe(&argv))?);
        for (server, rates) in servers.iter_mut().zip(&mut served) {
            rates.push(rate(|| server.run(&argv))?);
        }
    }
    let [parlor, peer] = served.map(best);
    let output = Figure { limit: Some(best(plain)), parlor, peer };
    let memory = Figure {
        limit: None,
        parlor: servers[0].peak_kib()? / 1024.0,
        peer: servers[1].peak_kib()? / 1024.0,
    };
    Ok((output, memory))
}

/// The throughput of `run`, which returns its bytes, in MiB per second.
fn rate(mut run: impl FnMut() -> anyhow::Result<usize>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let bytes = run()?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(bytes == OUTPUT_BYTES, "{bytes} bytes arrived, not {OUTPUT_BYTES}");
    Ok(mebibytes(bytes) / seconds)
}

pub(crate) fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Runs the program with a pipe that is only read, the limit for any server. The pipe has the largest size, so that reader
/// and writer wake each other seldom.
fn plain_pipe(argv: &[&str]) -> anyhow::Result<usize> {
    let mut child =
        Command::new(argv[0]).args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut output = child.stdout.take().context("stdout is piped")?;
    rustix::pipe::fcntl_setpipe_size(&output, 1 << 20)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = 0;
    loop {
        match output.read(&mut buffer)? {
            0 => break,
            count => bytes += count,
        }
    }
    child.wait()?;
    Ok(bytes)
}

fn spawn(parlor: &Program, peer: &Program) -> anyhow::Result<Figure> {
    let mut servers = [Server::start(parlor)?, Server::start(peer)?];
    let mut bare = Vec::new();
    let mut served = [Vec::new(), Vec::new()];
    for _ in 0..SPAWN_ROUNDS {
        bare.push(micros(|| {
            Command::new("/bin/true").env_clear().stdin(Stdio::null()).spawn()?.wait()?;
            Ok(())
        })?);
        for (server, times) in servers.iter_mut().zip(&mut served) {
            times.push(micros(|| server.run(&["/bin/true"]).map(drop))?);
        }
    }
    let [parlor, peer] = served.map(median);
    Ok(Figure { limit: Some(median(bare)), parlor, peer })
}

fn start(parlor: &Program, peer: &Program) -> anyhow::Result<Figure> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..START_ROUNDS {
        for (program, times) in [parlor, peer].into_iter().zip(&mut times) {
            let begun = Instant::now();
            let server = Server::start(program)?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            drop(server);
        }
    }
    let [parlor, peer] = times.map(median);
    Ok(Figure { limit: None, parlor, peer })
}

fn micros(mut run: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    run()?;
    let elapsed: Duration = begun.elapsed();
    Ok(elapsed.as_secs_f64() * 1e6)
}

/// The best rate. The throughput between two programs depends on the cores that the scheduler puts them on; only the best
/// round is reproducible.
fn best(rates: Vec<f64>) -> f64 {
    rates.into_iter().fold(0.0, f64::max)
}
