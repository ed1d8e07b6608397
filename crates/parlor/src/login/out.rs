//! `parlor logout`.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use parlor_auth::State;

use super::with_home;
use crate::environment::Environment;
use crate::home::Home;

/// What to log out of.
#[derive(Args)]
pub(crate) struct LogoutOptions {
    /// Whose login and key to forget; it may be left out if there is only one
    #[arg(value_name = "PROVIDER")]
    provider: Option<String>,
    /// Forget all logins and keys that are kept; keys in variables stay
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
        for provider in chosen(home, options).await? {
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

async fn chosen(home: &Home, options: &LogoutOptions) -> anyhow::Result<Vec<String>> {
    if let Some(provider) = &options.provider {
        return Ok(vec![provider.clone()]);
    }
    let statuses = home.keys().logins().statuses().await?;
    let logins = statuses.into_iter().filter(|status| status.state != State::LoggedOut);
    let names = home.keys().store().names()?;
    let keys = names.iter().filter_map(|name| name.service()).map(str::to_owned);
    let there: BTreeSet<String> = logins.map(|status| status.provider).chain(keys).collect();
    let there: Vec<String> = there.into_iter().collect();
    match there.as_slice() {
        [] => bail!("you are not logged in anywhere, and no key is kept; parlor auth lists what there is"),
        [_] => Ok(there),
        _ if options.all => Ok(there),
        several => bail!("say which one, or --all; there are: {}", several.join(", ")),
    }
}
