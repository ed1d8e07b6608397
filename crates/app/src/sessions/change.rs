//! Renaming and deleting sessions.

use std::io::{BufRead, Write, stdin};

use anyhow::bail;
use parlor_engine::{Sessions, is_blank, visible};
use parlor_log::Erased;
use parlor_vocab::SessionCommand;

use super::pick::{pick, whole};
use crate::console::Console;
use crate::text::cut;

/// The longest title, in characters: it is shown on one line.
const MAX_TITLE_CHARS: usize = 200;
/// How much of a title is shown in a question.
const ASKED_COLUMNS: usize = 60;

/// What is said if the text of deleted sessions could not be taken out of all files.
pub(crate) const STILL_THERE: &str =
    "What was said is in parlor.db-wal until those who read it now are done; parlor gc takes it out then.";

/// Gives a session another title.
pub(super) async fn rename(
    sessions: &Sessions,
    session: &str,
    title: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let title = checked_title(title)?;
    let record = pick(sessions, session).await?;
    sessions.ask(&record.id, SessionCommand::Rename { title: title.clone() }).await?;
    writeln!(out, "Session {} is called {title:?} now.", whole(&record.id))?;
    Ok(())
}

/// Deletes sessions, all that are named or none that cannot be told.
pub(super) async fn delete(
    sessions: &Sessions,
    wanted: &[String],
    yes: bool,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut records = Vec::new();
    for session in wanted {
        let record = pick(sessions, session).await?;
        if !records.contains(&record) {
            records.push(record);
        }
    }
    if !yes {
        if !console.input {
            bail!("nothing was deleted: nobody can be asked here, so say --yes");
        }
        for record in &records {
            let title = cut(record.title.as_deref().unwrap_or("-"), ASKED_COLUMNS);
            writeln!(out, "{}  {} messages  {title}", whole(&record.id), record.messages)?;
        }
        write!(out, "Delete this for good? [y/N] ")?;
        out.flush()?;
        let mut answer = String::new();
        stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            bail!("nothing was deleted");
        }
    }
    for record in records {
        let erased = sessions.delete(&record.id).await?;
        writeln!(out, "Session {} is deleted.", whole(&record.id))?;
        if erased == Erased::Later {
            writeln!(out, "{STILL_THERE}")?;
        }
    }
    Ok(())
}

/// A title as it is kept, or what is wrong with it.
pub(crate) fn checked_title(title: &str) -> anyhow::Result<String> {
    let title = visible(&cut(title, usize::MAX)).trim().to_owned();
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
