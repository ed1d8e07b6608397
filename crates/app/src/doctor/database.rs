//! Checks whether the database opens and is intact, and counts its sessions.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_log::{
    DamageCheck, EventLog, LogError, MAX_PAGE, PageRequest, SqliteLog, SystemClock, check_database,
};
use rusqlite::ErrorCode;

use super::Finding;
use crate::settings::size;

/// How long the integrity check may take. A database of several gigabytes takes longer; its check is broken off.
const CHECK_WAIT: Duration = Duration::from_secs(10);

const CHECK: &str = "database";

pub(super) fn check(home: &Path) -> Finding {
    let file = home.join("parlor.db");
    let Ok(found) = file.metadata() else {
        return Finding::ok(CHECK, "does not exist yet; the first session creates it");
    };
    let restore = "run parlor doctor --recover to save what can be read, or restore it from a backup (docs/operations.md says how)";
    let checked = match check_database(&file, Some(CHECK_WAIT)) {
        Ok(checked) => checked,
        // The state folder is at fault, not the database; the check of the folder has reported it.
        Err(error) if is_inaccessible(&error) => {
            let fix = "fix the state folder first, see above";
            return Finding::problem(CHECK, format!("cannot be checked: {error}"), fix);
        }
        Err(error) => {
            return Finding::problem(CHECK, format!("{} cannot be read: {error}", file.display()), restore);
        }
    };
    if let DamageCheck::Damaged(what) = checked {
        return Finding::problem(CHECK, format!("{} is damaged: {what}", file.display()), restore);
    }
    let sessions = match count_sessions(home) {
        Ok(sessions) => sessions,
        Err(error) => {
            return Finding::problem(CHECK, error.to_string(), "see docs/operations.md");
        }
    };
    let text = format!("{sessions} sessions, {}", size::show(found.len()));
    match checked {
        DamageCheck::Unfinished => {
            let fix = format!("to check all of it, run: sqlite3 {} 'PRAGMA quick_check'", file.display());
            Finding::warning(
                CHECK,
                format!(
                    "{text}; only partly checked, because the check took over {} s",
                    CHECK_WAIT.as_secs()
                ),
                fix,
            )
        }
        DamageCheck::Intact | DamageCheck::Damaged(_) => Finding::ok(CHECK, format!("{text}, intact")),
    }
}

/// Whether the file could not be opened or written. Such an error says nothing about the content.
fn is_inaccessible(error: &LogError) -> bool {
    if let LogError::Database { source, .. } = error {
        let of_sqlite = source.downcast_ref::<rusqlite::Error>();
        return of_sqlite.is_some_and(|error| error.sqlite_error_code() == Some(ErrorCode::CannotOpen));
    }
    matches!(error, LogError::ReadOnly { .. })
}

/// Counts the sessions through the log, to test the same code that every command uses.
fn count_sessions(home: &Path) -> Result<usize, LogError> {
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
