//! Measures parlor in comparison with its peers and with the limit of the machine, in one run.
//!
//! `make bench` builds everything, installs the peers and calls this program with their paths. The figures of one table come
//! from one run that alternates between the compared programs, so that other load on the machine affects all of them alike.
#![expect(clippy::disallowed_methods, reason = "a benchmark starts programs and reads the clock itself")]

mod acp;
mod exec;
mod exec_server;
mod executor;
mod growth;
mod loaf;
mod log;
mod mcp;
mod models;
mod postgres;
mod process_status;
mod profile;
mod report;
mod round_trips;
mod sandbox;
mod scale;
mod sessions;
mod sharing;
mod stats;
mod supex;
mod supr;
mod synaps;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::exec_server::{Dialect, Program};

/// With this argument, the program is its own child process and writes bytes.
const PRODUCE: &str = "produce";

/// With this argument, the program measures only the ACP door, which needs its peers.
const ACP: &str = "acp";

/// With this argument, the program measures only the exec door, which needs its peer.
const EXEC: &str = "exec";

/// With this argument, the program measures only the exec door as the executor of the codex CLI, beside the CLI's own.
const EXECUTOR: &str = "executor";

/// With this argument, the program measures only the supex door, which needs no peer.
const SUPEX: &str = "supex";

/// With this argument, the program measures only the loaf door, which needs Node.
const LOAF: &str = "loaf";

/// With this argument, the program measures only the supr door, which needs no peer.
const SUPR: &str = "supr";

/// With this argument, the program measures only how fast one session's events reach many connections of the supr door.
const BROADCAST: &str = "broadcast";

/// With this argument, the program measures only models, which need curl.
const MODELS: &str = "models";

/// With this argument, the program measures only sessions and their log, which need no peer.
const LOG: &str = "log";

/// With this argument, the program measures only the opening of long sessions, which needs no peer.
const GROWTH: &str = "growth";

/// With this argument, the program writes the page about the number of nodes that a database carries.
const SCALE: &str = "scale";

/// With this argument, the program measures only the log in PostgreSQL, which needs the server.
const POSTGRES: &str = "postgres";

/// With this argument, the program measures only shared sessions, which need no peer.
const SHARING: &str = "sharing";

/// With this argument, the program measures only the start of processes in a sandbox. The paths of parlor and codex are optional.
const SANDBOX: &str = "sandbox";

/// With this argument, the program measures only the synaps door, which needs its peer.
const SYNAPS: &str = "synaps";

/// With this argument, the program measures only the client of MCP servers, which needs Python.
const MCP: &str = "mcp";

/// With this argument, the program is its own child process and holds idle sessions.
const IDLE: &str = "idle";

