//! Opens the log that the settings name: the SQLite database in the state folder, or a PostgreSQL database that several
//! nodes share.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use parlor_log::{Announcement, EventLog, LogError, PostgresLog, PostgresOptions, SqliteLog, SystemClock};

use crate::environment::Environment;
use crate::settings::Config;
use crate::settings::log::LogConfig;

/// The largest file with a password, in bytes.
const PASSWORD_BYTES: u64 = 4096;

/// The variable with the password of the database, as other clients of PostgreSQL use it.
const PASSWORD_VARIABLE: &str = "PGPASSWORD";

/// Opens the log. `announcement` is what this process tells others of itself, `check_wait` how long a SQLite database in
/// `folder` is checked for damage.
pub(crate) async fn open(
    config: &Config,
    folder: &Path,
    announcement: Announcement,
    check_wait: Duration,
) -> anyhow::Result<Arc<dyn EventLog>> {
    let Some(url) = &config.log.url else {
        let log = SqliteLog::open_with_check_wait(folder, Arc::new(SystemClock), check_wait)
            .with_context(|| format!("cannot open the state folder {}", folder.display()))?;
        log.announce(announcement);
        return Ok(Arc::new(log));
    };
    let options =
        PostgresOptions { password: password(&config.log)?, ..PostgresOptions::new(url, node_name()) };
    let log = open_postgres(options, announcement).await.map_err(|error| {
        let hint = hint(&error);
        anyhow::Error::new(error)
            .context(format!("cannot open the log {} ([log] url or --log){hint}", config.log.store()))
    })?;
    Ok(Arc::new(log))
}

async fn open_postgres(
    options: PostgresOptions,
    announcement: Announcement,
) -> Result<PostgresLog, LogError> {
    let log = PostgresLog::open(options, Arc::new(SystemClock)).await?;
    log.announce(announcement).await?;
    Ok(log)
}

/// The password of the database: that in the file, else that of the variable. `None` leaves the one in the URL.
pub(crate) fn password(config: &LogConfig) -> anyhow::Result<Option<String>> {
    let Some(file) = &config.password_file else { return Ok(Environment::secret(PASSWORD_VARIABLE)) };
    let shown = file.display();
    let mut text = String::new();
    let read =
        std::fs::File::open(file).and_then(|open| open.take(PASSWORD_BYTES + 1).read_to_string(&mut text));
    read.with_context(|| {
        format!("cannot read the password of the database in {shown} ([log] password_file)")
    })?;
    if text.len() as u64 > PASSWORD_BYTES {
        bail!("{shown} is larger than {PASSWORD_BYTES} bytes, which is no password ([log] password_file)");
    }
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        bail!("{shown} is empty; write the password of the database to it ([log] password_file)");
    }
    Ok(Some(password.to_owned()))
}

/// The name of this machine.
fn node_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "node".to_owned() } else { name }
}

/// What the user can do about an error.
fn hint(error: &LogError) -> &'static str {
    match error {
        LogError::Unavailable { .. } => "; start the database, or correct the address",
        LogError::Conflict { .. }
        | LogError::Held { .. }
        | LogError::NotHeld { .. }
        | LogError::UnknownSession(_)
        | LogError::Unreadable { .. }
        | LogError::Full { .. }
        | LogError::ReadOnly { .. }
        | LogError::Replaced { .. }
        | LogError::Damaged { .. }
        | LogError::InUse { .. }
        | LogError::Busy
        | LogError::Newer { .. }
        | LogError::Database { .. }
        | LogError::Io { .. }
        | LogError::Closed => "",
    }
}
