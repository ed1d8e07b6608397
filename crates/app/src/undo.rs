//! `parlor undo` and `parlor diff`: put back, or show, what a run changed in files.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use parlor_engine::{Sessions, is_visible};
use parlor_undo::{FileChange, FileDiff, FileState, RunRecord, UndoMode, UndoOutcome, UndoReport};
use parlor_vocab::{RunId, SessionId};
use parlor_web::{ChangesAnswer, MAX_DIFF_BYTES, UndoAnswer};

use crate::console::Console;
use crate::json;
use crate::sessions::pick::{pick_session, short_id};

/// How many files a list on a terminal has. Those that are kept come first.
const LISTED_FILES: usize = 50;

/// Which run.
#[derive(Args)]
struct RunChoice {
    /// The id of the run, or the start of it [default: the last run that changed files in this folder]
    run: Option<String>,
    /// A run of this session: its id, or the start of it
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The arguments of `parlor undo`.
#[derive(Args)]
pub(crate) struct UndoOptions {
    #[command(flatten)]
    choice: RunChoice,
    /// Print what would be put back, and change nothing
    #[arg(long, conflicts_with = "force")]
    dry_run: bool,
    /// Put files back even if they were changed after the run
    #[arg(long)]
    force: bool,
}

/// The arguments of `parlor diff`.
#[derive(Args)]
pub(crate) struct DiffOptions {
    #[command(flatten)]
    choice: RunChoice,
}

/// Puts back what a run changed. Fails with status 1 if some of it stays.
pub(crate) async fn undo(
    sessions: &Sessions,
    options: &UndoOptions,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let record = find(sessions, &options.choice).await?;
    let mode = match (options.dry_run, options.force) {
        (true, _) => UndoMode::DryRun,
        (false, true) => UndoMode::Force,
        (false, false) => UndoMode::Careful,
    };
    let report = sessions.undo_run(&record.session, &record.run, mode).await?;
    if options.choice.json {
        json::write_line(out, &UndoAnswer::new(&report, mode, usize::MAX))?;
    } else {
        print_report(&report, mode, console, out)?;
    }
    Ok(if report.kept() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Undoes the last run of a session that changed files, for `/undo` in a chat.
pub(crate) async fn undo_last(
    sessions: &Sessions,
    session: &SessionId,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(record) = sessions.changed_runs(session).await?.pop() else {
        bail!("no run of this session changed files");
    };
    let report = sessions.undo_run(&record.session, &record.run, UndoMode::Careful).await?;
    Ok(print_report(&report, UndoMode::Careful, console, out)?)
}

/// Prints what a run changed.
pub(crate) async fn diff(
    sessions: &Sessions,
    options: &DiffOptions,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let record = find(sessions, &options.choice).await?;
    print_diff(sessions, &record.session, &record.run, options.choice.json, console, out).await
}

/// Prints what the last run of a session that changed files changed, for `/diff` in a chat.
pub(crate) async fn diff_last(
    sessions: &Sessions,
    session: &SessionId,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(record) = sessions.changed_runs(session).await?.pop() else {
        bail!("no run of this session changed files");
    };
    print_diff(sessions, session, &record.run, false, console, out).await
}

/// The run that the command line names.
async fn find(sessions: &Sessions, choice: &RunChoice) -> anyhow::Result<RunRecord> {
    let folder = std::env::current_dir().context("the working folder does not exist any more")?;
    let (runs, last) = match &choice.session {
        Some(session) => {
            let session = pick_session(sessions, session).await?;
            let runs = sessions.changed_runs(&session.id).await?;
            let last = runs.last().cloned();
            (runs, last)
        }
        None => {
            let last = sessions.last_changed_run_in(&folder).await?;
            (sessions.all_changed_runs().await?, last)
        }
    };
    let Some(wanted) = &choice.run else {
        return last.with_context(|| match &choice.session {
            Some(session) => format!("no run of session {session} changed files, or its record was removed"),
            None => format!(
                "no run changed files in {}; name a session with --session (parlor sessions lists them)",
                folder.display()
            ),
        });
    };
    let mut found: Vec<RunRecord> =
        runs.into_iter().filter(|record| record.run.as_str().starts_with(wanted.as_str())).collect();
    if let Some(exact) = found.iter().position(|record| record.run.as_str() == wanted) {
        return Ok(found.swap_remove(exact));
    }
    match (found.pop(), found.len()) {
        (Some(record), 0) => Ok(record),
        (Some(_), others) => {
            bail!("{} runs have an id that starts with {wanted:?}; name more of it", others + 1)
        }
        (None, _) => bail!("no run whose id starts with {wanted:?} changed files, or its record was removed"),
    }
}

fn print_report(
    report: &UndoReport,
    mode: UndoMode,
    console: Console,
    out: &mut dyn Write,
) -> io::Result<()> {
    let is_dry = mode == UndoMode::DryRun;
    let kept = |outcome: &UndoOutcome| matches!(outcome, UndoOutcome::Kept(_));
    let mut files: Vec<_> =
        report.files.iter().filter(|file| file.outcome != UndoOutcome::AlreadyDone).collect();
    files.sort_by_key(|file| !kept(&file.outcome));
    for file in files.iter().take(LISTED_FILES) {
        let path = printable(&file.path.to_string_lossy());
        match &file.outcome {
            UndoOutcome::Kept(reason) => {
                writeln!(out, "{}  {path}: {}", console.style.red("kept    "), printable(reason))?;
            }
            UndoOutcome::Restored | UndoOutcome::AlreadyDone => {
                let done = match file.change {
                    "created" => "removed ",
                    _ => "restored",
                };
                writeln!(out, "{done}  {path}")?;
            }
        }
    }
    if files.len() > LISTED_FILES {
        writeln!(out, "… and {} more; --json lists all", files.len() - LISTED_FILES)?;
    }
    for note in &report.notes {
        writeln!(out, "{}", console.style.dim(&printable(note)))?;
    }
    let (restored, kept) = (report.restored(), report.kept());
    let files = |count: usize| if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
    let restored_files = files(restored);
    let run = format!("{} in session {}", report.record.run, short_id(&report.record.session));
    match (restored, kept) {
        (0, 0) => writeln!(out, "Nothing to do: every file is as before {run}."),
        (_, 0) if is_dry => writeln!(out, "Would put back {restored_files} of {run}."),
        (_, 0) => writeln!(out, "Put back {restored_files} of {run}."),
        (_, _) if is_dry => {
            writeln!(out, "Would put back {restored_files} of {run}, and keep {kept}; see above.")
        }
        (_, _) => writeln!(out, "Put back {restored_files} of {run}, and kept {kept}; see above."),
    }
}

async fn print_diff(
    sessions: &Sessions,
    session: &SessionId,
    run: &RunId,
    as_json: bool,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let changes = sessions.run_changes(session, run).await?;
    let diffs = sessions.diffs(changes.files.clone(), MAX_DIFF_BYTES).await?;
    if as_json {
        return Ok(json::write_line(out, &ChangesAnswer::new(&changes, diffs))?);
    }
    if changes.files.is_empty() {
        writeln!(out, "Run {run} changed no files.")?;
    }
    for (file, diff) in changes.files.iter().zip(&diffs) {
        print_file(file, diff, console, out)?;
    }
    for note in &changes.notes {
        writeln!(out, "{}", console.style.dim(&printable(note)))?;
    }
    Ok(())
}

fn print_file(file: &FileChange, diff: &FileDiff, console: Console, out: &mut dyn Write) -> io::Result<()> {
    let path = printable(&file.path.to_string_lossy());
    let heading = format!("{} {path}{}", file.kind(), states(&file.before, &file.after));
    writeln!(out, "{}", console.style.bold(&heading))?;
    match diff {
        FileDiff::Text { text, .. } if text.is_empty() => {}
        FileDiff::Text { text, is_cut } => {
            let name = |state: &FileState, side: &str| match *state == FileState::Missing {
                true => "/dev/null".to_owned(),
                false => format!("{side}/{path}"),
            };
            writeln!(out, "--- {}\n+++ {}", name(&file.before, "a"), name(&file.after, "b"))?;
            for line in text.lines() {
                let shown = printable(line);
                let shown = match line.as_bytes().first() {
                    Some(b'-') => console.style.red(&shown),
                    Some(b'+') => console.style.green(&shown),
                    Some(b'@') => console.style.dim(&shown),
                    _ => shown,
                };
                writeln!(out, "{shown}")?;
            }
            if *is_cut {
                writeln!(out, "{}", console.style.dim("… the rest of this diff is left out"))?;
            }
        }
        FileDiff::Binary => writeln!(out, "{}", console.style.dim("not a text"))?,
        FileDiff::NotShown => {
            writeln!(out, "{}", console.style.dim("too large to be shown, or its content was not kept"))?;
        }
        FileDiff::NoFile => {}
    }
    if let Some(obstacle) = file.obstacle() {
        let text = format!("cannot be undone: {}", obstacle.reason());
        writeln!(out, "{}", console.style.red(&text))?;
    }
    Ok(())
}

/// What changed beside the content.
fn states(before: &FileState, after: &FileState) -> String {
    let describe = |state: &FileState| match state {
        FileState::Missing => None,
        FileState::File { mode, .. } => mode.map(|mode| format!("file {mode:o}")),
        FileState::Folder { mode, .. } => Some(format!("folder {mode:o}")),
        FileState::Link { target } => {
            Some(format!("link to {}", printable(&String::from_utf8_lossy(target))))
        }
        FileState::Special => Some("special file".to_owned()),
    };
    match (describe(before), describe(after)) {
        (Some(before), Some(after)) if before != after => format!(" ({before} → {after})"),
        (Some(state), None) | (None, Some(state)) if !state.starts_with("file") => format!(" ({state})"),
        _ => String::new(),
    }
}

/// Text for a terminal: a file may hold control sequences.
fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if is_visible(letter) || letter == '\t' { letter } else { '\u{fffd}' })
        .collect()
}
