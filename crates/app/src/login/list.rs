//! `parlor auth`: lists the stored keys and the state of each login.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use parlor_auth::{LoginManager, LoginState, LoginStatus, SecretName};
use serde_json::json;

use super::{LABEL_COLUMNS, key, with_home};
use crate::environment::Environment;
use crate::home::Home;
use crate::{text, time};

/// The flags of `parlor auth`.
#[derive(Args)]
pub(crate) struct ListOptions {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Renew logins that are about to expire, and exit with 1 if a key or login cannot be used
    #[arg(long)]
    check: bool,
}

/// Prints the stored keys, and then the logins.
pub(crate) fn list(
    environment: &Environment,
    options: &ListOptions,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    with_home(environment, async |home| {
        let (logins, redactor) = (home.keys().logins(), home.keys().redactor());
        let mut all_usable = if options.check { renew_logins(logins).await } else { true };
        let statuses = logins.statuses().await?;
        let keys = stored_keys(home);
        if statuses.is_empty() && !options.json {
            writeln!(
                out,
                "No login is configured. To configure one, add [auth.NAME] to parlor.toml (docs/auth.md).{}",
                if keys.is_empty() { " To store a key, run: parlor login NAME --key." } else { "" }
            )?;
        }
        for StoredKey { name, location, error } in keys {
            if options.check && error.is_some() {
                all_usable = false;
            }
            match (options.json, error) {
                (true, error) => {
                    let state = if error.is_some() { "unreadable" } else { "key" };
                    let line = json!({"provider": name, "state": state, "reason": error, "place": location});
                    writeln!(out, "{line}")?;
                }
                (false, None) => writeln!(out, "{name}: key\n  stored in {location}")?,
                (false, Some(error)) => {
                    writeln!(out, "{name}: key, which cannot be used: {error}\n  stored in {location}")?
                }
            }
        }
        for status in statuses {
            let text = if options.json { status_json(&status) } else { status_text(&status) };
            writeln!(out, "{}", redactor.redact(&text))?;
        }
        Ok(if all_usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

struct StoredKey {
    name: String,
    /// The path of the file, or the name of the keyring entry.
    location: String,
    /// Why the key cannot be read; `None` if it can.
    error: Option<String>,
}

fn stored_keys(home: &Home) -> Vec<StoredKey> {
    let store = home.keys().store();
    let keys = key::known_services(home.config()).into_iter().filter_map(|name| {
        let secret = SecretName::key(name)?;
        let error = match store.read(&secret) {
            Ok(Some(_)) => None,
            Ok(None) => return None,
            // A key that cannot be read exists, so it is listed.
            Err(error) => Some(error.to_string()),
        };
        Some(StoredKey { name: name.to_owned(), location: store.location(&secret), error })
    });
    keys.collect()
}

/// Renews the logins that are about to expire. Returns whether all existing logins can be used, and prints the error of
/// each login that cannot.
async fn renew_logins(logins: &LoginManager) -> bool {
    let names: Vec<String> = logins.providers().map(|provider| provider.name().to_owned()).collect();
    let mut all_usable = true;
    for name in names {
        if let Err(error) = logins.access_token(&name).await
            && !matches!(error, parlor_auth::AccessError::LoggedOut { .. })
        {
            eprintln!("{error}");
            all_usable = false;
        }
    }
    all_usable
}

fn status_text(status: &LoginStatus) -> String {
    let name = &status.provider;
    let label = status.account.as_ref().and_then(|account| account.label());
    let account =
        label.map_or_else(String::new, |label| format!(" as {}", text::truncate(label, LABEL_COLUMNS)));
    let expiry = match (status.expires_at, status.renewable) {
        (Some(at), true) => format!("; parlor renews it before {}", time::minute(at)),
        (Some(at), false) => format!("; expires at {}", time::minute(at)),
        (None, _) => String::new(),
    };
    let state = match &status.state {
        LoginState::LoggedOut => return format!("{name}: not logged in; run: parlor login {name}"),
        LoginState::LoggedIn => format!("logged in{account}{expiry}"),
        LoginState::Expired => format!("expired{account}; run: parlor login {name}"),
        LoginState::Ended(reason) => format!("ended{account}: {reason}; run: parlor login {name}"),
        LoginState::Unreadable(reason) => reason.clone(),
    };
    let not_configured = if status.configured { "" } else { " (not in parlor.toml)" };
    format!("{name}{not_configured}: {state}\n  stored in {}", status.location)
}

fn status_json(status: &LoginStatus) -> String {
    let (state, reason) = match &status.state {
        LoginState::LoggedOut => ("logged_out", None),
        LoginState::LoggedIn => ("logged_in", None),
        LoginState::Expired => ("expired", None),
        LoginState::Ended(reason) => ("ended", Some(reason)),
        LoginState::Unreadable(reason) => ("unreadable", Some(reason)),
    };
    json!({
        "provider": status.provider,
        "configured": status.configured,
        "state": state,
        "reason": reason,
        "account": status.account.as_ref().map(|account| json!({
            "id": account.id,
            "email": account.email,
            "name": account.name,
            "picture": account.picture,
        })),
        "expires_at": status.expires_at.map(parlor_vocab::Timestamp::rfc3339),
        "renewable": status.renewable,
        "place": status.location,
    })
    .to_string()
}
