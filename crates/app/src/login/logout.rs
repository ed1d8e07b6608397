//! `parlor logout`: removes logins and keys.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use parlor_auth::{LoginState, LogoutOutcome};

use super::{key, with_home};
use crate::environment::Environment;
use crate::home::Home;

/// The arguments of `parlor logout`.
#[derive(Args)]
pub(crate) struct LogoutOptions {
    /// The provider whose login and key to remove; optional if there is only one
    #[arg(value_name = "PROVIDER")]
    provider: Option<String>,
    /// Remove all stored logins and keys; keys in environment variables stay
    #[arg(long, conflicts_with = "provider")]
    all: bool,
}

/// Runs `parlor logout`.
pub(crate) fn logout(
    environment: &Environment,
    options: &LogoutOptions,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    with_home(environment, async |home| {
        let mut failures = Vec::new();
        for provider in selected_providers(home, options).await? {
            // A failure does not stop the removal of the others.
            let key = home.keys().set_key(&provider, None);
            let had_key = !matches!(key, Ok(false));
            match key {
                Ok(true) => writeln!(out, "Removed the key of {provider}.")?,
                Ok(false) => {}
                Err(why) => failures.push(why),
            }
            let line = match home.keys().logins().logout(&provider).await {
                Ok(outcome) => outcome_text(&provider, &outcome, had_key),
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

/// What to print about a login. Nothing if only a key existed, which was reported already.
fn outcome_text(provider: &str, outcome: &LogoutOutcome, had_key: bool) -> Option<String> {
    match (outcome.existed, &outcome.revoked) {
        (false, _) if had_key => None,
        (false, _) => Some(format!("You are not logged in to {provider}.")),
        (true, Ok(_)) => Some(format!("Logged out of {provider}.")),
        (true, Err(reason)) => Some(format!(
            "Logged out of {provider} on this machine only, so revoke the login at the provider as well: {reason}"
        )),
    }
}

async fn selected_providers(home: &Home, options: &LogoutOptions) -> anyhow::Result<Vec<String>> {
    let mut known = key::known_services(home.config());
    known.extend(home.config().auth.keys().map(String::as_str));
    // A known provider needs no list of what is stored, so an unreadable store does not matter.
    if let Some(provider) = options.provider.as_deref().filter(|name| known.contains(name)) {
        return Ok(vec![provider.to_owned()]);
    }
    let stored = stored_providers(home).await?;
    if let Some(provider) = &options.provider {
        if stored.contains(provider) {
            return Ok(vec![provider.clone()]);
        }
        known.extend(stored.iter().map(String::as_str));
        let known: Vec<&str> = known.into_iter().collect();
        bail!(
            "there is no provider {provider:?}; there are: {}. parlor auth lists stored logins and keys",
            known.join(", ")
        );
    }
    match stored.as_slice() {
        [] => bail!("there is no login and no stored key to remove; parlor auth lists what is configured"),
        [_] => Ok(stored),
        _ if options.all => Ok(stored),
        several => bail!("name one of these providers, or use --all: {}", several.join(", ")),
    }
}

/// The providers with a login or a stored key.
async fn stored_providers(home: &Home) -> anyhow::Result<Vec<String>> {
    let statuses = home.keys().logins().statuses().await?;
    let logins = statuses.into_iter().filter(|status| status.state != LoginState::LoggedOut);
    let names = home.keys().store().names()?;
    let keys = names.iter().filter_map(|name| name.service()).map(str::to_owned);
    let stored: BTreeSet<String> = logins.map(|status| status.provider).chain(keys).collect();
    Ok(stored.into_iter().collect())
}
