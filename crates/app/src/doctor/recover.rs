//! `parlor doctor --recover`: a new database with what can be saved of a damaged one.

use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use parlor_log::{LostData, Recovered, RecoveryProgress, SavedData, SystemClock, recover};
use serde::Serialize;

use crate::json;
use crate::ownership;

#[derive(Serialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Whether there was nothing to do.
    intact: bool,
    sessions: u64,
    events: u64,
    unnamed_sessions: u64,
    lost_sessions: u64,
    lost_events: u64,
    damaged: Option<&'a Path>,
}

/// Recovers the database of a state folder, and says what was saved and what is lost.
pub(super) fn run(home: &Path, as_json: bool, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    ownership::check(home)?;
    let database = home.join("parlor.db");
    if !database.exists() {
        bail!("there is no database in {}; parlor.db would be its name", home.display());
    }
    let is_watched = stderr().is_terminal();
    let recovered = recover(home, &SystemClock, |progress| {
        if is_watched {
            // Whoever does not read it any more misses nothing.
            let _ = write!(stderr(), "\r\x1b[K{}", told(progress));
        }
    });
    if is_watched {
        let _ = write!(stderr(), "\r\x1b[K");
    }
    let recovered = recovered.context("nothing was changed")?;
    let (saved, lost, damaged) = match &recovered {
        Recovered::Intact => (SavedData::default(), LostData::default(), None),
        Recovered::New { saved, lost, damaged } => (*saved, *lost, Some(damaged.as_path())),
    };
    if as_json {
        let line = Line {
            kind: "recovered",
            intact: damaged.is_none(),
            sessions: saved.sessions,
            events: saved.events,
            unnamed_sessions: saved.unnamed,
            lost_sessions: lost.sessions,
            lost_events: lost.events,
            damaged,
        };
        json::write_line(out, &line)?;
    } else {
        conclude(saved, lost, &database, damaged, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn told(progress: RecoveryProgress) -> String {
    match progress {
        RecoveryProgress::Reading { pages, of } => format!("reading page {pages} of {of}"),
        RecoveryProgress::Writing { events } => format!("{events} events are saved"),
        RecoveryProgress::Checking => "checking the new database".to_owned(),
    }
}

fn conclude(
    saved: SavedData,
    lost: LostData,
    database: &Path,
    damaged: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(damaged) = damaged else {
        writeln!(out, "{} is intact and was left as it is.", database.display())?;
        return Ok(());
    };
    writeln!(out, "Saved: {} sessions with {} events.", saved.sessions, saved.events)?;
    writeln!(
        out,
        "Lost, as far as is known: {} sessions, and {} events in all.",
        lost.sessions, lost.events
    )?;
    if saved.unnamed > 0 {
        writeln!(
            out,
            "The ids of {} sessions are lost: look for recovered-N in parlor sessions.",
            saved.unnamed
        )?;
    }
    writeln!(out, "The damaged database is {}; delete it once nothing is missed.", damaged.display())?;
    Ok(())
}
