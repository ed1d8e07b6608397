//! Measures parlor beside its peers and beside the limit of the machine, in one run.
//!
//! `make bench` builds everything, installs the peers and calls this with the programs. The
//! figures of one table come from one run, alternating between those that are compared, so that what
//! else the machine does meets all of them.
#![expect(clippy::disallowed_methods, reason = "a benchmark starts programs and reads the clock itself")]

mod house;
mod loaf;
mod log;
mod measure;
mod models;
mod report;
mod server;
mod supex;
mod supr;
mod synaps;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::server::{Dialect, Program};

/// The argument under which this program is its own child and writes bytes.
const PRODUCE: &str = "produce";

/// The argument under which only the Supex door is measured, which needs no peer.
const SUPEX: &str = "supex";

/// The argument under which only the loaf door is measured, which needs no peer but Node.
const LOAF: &str = "loaf";

/// The argument under which only the supr door is measured, which needs no peer.
const SUPR: &str = "supr";

/// The argument under which only models are measured, which need no peer but curl.
const MODELS: &str = "models";

/// The argument under which only sessions and their log are measured, which need no peer.
const LOG: &str = "log";

/// The argument under which this program is its own child and holds idle sessions.
const IDLE: &str = "idle";

/// Where databases are made: beside the programs, on a disk like that of a user.
const PLACE: &str = "target/bench";

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next(), args.next(), args.next()) {
        (Some(PRODUCE), Some(bytes), None, None) => produce(bytes.parse()?),
        (Some(supex::ECHO), None, None, None) => supex::echo(),
        (Some(supr::BARE), None, None, None) => supr::bare(),
        (Some(loaf::ECHO), None, None, None) => loaf::echo(),
        (Some(LOAF), Some(parlor), None, None) => {
            print(&loaf::table(&loaf::measure(&absolute(&parlor)?)?));
            Ok(())
        }
        (Some(SUPR), Some(parlor), None, None) => {
            print(&supr::table(&supr::measure(&absolute(&parlor)?)?));
            Ok(())
        }
        (Some(MODELS), Some(parlor), None, None) => {
            print(&models::table(&models::measure(&absolute(&parlor)?)?));
            Ok(())
        }
        (Some(SUPEX), Some(parlor), None, None) => {
            print(&supex::table(&supex::measure(&absolute(&parlor)?)?));
            Ok(())
        }
        (Some(IDLE), Some(folder), None, None) => {
            print(&house::idle(&PathBuf::from(folder))?.to_string());
            Ok(())
        }
        (Some(LOG), Some(parlor), None, None) => {
            print(&sessions(&absolute(&parlor)?)?);
            Ok(())
        }
        (Some(parlor), Some(peer), Some(synaps), Some(results)) => {
            let children = synaps::measure(&absolute(parlor)?, &absolute(&synaps)?)?;
            let parlor = Program { path: absolute(parlor)?, args: &["stdio", "exec"], dialect: Dialect::V0 };
            let peer = Program {
                path: absolute(&peer)?,
                args: &["exec-server", "--listen", "stdio"],
                dialect: Dialect::Today,
            };
            let exec = report::exec_table(&measure::exec(&parlor, &peer)?);
            let workshop = supex::table(&supex::measure(&parlor.path)?);
            let web = supr::table(&supr::measure(&parlor.path)?);
            let front_end = loaf::table(&loaf::measure(&parlor.path)?);
            let minds = models::table(&models::measure(&parlor.path)?);
            let sessions = sessions(&parlor.path)?;
            let children = synaps::table(&children);
            let tables = format!("{exec}\n{sessions}\n{children}\n{workshop}\n{web}\n{front_end}\n{minds}");
            print_and_keep(&tables, &PathBuf::from(results))
        }
        _ => bail!(
            "usage: parlor-bench PARLOR CODEX SYNAPS RESULTS.md, or parlor-bench log|loaf|models|supex|supr PARLOR"
        ),
    }
}

/// The tables of sessions and their log.
fn sessions(parlor: &Path) -> anyhow::Result<String> {
    let place = Path::new(PLACE);
    let (log, costs) = (log::measure(place)?, house::measure(parlor, IDLE, place)?);
    Ok(format!("{}\n{}", log::table(&log), house::table(&costs)))
}

fn absolute(path: &str) -> anyhow::Result<PathBuf> {
    std::fs::canonicalize(path).with_context(|| format!("no program at {path}"))
}

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn print(tables: &str) {
    println!("{tables}");
}

fn print_and_keep(tables: &str, results: &std::path::Path) -> anyhow::Result<()> {
    print(tables);
    std::fs::write(results, report::page(tables)?)
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
