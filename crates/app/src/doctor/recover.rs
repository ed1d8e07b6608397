//! `parlor doctor --recover`: copies what can be read of a damaged database into a new one.

use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use parlor_log::{LostData, Recovered, RecoveryProgress, SavedData, SystemClock, recover};
use serde::Serialize;

use crate::json;
use crate::state_folder_trust;

#[derive(Serialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Whether the database was intact, so that nothing was changed.
    intact: bool,
    sessions: u64,
    events: u64,
    /// Saved sessions whose id is lost.
    unnamed_sessions: u64,
    lost_sessions: u64,
    lost_events: u64,
    /// The file to which the damaged database was renamed; `None` if it was intact.
    damaged: Option<&'a Path>,
}

/// Recovers the database of a state folder, and prints what was saved and what is lost.
pub(super) fn run(home: &Path, as_json: bool, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    state_folder_trust::check(home)?;
    let database = home.join("parlor.db");
    if !database.exists() {
        bail!("there is no database parlor.db in {}", home.display());
    }
    let shows_progress = stderr().is_terminal();
    let recovered = recover(home, &SystemClock, |progress| {
        if shows_progress {
            // Progress is optional, so a write error is ignored.
            let _ = write!(stderr(), "\r\x1b[K{}", progress_text(progress));
        }
    });
    if shows_progress {
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
        print_summary(saved, lost, &database, damaged, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn progress_text(progress: RecoveryProgress) -> String {
    match progress {
        RecoveryProgress::Reading { pages, of } => format!("reading page {pages} of {of}"),
        RecoveryProgress::Writing { events } => format!("{events} events saved"),
        RecoveryProgress::Checking => "checking the new database".to_owned(),
    }
}

fn print_summary(
    saved: SavedData,
    lost: LostData,
    database: &Path,
    damaged: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(damaged) = damaged else {
        writeln!(out, "{} is intact; it was not changed.", database.display())?;
        return Ok(());
    };
    writeln!(out, "Saved: {} sessions with {} events.", saved.sessions, saved.events)?;
    writeln!(out, "Lost, as far as known: {} sessions, {} events in total.", lost.sessions, lost.events)?;
    if saved.unnamed > 0 {
        writeln!(
            out,
            "{} of these sessions lost their id and are now called recovered-N; to list them, run: parlor sessions",
            saved.unnamed
        )?;
    }
    writeln!(
        out,
        "The damaged database is {}; delete it when you are sure that nothing is missing.",
        damaged.display()
    )?;
    Ok(())
}
