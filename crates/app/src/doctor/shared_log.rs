//! Checks the log in a PostgreSQL database.

use std::time::Duration;

use parlor_log::PageRequest;

use super::Finding;
use crate::event_log::OpenLog;
use crate::settings::Config;

const CHECK: &str = "database";

/// Opens the log, writes to it and reads from it.
pub(super) fn check(config: &Config) -> Finding {
    let store = config.log.store();
    let checked = || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let log = OpenLog::open(config, std::path::Path::new(""), Duration::ZERO).await?.as_log();
            let checked = async {
                log.check().await?;
                log.sessions(PageRequest::first(1)).await
            };
            let checked = checked.await;
            log.close().await;
            Ok(checked.map(drop)?)
        })
    };
    match checked() {
        Ok(()) => Finding::ok(CHECK, format!("{store} can be read and written")),
        Err(error) => {
            let fix = "start the database, or correct [log] url, password_file or PGPASSWORD; docs/postgres.md has examples";
            Finding::problem(CHECK, format!("{error:#}"), fix)
        }
    }
}
