//! `parlor sessions`: lists sessions, renames and deletes them.

mod change;
pub(crate) mod pick;

use std::io::Write;

use clap::{Args, Subcommand};
use parlor_engine::Sessions;
use parlor_log::{MAX_PAGE, PageRequest, SessionRecord};

pub(crate) use self::change::{STILL_THERE, checked_title};
use self::pick::{short, whole};
use crate::console::Console;
use crate::json;
use crate::text::cut;
use crate::time::{minute, time};

/// How many columns of a title are shown where there is no terminal to fit.
const TITLE_COLUMNS: usize = 100;
/// A title gets at least so many columns, if need be beyond the edge.
const LEAST_TITLE: usize = 10;

/// Below so many columns there are only ids and titles.
const NARROW: usize = 60;

/// What to do with sessions.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    change: Option<Change>,
    /// Print one JSON object a line, with whole ids
    #[arg(long)]
    json: bool,
    /// List the last N that were used
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(Subcommand)]
enum Change {
    /// Give a session another title
    Rename {
        /// Its id, or the beginning of it
        session: String,
        /// The new title
        title: String,
    },
    /// Delete sessions with all that was said in them
    ///
    /// A session that another process uses is not deleted. On a terminal you are asked first.
    Delete {
        /// Their ids, or the beginnings of them
        #[arg(required = true, value_name = "SESSION")]
        sessions: Vec<String>,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// Does what was asked for.
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

/// Lists sessions, the last used first.
async fn list(
    sessions: &Sessions,
    json: bool,
    limit: Option<usize>,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let layout = Layout::of(console);
    let mut left = limit.unwrap_or(usize::MAX);
    let (mut any, mut rest) = (false, false);
    let mut after = None;
    while left > 0 {
        let page = sessions.list(PageRequest { after, limit: left.min(MAX_PAGE) }).await?;
        for record in &page.records {
            let is_cut_off = sessions.is_cut_off(record).await;
            if json {
                json::write_line(out, &json::Record::new(record, is_cut_off))?;
                continue;
            }
            if !any {
                writeln!(out, "{}", layout.head())?;
                any = true;
            }
            writeln!(out, "{}", layout.line(record, is_cut_off))?;
        }
        left -= page.records.len();
        rest = page.next.is_some();
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    if json {
        return Ok(());
    }
    if rest {
        writeln!(out, "There are more; --limit N lists N of them.")?;
    }
    if any {
        writeln!(
            out,
            "\nparlor replay SESSION shows what happened in one; parlor chat --session SESSION goes on with it."
        )?;
        if console.output {
            writeln!(out, "parlor sessions rename and parlor sessions delete change the list.")?;
        }
    } else if limit != Some(0) {
        writeln!(out, "No sessions yet. parlor chat starts one.")?;
    }
    Ok(())
}

/// How a line is laid out: for a program that splits it at spaces, or to fit a terminal.
enum Layout {
    Wide,
    Fitting { columns: usize },
    Narrow { columns: usize },
}

impl Layout {
    fn of(console: Console) -> Self {
        match console.columns() {
            _ if !console.output => Self::Wide,
            columns if columns < NARROW => Self::Narrow { columns },
            columns => Self::Fitting { columns },
        }
    }

    fn head(&self) -> String {
        match self {
            Self::Wide => format!(
                "{:<36}  {:<19}  {:<8}  {:>8}  {:<8}  TITLE",
                "SESSION", "LAST USED (UTC)", "DOOR", "MESSAGES", "STATE"
            ),
            Self::Fitting { .. } => {
                format!("{:<13}  {:<16}  {:>5}  {:<7}  TITLE", "SESSION", "LAST USED (UTC)", "SAID", "STATE")
            }
            Self::Narrow { .. } => format!("{:<13}  TITLE", "SESSION"),
        }
    }

    fn line(&self, record: &SessionRecord, is_cut_off: bool) -> String {
        let state = match (&record.running, is_cut_off) {
            (Some(_), true) => "cut off",
            (Some(_), false) => "running",
            (None, _) => "idle",
        };
        let title = record.title.as_deref().unwrap_or("-");
        match self {
            Self::Wide => {
                let (id, updated, messages) = (whole(&record.id), time(record.updated), record.messages);
                let (door, title) = (cut(&record.door, 8), cut(title, TITLE_COLUMNS));
                format!("{id:<36}  {updated}  {door:<8}  {messages:>8}  {state:<8}  {title}")
            }
            Self::Fitting { columns } => {
                let (id, updated, messages) = (short(&record.id), minute(record.updated), record.messages);
                let start = format!("{id:<13}  {updated}  {messages:>5}  {state:<7}  ");
                let room = columns.saturating_sub(start.chars().count()).max(LEAST_TITLE);
                start + &cut(title, room)
            }
            Self::Narrow { columns } => {
                let start = format!("{:<13}  ", short(&record.id));
                let room = columns.saturating_sub(start.chars().count()).max(LEAST_TITLE);
                start + &cut(title, room)
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
            let line = Layout::Fitting { columns }.line(&record, false);
            assert_eq!(line.chars().count(), columns, "{line}");
        }
        assert_eq!(Layout::Narrow { columns: 40 }.line(&record, false).chars().count(), 40);
        assert!(Layout::Narrow { columns: 20 }.line(&record, false).ends_with("  a title o…"));
    }
}
