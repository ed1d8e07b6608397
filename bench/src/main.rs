//! Measures parlor beside its peer and beside the limit of the machine, in one run.
//!
//! `make bench` builds everything, installs the peer and calls this with the two programs. The
//! figures of one table come from one run, alternating between the three, so that what else the
//! machine does meets all of them.
#![expect(clippy::disallowed_methods, reason = "a benchmark starts programs and reads the clock itself")]

mod measure;
mod report;
mod server;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::server::{Dialect, Program};

/// The argument under which this program is its own child and writes bytes.
const PRODUCE: &str = "produce";

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next(), args.next()) {
        (Some(PRODUCE), Some(bytes), None) => produce(bytes.parse()?),
        (Some(parlor), Some(peer), Some(results)) => {
            let parlor = Program { path: absolute(parlor)?, args: &["stdio", "exec"], dialect: Dialect::V0 };
            let peer = Program {
                path: absolute(&peer)?,
                args: &["exec-server", "--listen", "stdio"],
                dialect: Dialect::Today,
            };
            let table = report::exec_table(&measure::exec(&parlor, &peer)?);
            print_and_keep(&table, &PathBuf::from(results))
        }
        _ => bail!("usage: parlor-bench PARLOR PEER RESULTS.md"),
    }
}

fn absolute(path: &str) -> anyhow::Result<PathBuf> {
    std::fs::canonicalize(path).with_context(|| format!("no program at {path}"))
}

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn print_and_keep(table: &str, results: &std::path::Path) -> anyhow::Result<()> {
    println!("{table}");
    std::fs::write(results, report::page(table)?)
        .with_context(|| format!("cannot write {}", results.display()))
}

/// Writes `left` bytes in blocks, as fast as whoever reads allows.
fn produce(mut left: usize) -> anyhow::Result<()> {
    let block: Vec<u8> =
        (0..64 * 1024_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut out = std::io::stdout().lock();
    while left > 0 {
        let count = left.min(block.len());
        out.write_all(&block[..count])?;
        left -= count;
    }
    Ok(())
}
