//! The database: whether it opens, whether it is intact, and how much is in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_log::{
    Checked, EventLog, LogError, MAX_PAGE, PageRequest, SqliteLog, SystemClock, check_database,
};
use rusqlite::ErrorCode;

use super::Finding;
use crate::settings::size;

/// How long the check may take. A database of some gigabytes takes longer, and is not waited for.
const CHECK_WAIT: Duration = Duration::from_secs(10);

/// The check's name.
const CHECK: &str = "database";

/// Looks at the database of a state folder.
pub(super) fn look(home: &Path) -> Finding {
    let file = home.join("parlor.db");
    let Ok(found) = file.metadata() else {
        return Finding::ok(CHECK, "not there yet; the first session makes it");
    };
    let restore = "save what can be read with parlor doctor --recover, or restore it from a backup (docs/operations.md says how)";
    let checked = match check_database(&file, Some(CHECK_WAIT)) {
        Ok(checked) => checked,
        // Not the database is at fault, but the folder, of which the line above tells.
        Err(error) if is_closed(&error) => {
            let fix = "mend the state folder first, as its line says";
            return Finding::problem(CHECK, format!("cannot be looked at: {error}"), fix);
        }
        Err(error) => {
            return Finding::problem(CHECK, format!("{} cannot be read: {error}", file.display()), restore);
        }
    };
    if let Checked::Damaged(what) = checked {
        return Finding::problem(CHECK, format!("{} is damaged: {what}", file.display()), restore);
    }
    let sessions = match count(home) {
        Ok(sessions) => sessions,
        Err(error) => {
            return Finding::problem(CHECK, error.to_string(), "see above; docs/operations.md says more");
        }
    };
    let said = format!("{sessions} sessions, {}", size::show(found.len()));
    match checked {
        Checked::Unfinished => {
            let fix = format!("nothing, or check all of it: sqlite3 {} 'PRAGMA quick_check'", file.display());
            Finding::warning(
                CHECK,
                format!("{said}; not checked to the end in {} s", CHECK_WAIT.as_secs()),
                fix,
            )
        }
        Checked::Intact | Checked::Damaged(_) => Finding::ok(CHECK, format!("{said}, intact")),
    }
}

/// Whether the file could not even be opened for work, which says nothing of what is in it.
fn is_closed(error: &LogError) -> bool {
    if let LogError::Database { source, .. } = error {
        return source.sqlite_error_code() == Some(ErrorCode::CannotOpen);
    }
    matches!(error, LogError::ReadOnly { .. })
}

/// Counts the sessions through the log, so that all that every command needs is tried.
fn count(home: &Path) -> Result<usize, LogError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|source| LogError::Io { attempt: "read", path: home.to_owned(), source })?;
    runtime.block_on(async {
        let log = SqliteLog::open(home, Arc::new(SystemClock))?;
        let (mut count, mut request) = (0, PageRequest::first(MAX_PAGE));
        loop {
            let page = log.sessions(request).await?;
            count += page.records.len();
            match page.next {
                Some(next) => request = PageRequest { after: Some(next), limit: MAX_PAGE },
                None => return Ok(count),
            }
        }
    })
}
