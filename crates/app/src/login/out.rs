//! `parlor logout`.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use parlor_auth::{LoginState, LogoutOutcome};

use super::{key, with_home};
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
        let mut failures = Vec::new();
        for provider in chosen(home, options).await? {
            // What cannot be forgotten keeps nothing else from being forgotten.
            let key = home.keys().keep(&provider, None);
            let had_key = !matches!(key, Ok(false));
            match key {
                Ok(true) => writeln!(out, "The key of {provider} is forgotten.")?,
                Ok(false) => {}
                Err(why) => failures.push(why),
            }
            let line = match home.keys().logins().logout(&provider).await {
                Ok(done) => told(&provider, &done, had_key),
                Err(error) => {
                    failures.push(error.to_string());
                    None
                }
            };
            if let Some(line) = line {
                writeln!(out, "{}", home.keys().redactor().redact(&line))?;
            }
        }
        if failures.is_empty() { Ok(ExitCode::SUCCESS) } else { bail!("{}", failures.join("\n")) }
    })
}

/// What became of a login.
fn told(provider: &str, done: &LogoutOutcome, had_key: bool) -> Option<String> {
    match (done.existed, &done.revoked) {
        (false, _) if had_key => None,
        (false, _) => Some(format!("You are not logged in to {provider}.")),
        (true, Ok(_)) => Some(format!("Logged out of {provider}.")),
        (true, Err(reason)) => Some(format!(
            "Logged out of {provider} here; it was not told, so revoke it there as well: {reason}"
        )),
    }
}

async fn chosen(home: &Home, options: &LogoutOptions) -> anyhow::Result<Vec<String>> {
    let mut known = key::known(home.config());
    known.extend(home.config().auth.keys().map(String::as_str));
    // What cannot be listed keeps nobody from forgetting what they can name.
    if let Some(provider) = options.provider.as_deref().filter(|name| known.contains(name)) {
        return Ok(vec![provider.to_owned()]);
    }
    let there = there(home).await?;
    if let Some(provider) = &options.provider {
        if there.contains(provider) {
            return Ok(vec![provider.clone()]);
        }
        known.extend(there.iter().map(String::as_str));
        let known: Vec<&str> = known.into_iter().collect();
        bail!(
            "there is no provider {provider:?}; there are: {}. parlor auth lists what is kept",
            known.join(", ")
        );
    }
    match there.as_slice() {
        [] => bail!("you are not logged in anywhere, and no key is kept; parlor auth lists what there is"),
        [_] => Ok(there),
        _ if options.all => Ok(there),
        several => bail!("say which one, or --all; there are: {}", several.join(", ")),
    }
}

/// Whoever has a login or a key that is kept.
async fn there(home: &Home) -> anyhow::Result<Vec<String>> {
    let statuses = home.keys().logins().statuses().await?;
    let logins = statuses.into_iter().filter(|status| status.state != LoginState::LoggedOut);
    let names = home.keys().store().names()?;
    let keys = names.iter().filter_map(|name| name.service()).map(str::to_owned);
    let there: BTreeSet<String> = logins.map(|status| status.provider).chain(keys).collect();
    Ok(there.into_iter().collect())
}
