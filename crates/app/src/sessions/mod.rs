//! `parlor sessions`: lists sessions, renames and deletes them.

mod change;
pub(crate) mod pick;

use std::io::Write;

use clap::{Args, Subcommand};
use parlor_engine::Sessions;
use parlor_log::{MAX_PAGE, PageRequest, SessionRecord};

pub(crate) use self::change::{NOT_YET_ERASED, checked_title};
use self::pick::{full_id, short_id};
use crate::console::Console;
use crate::json;
use crate::text::truncate;
use crate::time::{minute, time};

/// Titles are truncated to this many columns if output is not a terminal.
const TITLE_COLUMNS: usize = 100;
/// A title gets at least this many columns, even if the line is then wider than the terminal.
const MIN_TITLE_COLUMNS: usize = 10;

/// On a terminal with fewer columns, only ids and titles are listed.
const FULL_LAYOUT_COLUMNS: usize = 60;

/// The arguments of `parlor sessions`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    change: Option<Change>,
    /// Print one JSON object per line, with full ids
    #[arg(long)]
    json: bool,
    /// List only the N most recently used sessions
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(Subcommand)]
enum Change {
    /// Give a session another title
    Rename {
        /// The id of the session, or the start of it
        session: String,
        /// The new title
        title: String,
    },
    /// Delete sessions with all their events
    ///
    /// A session that another process uses is not deleted. Asks for confirmation, which needs a terminal; --yes
    /// deletes without asking.
    Delete {
        /// The ids of the sessions, or the start of each
        #[arg(required = true, value_name = "SESSION")]
        sessions: Vec<String>,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
}

/// Runs `parlor sessions`: lists, renames or deletes.
pub(crate) async fn sessions(
    sessions: &Sessions,
    options: Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match options.change {
        None => list(sessions, options.json, options.limit, console, out).await,
        Some(Change::Rename { session, title }) => change::rename(sessions, &session, &title, out).await,
        Some(Change::Delete { sessions: wanted, yes }) => {
            change::delete(sessions, &wanted, yes, console, out).await
        }
    }
}

/// Lists sessions, the most recently used first.
async fn list(
    sessions: &Sessions,
    json: bool,
    limit: Option<usize>,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let layout = Layout::of(console);
    let mut remaining = limit.unwrap_or(usize::MAX);
    let (mut any_listed, mut has_more) = (false, false);
    let mut after = None;
    while remaining > 0 {
        let page = sessions.list(PageRequest { after, limit: remaining.min(MAX_PAGE) }).await?;
        for record in &page.records {
            let is_cut_off = sessions.is_interrupted(record).await;
            let question = sessions.pending_question(record).await.ok().flatten();
            if json {
                json::write_line(out, &json::SessionLine::new(record, is_cut_off, question.as_ref()))?;
                continue;
            }
            if !any_listed {
                writeln!(out, "{}", layout.header())?;
                any_listed = true;
            }
            writeln!(out, "{}", layout.line(record, is_cut_off, question.is_some()))?;
        }
        remaining -= page.records.len();
        has_more = page.next.is_some();
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    if json {
        return Ok(());
    }
    if has_more {
        writeln!(out, "More sessions exist; --limit N lists N of them.")?;
    }
    if any_listed {
        writeln!(
            out,
            "\nparlor replay SESSION prints its events; parlor chat --session SESSION continues it."
        )?;
        if console.stdout_is_terminal {
            writeln!(
                out,
                "parlor sessions rename SESSION TITLE renames it; parlor sessions delete SESSION deletes it."
            )?;
        }
    } else if limit != Some(0) {
        writeln!(out, "No sessions yet. parlor chat starts one.")?;
    }
    Ok(())
}

/// The columns of the list.
enum Layout {
    /// All columns with full ids, for output that is not a terminal.
    Full,
    /// Short ids, and titles that fit the terminal.
    Terminal { columns: usize },
    /// Short ids and titles only.
    NarrowTerminal { columns: usize },
}

impl Layout {
    fn of(console: Console) -> Self {
        match console.columns() {
            _ if !console.stdout_is_terminal => Self::Full,
            columns if columns < FULL_LAYOUT_COLUMNS => Self::NarrowTerminal { columns },
            columns => Self::Terminal { columns },
        }
    }

    fn header(&self) -> String {
        match self {
            Self::Full => format!(
                "{:<36}  {:<19}  {:<8}  {:>8}  {:<8}  TITLE",
                "SESSION", "LAST USED (UTC)", "DOOR", "MESSAGES", "STATE"
            ),
            Self::Terminal { .. } => {
                format!("{:<13}  {:<16}  {:>5}  {:<7}  TITLE", "SESSION", "LAST USED (UTC)", "SAID", "STATE")
            }
            Self::NarrowTerminal { .. } => format!("{:<13}  TITLE", "SESSION"),
        }
    }

    fn line(&self, record: &SessionRecord, is_cut_off: bool, is_asking: bool) -> String {
        let state = match (&record.running, is_cut_off) {
            _ if is_asking => "asks",
            (Some(_), true) => "cut off",
            (Some(_), false) => "running",
            (None, _) => "idle",
        };
        let title = record.title.as_deref().unwrap_or("-");
        match self {
            Self::Full => {
                let (id, updated, messages) = (full_id(&record.id), time(record.updated), record.messages);
                let (door, title) = (truncate(&record.door, 8), truncate(title, TITLE_COLUMNS));
                format!("{id:<36}  {updated}  {door:<8}  {messages:>8}  {state:<8}  {title}")
            }
            Self::Terminal { columns } => {
                let (id, updated, messages) = (short_id(&record.id), minute(record.updated), record.messages);
                let start = format!("{id:<13}  {updated}  {messages:>5}  {state:<7}  ");
                let title_columns = columns.saturating_sub(start.chars().count()).max(MIN_TITLE_COLUMNS);
                start + &truncate(title, title_columns)
            }
            Self::NarrowTerminal { columns } => {
                let start = format!("{:<13}  ", short_id(&record.id));
                let title_columns = columns.saturating_sub(start.chars().count()).max(MIN_TITLE_COLUMNS);
                start + &truncate(title, title_columns)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parlor_vocab::SessionId;

    use super::*;

    #[test]
    fn a_line_fits_the_terminal() {
        let mut record =
            SessionRecord::new(SessionId::parse("01234567-89ab-7cde-8f01-23456789abcd").unwrap());
        record.title = Some("a title of many words ".repeat(20));
        for columns in [60, 80, 200] {
            let line = Layout::Terminal { columns }.line(&record, false, false);
            assert_eq!(line.chars().count(), columns, "{line}");
        }
        assert_eq!(Layout::NarrowTerminal { columns: 40 }.line(&record, false, false).chars().count(), 40);
        assert!(Layout::NarrowTerminal { columns: 20 }.line(&record, false, false).ends_with("  a title o…"));
    }
}