/// The folder for databases: beside the programs, on a disk like that of a user.
const DATABASE_FOLDER: &str = "target/bench";

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next(), args.next(), args.next()) {
        (Some(ACP), Some(parlor), Some(opencode), Some(gemini)) => {
            let figures = acp::measure(&absolute(&parlor)?, &absolute(&opencode)?, &absolute(&gemini)?)?;
            print(&acp::table(&figures));
            Ok(())
        }
        (Some(PRODUCE), Some(bytes), None, None) => produce(bytes.parse()?),
        (Some(supex::ECHO), None, None, None) => supex::echo(),
        (Some(supr::BARE), None, None, None) => supr::serve_bare(),
        (Some(loaf::ECHO), None, None, None) => loaf::echo(),
        (Some(mcp::SERVE), None, None, None) => mcp::serve(),
        (Some(MCP), None, None, None) => {
            print(&mcp::table(&mcp::measure()?));
            Ok(())
        }
        (Some(sharing::ECHO), Some(path), None, None) => sharing::echo(Path::new(&path)),
        (Some(profile::APPEND), Some(home), Some(count), None) => {
            profile::append_one_by_one(Path::new(&home), count.parse()?)
        }
        (Some(profile::PROFILE), Some(parlor), Some(page), None) => write_profile(&parlor, Path::new(&page)),
        (Some(command @ (profile::CHECK | profile::RECORD)), Some(parlor), Some(stored), None) => {
            std::fs::create_dir_all(DATABASE_FOLDER)?;
            let (folder, write) = (Path::new(DATABASE_FOLDER), command == profile::RECORD);
            print(profile::check(&absolute(&parlor)?, folder, Path::new(&stored), write)?.trim_end());
            Ok(())
        }
        (Some(SHARING), Some(parlor), None, None) => {
            print(&sharing::table(&sharing::measure(&absolute(&parlor)?)?));
            Ok(())
        }
        (Some(SANDBOX), None, None, None) => {
            print(&sandbox::table(&sandbox::measure(Path::new(DATABASE_FOLDER))?));
            Ok(())
        }
        (Some(SANDBOX), Some(parlor), Some(codex), None) => {
            print(&sandbox_tables(&absolute(&parlor)?, &absolute(&codex)?)?);
            Ok(())
        }
        (Some(SYNAPS), Some(parlor), Some(synaps), None) => {
            print(&synaps::table(&synaps::measure(&absolute(&parlor)?, &absolute(&synaps)?)?));
            Ok(())
        }
        (Some(EXEC), Some(parlor), Some(codex), None) => {
            print(&exec_table(absolute(&parlor)?, absolute(&codex)?)?);
            Ok(())
        }
        (Some(executor::CHATTER), None, None, None) => executor::chatter(),
        (Some(EXECUTOR), Some(parlor), Some(codex), None) => {
            print(&executor::tables(executor::measure(absolute(&parlor)?, absolute(&codex)?)?));
            Ok(())
        }
        (Some(LOAF), Some(parlor), None, None) => {
            print(&loaf::table(&loaf::measure(&absolute(&parlor)?)?));
            Ok(())
        }
        (Some(SUPR), Some(parlor), None, None) => {
            print(&supr::table(&supr::measure(&absolute(&parlor)?)?));
            Ok(())
        }
        (Some(BROADCAST), Some(parlor), None, None) => {
            print(&supr::measure_broadcasts(&absolute(&parlor)?)?);
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
            print(&sessions::idle_session_bytes(&PathBuf::from(folder))?.to_string());
            Ok(())
        }
        (Some(LOG), Some(parlor), None, None) => {
            print(&session_tables(&absolute(&parlor)?)?);
            Ok(())
        }
        (Some(GROWTH), None, None, None) => {
            print(&growth::table(&growth::measure(Path::new(DATABASE_FOLDER))?));
            Ok(())
        }
        (Some(POSTGRES), Some(parlor), None, None) => {
            print(&postgres::table(&postgres::measure(&absolute(&parlor)?, Path::new(DATABASE_FOLDER))?));
            Ok(())
        }
        (Some(SCALE), Some(page), None, None) => {
            print(&scale::write(Path::new(&page))?);
            Ok(())
        }
        (Some(parlor), Some(peers), Some(results), None) => {
            let (parlor, peers) = (absolute(parlor)?, PathBuf::from(peers));
            let peer = |name: &str| {
                let path = peers.join(name);
                std::fs::canonicalize(&path).with_context(|| format!("no program at {}", path.display()))
            };
            let synaps = synaps::measure(&parlor, &peer("synaps")?)?;
            let codex = peer("codex")?;
            let acp = acp::table(&acp::measure(&parlor, &peer("opencode")?, &peer("gemini")?)?);
            let exec = exec_table(parlor.clone(), codex.clone())?;
            let executor = executor::tables(executor::measure(parlor.clone(), codex.clone())?);
            let sandbox = sandbox_tables(&parlor, &codex)?;
            let supex = supex::table(&supex::measure(&parlor)?);
            let supr = supr::table(&supr::measure(&parlor)?);
            let loaf = loaf::table(&loaf::measure(&parlor)?);
            let mcp = mcp::table(&mcp::measure()?);
            let models = models::table(&models::measure(&parlor)?);
            let sessions = session_tables(&parlor)?;
            let postgres = postgres::table(&postgres::measure(&parlor, Path::new(DATABASE_FOLDER))?);
            let sharing = sharing::table(&sharing::measure(&parlor)?);
            let synaps = synaps::table(&synaps);
            let tables = format!(
                "{exec}\n{executor}\n{sandbox}\n{sessions}\n{postgres}\n{sharing}\n{synaps}\n{acp}\n{supex}\n{supr}\n{loaf}\n{mcp}\n{models}"
            );
            print_and_save(&tables, &PathBuf::from(results))
        }
        _ => bail!(
            "usage: parlor-bench PARLOR FOLDER-OF-PEERS RESULTS.md, or one part of it: \
             broadcast|log|loaf|models|postgres|sharing|supex|supr PARLOR, growth, mcp, acp PARLOR OPENCODE GEMINI, \
             exec|executor PARLOR CODEX, sandbox [PARLOR CODEX], synaps PARLOR SYNAPS; or another page: \
             profile PARLOR PROFILE.md, profile-check|profile-record PARLOR COUNTS, scale PAGE.md"
        ),
    }
}

/// Profiles the program, and writes the page with its counts.
fn write_profile(parlor: &str, page: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(DATABASE_FOLDER)?;
    let before = std::fs::read_to_string(page).unwrap_or_default();
    let counts = profile::page(&absolute(parlor)?, Path::new(DATABASE_FOLDER), &before)?;
    std::fs::write(page, counts).with_context(|| format!("cannot write {}", page.display()))
}

/// The cost of a sandbox, and of the programs that run a command in one.
fn sandbox_tables(parlor: &Path, codex: &Path) -> anyhow::Result<String> {
    let folder = Path::new(DATABASE_FOLDER);
    let own = sandbox::table(&sandbox::measure(folder)?);
    let programs = sandbox::program_table(&sandbox::measure_programs(parlor, codex, folder)?);
    Ok(format!("{own}\n{programs}"))
}

/// The table of the exec door.
fn exec_table(parlor: PathBuf, codex: PathBuf) -> anyhow::Result<String> {
    let parlor = Program { path: parlor, args: &["stdio", "exec"], dialect: Dialect::V0 };
    let peer =
        Program { path: codex, args: &["exec-server", "--listen", "stdio"], dialect: Dialect::Current };
    Ok(report::exec_table(&exec::measure(&parlor, &peer)?))
}

/// The tables of the log and of sessions.
fn session_tables(parlor: &Path) -> anyhow::Result<String> {
    let folder = Path::new(DATABASE_FOLDER);
    let (log, costs) = (log::measure(folder)?, sessions::measure(parlor, IDLE, folder)?);
    let growth = growth::table(&growth::measure(folder)?);
    Ok(format!("{}\n{}\n{growth}", log::table(&log), sessions::table(&costs)))
}

fn absolute(path: &str) -> anyhow::Result<PathBuf> {
    std::fs::canonicalize(path).with_context(|| format!("no program at {path}"))
}

#[expect(clippy::print_stdout, reason = "the tables are the output of this program")]
fn print(tables: &str) {
    println!("{tables}");
}

fn print_and_save(tables: &str, results: &std::path::Path) -> anyhow::Result<()> {
    print(tables);
    std::fs::write(results, report::page(tables)?)
        .with_context(|| format!("cannot write {}", results.display()))
}

/// Writes `left` bytes in blocks, as fast as the reader takes them.
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
