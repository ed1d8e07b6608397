//! Parlor as the executor of the codex CLI, beside `codex exec-server`: both speak today's protocol, on each transport, in one run.

mod channel;
mod cuts;
mod server;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, ensure};

use self::channel::Channel;
use self::cuts::CutFigures;
pub(crate) use self::cuts::{CHATTER, chatter};
use self::server::{Client, Kind, Programs, Server, Transport};
use crate::PRODUCE;
use crate::exec::mebibytes;
use crate::stats::{Spread, median, verdict};

/// How often everything is measured, each time with new servers.
const ROUNDS: usize = 7;

/// How many bytes a process writes.
const OUTPUT_BYTES: usize = 64 << 20;

/// How many commands run one after another.
const COMMANDS: usize = 60;

/// What parlor must reach, as a factor of the peer.
const MIN_OUTPUT: f64 = 5.0;
const MAX_LATENCY: f64 = 1.0 / 3.0;
const MAX_MEMORY: f64 = 1.0 / 5.0;

/// The figures of all rounds of one server.
#[derive(Default)]
struct Figures {
    /// In MiB per second.
    output: Vec<f64>,
    /// From the request to the last event of `/bin/true`, in microseconds.
    latency: Vec<f64>,
    /// The peak memory of the server after both, in MiB.
    memory: Vec<f64>,
}

/// The figures of parlor and of its peer on one transport.
struct Compared {
    transport: Transport,
    parlor: Figures,
    codex: Figures,
}

/// All figures of one run.
pub(crate) struct ExecutorFigures {
    compared: Vec<Compared>,
    parlor_cuts: anyhow::Result<CutFigures>,
    codex_cuts: anyhow::Result<CutFigures>,
}

pub(crate) fn measure(parlor: PathBuf, codex: PathBuf) -> anyhow::Result<ExecutorFigures> {
    let programs = Programs { parlor, codex };
    let mut compared = Vec::new();
    for transport in [Transport::Stdio, Transport::WebSocket] {
        let (mut parlor, mut codex) = (Figures::default(), Figures::default());
        for _ in 0..ROUNDS {
            for (kind, figures) in [(Kind::Parlor, &mut parlor), (Kind::Codex, &mut codex)] {
                round(&programs, kind, transport, figures)?;
            }
        }
        compared.push(Compared { transport, parlor, codex });
    }
    let cuts = |kind| {
        let (server, _) = Server::start(&programs, kind, Transport::WebSocket)?;
        cuts::measure(server.address.context("a server on a WebSocket has an address")?)
    };
    Ok(ExecutorFigures { compared, parlor_cuts: cuts(Kind::Parlor), codex_cuts: cuts(Kind::Codex) })
}

fn round(programs: &Programs, kind: Kind, transport: Transport, figures: &mut Figures) -> anyhow::Result<()> {
    let (server, channel) = Server::start(programs, kind, transport)?;
    let channel = match (channel, server.address) {
        (Some(channel), _) => channel,
        (None, address) => Channel::socket(address.context("a server on a WebSocket has an address")?)?,
    };
    let client = Client::open(channel, None)?;
    let mut client = client.map_err(|code| anyhow::anyhow!("no session: {code}"))?;

    let mut times = Vec::new();
    for _ in 0..COMMANDS {
        let begun = Instant::now();
        client.run(&["/bin/true"])?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    figures.latency.push(median(times));

    let this_program = std::env::current_exe()?;
    let this_program = this_program.to_str().context("the path of this program is not UTF-8")?;
    let begun = Instant::now();
    let bytes = client.run(&[this_program, PRODUCE, &OUTPUT_BYTES.to_string()])?;
    figures.output.push(mebibytes(bytes) / begun.elapsed().as_secs_f64());
    ensure!(bytes == OUTPUT_BYTES, "{bytes} bytes arrived, not {OUTPUT_BYTES}");
    figures.memory.push(server.peak_mib()?);
    Ok(())
}

/// The figures as Markdown tables: least, median and most of all rounds, and the ratio of the medians.
pub(crate) fn tables(figures: ExecutorFigures) -> String {
    let mut table = format!(
        "| executor of the codex CLI, least · median · most of {ROUNDS} rounds | parlor | codex exec-server | ratio |\n\
         |---|---|---|---|\n"
    );
    for Compared { transport, parlor, codex } in figures.compared {
        let name = match transport {
            Transport::Stdio => "stdio",
            Transport::WebSocket => "WebSocket",
        };
        let output = format!("output of a pipe process, {} MiB, {name}", mebibytes(OUTPUT_BYTES));
        table += &row(&output, "MiB/s", parlor.output, codex.output, |ratio| {
            format!("{ratio:.1} (at least {MIN_OUTPUT}: {})", verdict(ratio >= MIN_OUTPUT))
        });
        let latency = format!("start of /bin/true to its last event, p50 of {COMMANDS}, {name}");
        table += &row(&latency, "µs", parlor.latency, codex.latency, |ratio| {
            format!("{ratio:.2} (at most {MAX_LATENCY:.2}: {})", verdict(ratio <= MAX_LATENCY))
        });
        let memory = format!("peak memory of the server after both, {name}");
        table += &row(&memory, "MiB", parlor.memory, codex.memory, |ratio| {
            format!("{ratio:.2} (at most {MAX_MEMORY:.2}: {})", verdict(ratio <= MAX_MEMORY))
        });
    }
    let parlor = describe(figures.parlor_cuts);
    let codex = describe(figures.codex_cuts);
    format!(
        "{table}\n| a session whose connection is cut at random, on WebSockets | what its client got |\n|---|---|\n\
         | parlor | {parlor} |\n| codex exec-server | {codex} |\n"
    )
}

fn row(
    name: &str,
    unit: &str,
    parlor: Vec<f64>,
    codex: Vec<f64>,
    describe: impl Fn(f64) -> String,
) -> String {
    let (parlor, codex) = (Spread::of(parlor), Spread::of(codex));
    let shown =
        |spread: &Spread| format!("{:.1} · {:.1} · {:.1} {unit}", spread.least, spread.median, spread.most);
    let ratio = describe(parlor.median / codex.median);
    format!("| {name} | {} | {} | {ratio} |\n", shown(&parlor), shown(&codex))
}

fn describe(cuts: anyhow::Result<CutFigures>) -> String {
    match cuts {
        Ok(CutFigures { processes, cuts, lines, resume }) => {
            let resume = Spread::of(resume);
            format!(
                "every byte once: {lines} lines of {processes} processes, {cuts} cuts; caught up after {:.1} · {:.1} · {:.1} ms",
                resume.least, resume.median, resume.most
            )
        }
        Err(error) => format!("**failed**: {error:#}"),
    }
}
