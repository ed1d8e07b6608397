//! The log beside bare SQLite and beside the disk.
//!
//! Bare SQLite is what one would write without a log: a connection with the same settings, the same
//! table and the same rows, and nothing else. All figures of a round are taken one after another,
//! and the rounds are repeated, so that what else the machine does meets all of them.

mod append;
mod bare;
mod replay;

use std::path::Path;

use anyhow::Context;
use parlor_vocab::{
    EventId, MessageEvent, MessageId, NewEntry, RunEvent, RunId, SessionEvent, Timestamp, UniqueNumber,
};

use append::{APPENDERS, Appends, Spread};
use replay::{EVENTS, Replay};

/// How many times the appends of bare SQLite those of 64 sessions are, at least.
const MANY_APPENDS: f64 = 10.0;

/// What part of a bare scan's speed a replay has, at least.
const REPLAY: f64 = 0.5;

/// All figures of one run.
pub(crate) struct Log {
    /// What the database was kept on.
    file_system: String,
    appends: Appends,
    replay: Replay,
}

/// Measures in a new folder under `place`, which is removed afterwards.
pub(crate) fn measure(place: &Path) -> anyhow::Result<Log> {
    std::fs::create_dir_all(place)?;
    let folder = tempfile::tempdir_in(place)?;
    Ok(Log {
        file_system: file_system(folder.path())?,
        appends: append::measure(folder.path())?,
        replay: replay::measure(folder.path())?,
    })
}

/// The figures as a Markdown table, each with the bound it is held to.
pub(crate) fn table(log: &Log) -> String {
    let Log { file_system, appends, replay } = log;
    let mut table = format!(
        "| log, on {file_system} | flush alone | bare SQLite | parlor | parlor : bare SQLite |\n|---|---|---|---|---|\n"
    );
    for ((sessions, rate), ratios) in APPENDERS.into_iter().zip(appends.parlor).zip(&appends.ratios) {
        let Spread { least, median, most } = ratios;
        let bound = match (sessions, *median >= MANY_APPENDS) {
            (64, true) => format!("; at least {MANY_APPENDS:.0}: held"),
            (64, false) => format!("; at least {MANY_APPENDS:.0}: **missed**"),
            (_, _) => String::new(),
        };
        let judged = format!("{median:.2} (rounds {least:.2} to {most:.2}{bound})");
        table += &format!(
            "| durable appends with {sessions} sessions | {:.0}/s | {:.0}/s | {rate:.0}/s | {judged} |\n",
            appends.disk, appends.bare
        );
    }
    let ratio = replay.parlor / replay.bare;
    let verdict = if ratio >= REPLAY { "held" } else { "**missed**" };
    table += &format!(
        "| replay of {EVENTS} events | - | {:.0}/s | {:.0}/s | {ratio:.2} (at least {REPLAY}: {verdict}) |\n",
        replay.bare, replay.parlor
    );
    table
}

/// The name of the file system that holds `path`.
fn file_system(path: &Path) -> anyhow::Result<String> {
    let path = path.canonicalize()?;
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let holding = fields.filter(|fields| fields.len() > 2 && path.starts_with(fields[1]));
    // The longest mount point is the innermost; of two at one place the later hides the earlier.
    let innermost = holding.max_by_key(|fields| fields[1].len()).context("no file system holds it")?;
    Ok(innermost[2].to_owned())
}

/// The program's runtime has one thread; so has this.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// An event as an agent's answer of a few lines makes it. Eight of them make a run.
fn answer(number: u64) -> NewEntry {
    let unique = |number: u64| UniqueNumber(0x0190_0000_0000_7000_8000_0000_0000_0000 + u128::from(number));
    let text = "The build is green again: the test waited for a port that another one had taken. "
        .repeat(usize::try_from(number % 4).unwrap_or(0) + 1);
    let event = RunEvent::Message(MessageEvent::Completed {
        message: MessageId::generate(unique(number)),
        text,
        media: Vec::new(),
    });
    NewEntry {
        id: EventId::generate(unique(number)),
        at: Timestamp(1_700_000_000_000 + i64::try_from(number).unwrap_or(0)),
        event: SessionEvent::Run {
            run: RunId::generate(unique(number / 8)),
            sequence: number % 8 + 1,
            event,
        },
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
