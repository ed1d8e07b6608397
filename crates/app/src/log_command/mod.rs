//! `parlor log copy`: copies the sessions, their attached files and the usage of one log to another.

mod endpoint;
mod media;
mod progress;
mod report;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use parlor_log::copy::{CopyError, CopyProgress, copy_log};

use self::endpoint::{Endpoint, Role};
use self::progress::ProgressBar;
use self::report::Reporter;
use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;

/// The subcommands of `parlor log`.
#[derive(Subcommand)]
pub(crate) enum LogCommand {
    /// Copy all sessions, attached files and usage from one log to another, and compare them event by event
    ///
    /// LOG is sqlite:DIR for the database in a state folder, sqlite: for that of this user, or
    /// postgres://USER@HOST/DATABASE. The source must not be in use; the target may be. What the target has already is
    /// compared and not written again, so that an interrupted copy continues when it is started again. A session that
    /// differs in the target is named and left as it is. Exits with 0 if the target has everything of the source, and
    /// else with 1. Settings, keys and logins are not copied.
    #[command(after_help = COPY_EXAMPLES)]
    Copy(CopyOptions),
}

const COPY_EXAMPLES: &str = "\
Examples:
  parlor log copy --from sqlite: --to postgres://parlor@db.example/parlor
  parlor log copy --from postgres://parlor@db.example/parlor --to sqlite:/srv/parlor
  parlor log copy --from sqlite:/old/.parlor --to sqlite: --json

The password of a database is the one in its address, else that of [log] password_file in parlor.toml, else PGPASSWORD.";

/// The flags of `parlor log copy`.
#[derive(Args)]
pub(crate) struct CopyOptions {
    /// The log to copy
    #[arg(long, value_name = "LOG")]
    from: String,
    /// The log to copy it to
    #[arg(long, value_name = "LOG")]
    to: String,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Runs a subcommand.
pub(crate) fn run(
    environment: &Environment,
    command: &LogCommand,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let LogCommand::Copy(options) = command;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(copy(environment, options, console, out));
    // Do not wait for tasks that block on a disk.
    runtime.shutdown_background();
    done
}

async fn copy(
    environment: &Environment,
    options: &CopyOptions,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let home = Home::open(environment)?;
    let parse = |flag, text| {
        Endpoint::parse(&home, text).with_context(|| format!("the value of {flag} cannot be used"))
    };
    let (from, to) = (parse("--from", &options.from)?, parse("--to", &options.to)?);
    if from == to {
        bail!("--from and --to name the same log; choose another target");
    }
    let source = from.open(Role::Source).await?;
    let target = to.open(Role::Target).await?;
    let mut reporter = Reporter::new(options.json, out);
    let mut bar = ProgressBar::new(console);
    let copied = async {
        // Files first: no event of the target may lack its file.
        let files = media::copy(&source, &target, &mut bar, &mut reporter).await?;
        let report = copy_log(&*source.log, &*target.log, |progress| match progress {
            CopyProgress::Source { events, .. } => bar.begin("events", events),
            CopyProgress::Compared { events } => bar.advance(events),
            CopyProgress::Session { id, outcome } => {
                if !outcome.is_complete() {
                    bar.clear();
                }
                reporter.session(id, outcome);
            }
        });
        let report = report.await.map_err(|error| match error {
            CopyError::Source(error) => anyhow::Error::new(error).context(format!("cannot read {from}")),
            CopyError::Target(error) => anyhow::Error::new(error).context(format!("cannot copy to {to}")),
            error @ (CopyError::SourceInUse { .. } | CopyError::SourceChanged) => {
                anyhow::Error::new(error).context(format!("cannot copy {from}"))
            }
        })?;
        anyhow::Ok((files, report))
    };
    let copied = copied.await;
    bar.clear();
    // Gives up the leases, so that others need not wait.
    target.log.close().await;
    source.log.close().await;
    let (files, report) = copied?;
    reporter.summary(&files, &report)
}
