//! Opens the log that the settings name: the SQLite database in the state folder, or a PostgreSQL database that several
//! nodes share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parlor_log::{
    Announcement, EventLog, LogError, PostgresLog, PostgresOptions, SharedMedia, SqliteLog, SystemClock,
};

use crate::environment::Environment;
use crate::secret_file;
use crate::settings::Config;
use crate::settings::log::LogConfig;

/// The largest file with a password, in bytes.
const PASSWORD_BYTES: u64 = 4096;

/// The variable with the password of the database, as other clients of PostgreSQL use it.
const PASSWORD_VARIABLE: &str = "PGPASSWORD";

/// The log of this process.
#[derive(Clone)]
pub(crate) enum OpenLog {
    /// In the state folder.
    Sqlite(Arc<SqliteLog>),
    /// Shared by nodes.
    Postgres(Arc<PostgresLog>),
}

impl OpenLog {
    /// Opens the log. `check_wait` is how long a SQLite database in `folder` is checked for damage.
    pub(crate) async fn open(config: &Config, folder: &Path, check_wait: Duration) -> anyhow::Result<Self> {
        let Some(url) = &config.log.url else {
            let log = SqliteLog::open_with_check_wait(folder, Arc::new(SystemClock), check_wait)
                .with_context(|| format!("cannot open the state folder {}", folder.display()))?;
            return Ok(Self::Sqlite(Arc::new(log)));
        };
        let options = PostgresOptions {
            password: password(&config.log)?,
            workspace: Some(config.cluster.workspace()),
            ..PostgresOptions::new(url, config.cluster.node())
        };
        let log = PostgresLog::open(options, Arc::new(SystemClock)).await.map_err(|error| {
            let hint = hint(&error);
            anyhow::Error::new(error)
                .context(format!("cannot open the log {} ([log] url or --log){hint}", config.log.store()))
        })?;
        Ok(Self::Postgres(Arc::new(log)))
    }

    /// Tells others how they reach this process.
    pub(crate) async fn announce(&self, announcement: Announcement) -> Result<(), LogError> {
        match self {
            Self::Sqlite(log) => {
                log.announce(announcement);
                Ok(())
            }
            Self::Postgres(log) => log.announce(announcement).await,
        }
    }

    /// The log as sessions use it.
    pub(crate) fn as_log(&self) -> Arc<dyn EventLog> {
        match self {
            Self::Sqlite(log) => Arc::clone(log) as _,
            Self::Postgres(log) => Arc::clone(log) as _,
        }
    }

    /// Where the content of attached files is, if not in the state folder alone.
    pub(crate) fn shared_media(&self) -> Option<Arc<dyn SharedMedia>> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(log) => Some(Arc::clone(log) as _),
        }
    }
}

/// The password of the database: that in the file, else that of the variable. `None` leaves the one in the URL.
pub(crate) fn password(config: &LogConfig) -> anyhow::Result<Option<String>> {
    let Some(file) = &config.password_file else { return Ok(Environment::secret(PASSWORD_VARIABLE)) };
    secret_file::read(file, PASSWORD_BYTES, "the password of the database", "[log] password_file").map(Some)
}

/// What the user can do about an error.
pub(crate) fn hint(error: &LogError) -> &'static str {
    match error {
        LogError::Unavailable { .. } => "; start the database, or correct the address",
        LogError::Conflict { .. }
        | LogError::Held { .. }
        | LogError::OtherWorkspace { .. }
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
