//! `parlor sessions rename` and `parlor sessions delete`.

use std::io::{BufRead, Write, stdin};

use anyhow::bail;
use parlor_engine::session::MAX_TITLE_CHARS;
use parlor_engine::{Sessions, is_blank, visible};
use parlor_log::Erased;
use parlor_vocab::SessionCommand;

use super::pick::{full_id, pick_session};
use crate::console::Console;
use crate::text::truncate;

/// Titles in the confirmation question are truncated to this many columns.
const QUESTION_TITLE_COLUMNS: usize = 60;

/// Printed if the text of deleted sessions could not be erased from all files yet.
pub(crate) const NOT_YET_ERASED: &str = "The deleted text stays in parlor.db-wal while other processes read the database; \
     run parlor gc later to erase it.";

/// Gives a session another title.
pub(super) async fn rename(
    sessions: &Sessions,
    session: &str,
    title: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let title = checked_title(title)?;
    let record = pick_session(sessions, session).await?;
    sessions.execute(&record.id, SessionCommand::Rename { title: title.clone() }).await?;
    writeln!(out, "Renamed session {} to {title:?}.", full_id(&record.id))?;
    Ok(())
}

/// Deletes the sessions that `wanted` names. Deletes none if one of the names is unknown or ambiguous.
pub(super) async fn delete(
    sessions: &Sessions,
    wanted: &[String],
    yes: bool,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut records = Vec::new();
    for session in wanted {
        let record = pick_session(sessions, session).await?;
        if !records.contains(&record) {
            records.push(record);
        }
    }
    if !yes {
        if !console.stdin_is_terminal {
            bail!("nothing was deleted: stdin is not a terminal, so confirm with --yes");
        }
        for record in &records {
            let title = truncate(record.title.as_deref().unwrap_or("-"), QUESTION_TITLE_COLUMNS);
            writeln!(out, "{}  {} messages  {title}", full_id(&record.id), record.messages)?;
        }
        write!(out, "Delete permanently? [y/N] ")?;
        out.flush()?;
        let mut answer = String::new();
        stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            bail!("nothing was deleted");
        }
    }
    for record in records {
        let erased = sessions.delete(&record.id).await?;
        writeln!(out, "Deleted session {}.", full_id(&record.id))?;
        if erased == Erased::Later {
            writeln!(out, "{NOT_YET_ERASED}")?;
        }
    }
    Ok(())
}

/// The title as it is stored: on one line and without invisible characters. Fails if it is blank or too long.
pub(crate) fn checked_title(title: &str) -> anyhow::Result<String> {
    let title = visible(&truncate(title, usize::MAX)).trim().to_owned();
    if is_blank(&title) {
        bail!("a title needs at least a letter that can be seen");
    }
    let count = title.chars().count();
    if count > MAX_TITLE_CHARS {
        bail!("a title of {count} characters is longer than the limit of {MAX_TITLE_CHARS}");
    }
    Ok(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line() {
        assert_eq!(checked_title(" two\nlines\x1b[31m ").unwrap(), "two lines");
        assert_eq!(checked_title("\u{202e}a\u{200b} ").unwrap(), "a");
        for blank in [" \x07", "\u{202e}\u{feff}", "\u{200d}", "\u{3164}"] {
            assert!(checked_title(blank).unwrap_err().to_string().contains("can be seen"), "{blank:?}");
        }
        assert!(checked_title(&"x".repeat(MAX_TITLE_CHARS)).is_ok());
        assert!(checked_title(&"x".repeat(MAX_TITLE_CHARS + 1)).is_err());
    }
}
