//! `parlor logout`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use parlor_auth::{Logins, State};

use super::with_home;
use crate::environment::Environment;

/// What to log out of.
#[derive(Args)]
pub(crate) struct LogoutOptions {
    /// Which login or key to forget; it may be left out if there is only one login
    #[arg(value_name = "PROVIDER")]
    provider: Option<String>,
    /// Forget all logins
    #[arg(long, conflicts_with = "provider")]
    all: bool,
}

/// Logs out.
pub(crate) fn logout(
    environment: &Environment,
    options: &LogoutOptions,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    with_home(environment, async |home| {
        let (logins, redactor) = (home.keys().logins(), home.keys().redactor());
        for provider in chosen(logins, options).await? {
            let had_key = home.keys().keep(&provider, None).map_err(|why| anyhow::anyhow!(why))?;
            if had_key {
                writeln!(out, "The key of {provider} is forgotten.")?;
            }
            let done = logins.logout(&provider).await?;
            let line = match (done.existed, done.revoked) {
                (false, _) if had_key => continue,
                (false, _) => format!("You are not logged in to {provider}."),
                (true, Ok(_)) => format!("Logged out of {provider}."),
                (true, Err(reason)) => {
                    format!(
                        "Logged out of {provider} here; it was not told, so revoke it there as well: {reason}"
                    )
                }
            };
            writeln!(out, "{}", redactor.redact(&line))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn chosen(logins: &Logins, options: &LogoutOptions) -> anyhow::Result<Vec<String>> {
    if let Some(provider) = &options.provider {
        return Ok(vec![provider.clone()]);
    }
    let statuses = logins.statuses().await?;
    let there = statuses.into_iter().filter(|status| status.state != State::LoggedOut);
    let there: Vec<String> = there.map(|status| status.provider).collect();
    match there.as_slice() {
        [] => bail!("you are not logged in anywhere; parlor auth lists what there is"),
        [_] => Ok(there),
        _ if options.all => Ok(there),
        several => bail!("say which one, or --all; there are: {}", several.join(", ")),
    }
}
