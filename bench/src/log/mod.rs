//! The log in comparison with bare SQLite and with the disk.
//!
//! Bare SQLite is a connection with the same settings, table and rows as the log, and nothing else. Each round measures all
//! of them one after another, and the rounds are repeated, so that other load on the machine affects all of them alike.

mod append;
mod bare_sqlite;
mod replay;

use std::path::Path;

use anyhow::Context;
use parlor_vocab::{
    EventId, MessageEvent, MessageId, NewEntry, RunEvent, RunId, SessionEvent, Timestamp, UniqueNumber,
};

pub(crate) use append::{APPENDERS, append_events, open_sessions};
pub(crate) use bare_sqlite::{Row, stored};

use append::Appends;
use replay::{EVENTS, Replay};

use crate::stats::{Spread, verdict};

/// The bound for the appends of 64 sessions, as a multiple of bare SQLite's.
const MIN_APPEND_RATIO: f64 = 10.0;

/// The bound for a replay's speed, as a part of a bare scan's.
const MIN_REPLAY_RATIO: f64 = 0.5;

/// All figures of one run.
pub(crate) struct Log {
    /// The file system of the database.
    file_system: String,
    appends: Appends,
    replay: Replay,
}

/// Measures in a new folder below `parent`, which is removed afterwards.
pub(crate) fn measure(parent: &Path) -> anyhow::Result<Log> {
    std::fs::create_dir_all(parent)?;
    let folder = tempfile::tempdir_in(parent)?;
    Ok(Log {
        file_system: file_system(folder.path())?,
        appends: append::measure(folder.path())?,
        replay: replay::measure(folder.path())?,
    })
}

/// The figures as a Markdown table, each with its bound.
pub(crate) fn table(log: &Log) -> String {
    let Log { file_system, appends, replay } = log;
    let mut table = format!(
        "| log, on {file_system} | flush alone | bare SQLite | parlor | parlor : bare SQLite |\n|---|---|---|---|---|\n"
    );
    for ((sessions, rate), ratios) in APPENDERS.into_iter().zip(appends.parlor).zip(&appends.ratios) {
        let Spread { least, median, most } = ratios;
        let bound = match (sessions, *median >= MIN_APPEND_RATIO) {
            (64, true) => format!("; at least {MIN_APPEND_RATIO:.0}: held"),
            (64, false) => format!("; at least {MIN_APPEND_RATIO:.0}: **missed**"),
            (_, _) => String::new(),
        };
        let ratio = format!("{median:.2} (rounds {least:.2} to {most:.2}{bound})");
        table += &format!(
            "| durable appends with {sessions} sessions | {:.0}/s | {:.0}/s | {rate:.0}/s | {ratio} |\n",
            appends.disk, appends.bare
        );
    }
    let ratio = replay.parlor / replay.bare;
    let verdict = verdict(ratio >= MIN_REPLAY_RATIO);
    table += &format!(
        "| replay of {EVENTS} events | - | {:.0}/s | {:.0}/s | {ratio:.2} (at least {MIN_REPLAY_RATIO}: {verdict}) |\n",
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
    // The longest mount point is the innermost. Of two with the same mount point, the later hides the earlier.
    let innermost = holding.max_by_key(|fields| fields[1].len()).context("no file system has this path")?;
    Ok(innermost[2].to_owned())
}

/// A runtime with one thread, as parlor's.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// The event of an agent's answer with a few lines. Eight of them make a run.
pub(crate) fn answer(number: u64) -> NewEntry {
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
