//! The two ends of a copy, as the command line names them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use parlor_engine::MediaStore;
use parlor_log::copy::CopyableLog;
use parlor_log::{PostgresLog, PostgresOptions, SharedMedia, SqliteLog, SystemClock};

use crate::event_log;
use crate::home::Home;
use crate::settings::log::LogConfig;
use crate::state_folder_trust;

/// The start of the address of a log in SQLite.
const SQLITE: &str = "sqlite:";

/// The name of the database in a state folder.
const DATABASE: &str = "parlor.db";

/// A log by its address.
pub(super) enum Endpoint {
    /// The database in this state folder.
    Sqlite(PathBuf),
    /// A PostgreSQL database, and its address for people.
    Postgres { options: PostgresOptions, store: String },
}

/// What a copy does with a log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Reads from it.
    Source,
    /// Writes to it.
    Target,
}

/// A log that is open for copying.
pub(super) struct OpenEndpoint {
    pub(super) log: Arc<dyn CopyableLog>,
    pub(super) media: EndpointMedia,
}

/// Where the content of attached files is.
pub(super) enum EndpointMedia {
    Folder(MediaStore),
    Database(Arc<dyn SharedMedia>),
}

impl Endpoint {
    /// Reads an address. The settings of `home` give the folder of `sqlite:` and the password of a database.
    pub(super) fn parse(home: &Home, text: &str) -> anyhow::Result<Self> {
        if let Some(path) = text.strip_prefix(SQLITE) {
            let path = if path.is_empty() { home.path().to_owned() } else { PathBuf::from(path) };
            let folder = match path.parent() {
                Some(folder) if path.file_name().is_some_and(|name| name == DATABASE) => folder.to_owned(),
                Some(_) | None => path,
            };
            let folder = std::path::absolute(&folder)?;
            // Links lead to the same folder, which must not be copied to itself.
            return Ok(Self::Sqlite(folder.canonicalize().unwrap_or(folder)));
        }
        let config = LogConfig { password_file: home.config().log.password_file.clone(), url: None };
        let config = config.with_url(Some(text)).map_err(|error| anyhow::anyhow!("it {error}"))?;
        let url = config.url.clone().context("an address that is not SQLite's is that of a database")?;
        // A password in the address is for this end of the copy; the other ones are for any.
        let password = match config.password_in_url() {
            Some(_) => None,
            None => event_log::password(&config)?,
        };
        let cluster = &home.config().cluster;
        let options = PostgresOptions {
            password,
            workspace: Some(cluster.workspace()),
            ..PostgresOptions::new(url, cluster.node())
        };
        Ok(Self::Postgres { options, store: config.store() })
    }

    /// Opens the log. Refuses a source in SQLite that does not exist or that a process uses.
    pub(super) async fn open(&self, role: Role) -> anyhow::Result<OpenEndpoint> {
        match self {
            Self::Sqlite(folder) => {
                if role == Role::Source {
                    if !folder.join(DATABASE).exists() {
                        bail!("there is no database {DATABASE} in {}", folder.display());
                    }
                    SqliteLog::refuse_if_used(folder).with_context(|| format!("cannot copy {self}"))?;
                }
                state_folder_trust::check(folder)?;
                let log = SqliteLog::open(folder, Arc::new(SystemClock))
                    .with_context(|| format!("cannot open {self}"))?;
                Ok(OpenEndpoint {
                    log: Arc::new(log),
                    media: EndpointMedia::Folder(MediaStore::open(folder)?),
                })
            }
            Self::Postgres { options, .. } => {
                let opened = PostgresLog::open(options.clone(), Arc::new(SystemClock)).await;
                let log = Arc::new(opened.map_err(|error| {
                    let hint = event_log::hint(&error);
                    anyhow::Error::new(error).context(format!("cannot open {self}{hint}"))
                })?);
                let media = EndpointMedia::Database(Arc::<PostgresLog>::clone(&log));
                Ok(OpenEndpoint { log, media })
            }
        }
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sqlite(folder), Self::Sqlite(other)) => folder == other,
            (Self::Postgres { options, .. }, Self::Postgres { options: other, .. }) => {
                options.url == other.url
            }
            (Self::Sqlite(_), Self::Postgres { .. }) | (Self::Postgres { .. }, Self::Sqlite(_)) => false,
        }
    }
}

impl fmt::Display for Endpoint {
    /// Without user, password and parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(folder) => write!(f, "{SQLITE}{}", folder.display()),
            Self::Postgres { store, .. } => f.write_str(store),
        }
    }
}
