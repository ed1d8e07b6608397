//! The table of the exec door, and the page with all tables.

use std::process::Command;

use anyhow::Context;

use crate::exec::{Exec, Figure, OUTPUT_BYTES, mebibytes};
use crate::stats::verdict;

/// The figures as a Markdown table, each with its bounds.
pub(crate) fn exec_table(exec: &Exec) -> String {
    let output = format!("output of a pipe process, {} MiB, best of 15", mebibytes(OUTPUT_BYTES));
    let mut table = String::from(
        "| exec door | limit | parlor | peer | parlor : limit | parlor : peer |\n\
         |---|---|---|---|---|---|\n",
    );
    let row = |name: &str, unit: &str, figure: &Figure, limit: Bound, peer: Bound| {
        format!(
            "| {name} | {} | {:.1} {unit} | {:.1} {unit} | {} | {} |\n",
            figure.limit.map_or("-".to_owned(), |value| format!("{value:.1} {unit}")),
            figure.parlor,
            figure.peer,
            figure.limit.map_or("-".to_owned(), |value| limit.describe(figure.parlor / value)),
            peer.describe(figure.parlor / figure.peer),
        )
    };
    table += &row(&output, "MiB/s", &exec.output, Bound::AtLeast(0.5), Bound::AtLeast(3.0));
    table += &row(
        "spawn to exit of /bin/true, p50",
        "µs",
        &exec.spawn,
        Bound::AtMost(1.5),
        Bound::AtMost(1.0 / 3.0),
    );
    table += &row("start to `initialize` answered, p50", "ms", &exec.start, Bound::None, Bound::AtMost(0.25));
    table += &row("peak memory after that output", "MiB", &exec.memory, Bound::None, Bound::AtMost(0.25));
    table
}

/// The bound of a ratio.
enum Bound {
    None,
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    /// The ratio as text, with the bound and whether it is held.
    fn describe(&self, ratio: f64) -> String {
        match self {
            Self::None => format!("{ratio:.2}"),
            Self::AtLeast(bound) => format!("{ratio:.2} (at least {bound:.2}: {})", verdict(ratio >= *bound)),
            Self::AtMost(bound) => format!("{ratio:.2} (at most {bound:.2}: {})", verdict(ratio <= *bound)),
        }
    }
}

/// The page: the tables, with the date, the commit and the machine.
pub(crate) fn page(tables: &str) -> anyhow::Result<String> {
    let date = output_of("date", &["-u", "+%Y-%m-%d"])?;
    let commit = output_of("git", &["describe", "--always", "--dirty"])?;
    let kernel = output_of("uname", &["-srm"])?;
    let cores = std::thread::available_parallelism()?;
    Ok(format!(
        "# Benchmark results\n\n\
         Written by `make bench` on {date} at commit {commit}, on {cores} cores, {kernel}.\n\n\
         Figures depend on the machine and on what else it does; the ratios, taken within one run, are what\n\
         to compare. The limit of the first row is the same program writing the same bytes into a pipe of 1 MiB that is only read;\n\
         of the second, a loop of spawn and wait in Rust. The peer is `codex exec-server` from the npm package\n\
         `@openai/codex`, on stdio, speaking its own protocol of today. In the second table parlor speaks that protocol, too, on stdio and\n\
         on WebSockets. The peer of the synaps door is `synaps rpc` from\n\
         the crate `synaps`, without a key; idle is after one turn. The peers of the ACP door are the npm packages\n\
         `opencode-ai` and `@google/gemini-cli`; the versions are in `bench/package.json`.\n\n\
         {tables}"
    ))
}

fn output_of(program: &str, args: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new(program).args(args).output().with_context(|| format!("cannot run {program}"))?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
