//! The database: whether it opens, whether it is intact, and how much is in it.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use parlor_log::{EventLog, LogError, MAX_PAGE, PageRequest, SqliteLog, SystemClock};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::Finding;
use crate::settings::size;

/// How long the check may take. A database of some gigabytes takes longer, and is not waited for.
const CHECK_WAIT: Duration = Duration::from_secs(10);

/// The check's name.
const CHECK: &str = "database";

/// What the quick check found.
enum Intact {
    Yes,
    No(String),
    /// It took too long.
    Unknown,
}

/// Looks at the database of a state folder.
pub(super) fn look(home: &Path) -> Finding {
    let file = home.join("parlor.db");
    let Ok(found) = file.metadata() else {
        return Finding::ok(CHECK, "not there yet; the first session makes it");
    };
    let restore = "restore it from a backup; docs/operations.md says how";
    let intact = match quick_check(&file) {
        Ok(intact) => intact,
        // Not the database is at fault, but the folder, of which the line above tells.
        Err(error) if is_closed(&error) => {
            let fix = "mend the state folder first, as its line says";
            return Finding::problem(CHECK, format!("cannot be looked at: {error}"), fix);
        }
        Err(error) => {
            return Finding::problem(CHECK, format!("{} cannot be read: {error}", file.display()), restore);
        }
    };
    if let Intact::No(what) = intact {
        return Finding::problem(CHECK, format!("{} is damaged: {what}", file.display()), restore);
    }
    let sessions = match count(home) {
        Ok(sessions) => sessions,
        Err(error) => {
            return Finding::problem(CHECK, error.to_string(), "see above; docs/operations.md says more");
        }
    };
    let said = format!("{sessions} sessions, {}", size::show(found.len()));
    match intact {
        Intact::Unknown => {
            let fix = format!("nothing, or check all of it: sqlite3 {} 'PRAGMA quick_check'", file.display());
            Finding::warning(
                CHECK,
                format!("{said}; not checked to the end in {} s", CHECK_WAIT.as_secs()),
                fix,
            )
        }
        Intact::Yes | Intact::No(_) => Finding::ok(CHECK, format!("{said}, intact")),
    }
}

/// Whether the file could not even be opened for work, which says nothing of what is in it.
fn is_closed(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied))
}

fn quick_check(file: &Path) -> rusqlite::Result<Intact> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let stop = connection.get_interrupt_handle();
    let (done, waiting) = sync_channel::<()>(1);
    let watch = thread::spawn(move || {
        if waiting.recv_timeout(CHECK_WAIT) == Err(RecvTimeoutError::Timeout) {
            stop.interrupt();
        }
    });
    let found: rusqlite::Result<String> = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    drop(done);
    // It has nothing to say.
    let _ = watch.join();
    match found {
        Ok(found) if found == "ok" => Ok(Intact::Yes),
        Ok(found) => Ok(Intact::No(found)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(Intact::Unknown)
        }
        Err(error) => Err(error),
    }
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
