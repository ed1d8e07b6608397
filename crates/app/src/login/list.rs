//! `parlor auth`: the keys that are kept, and how it stands with each login.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use parlor_auth::{LoginManager, LoginState, LoginStatus, SecretName};
use serde_json::json;

use super::{LABEL_COLUMNS, key, with_home};
use crate::environment::Environment;
use crate::home::Home;
use crate::{text, time};

/// How to list.
#[derive(Args)]
pub(crate) struct ListOptions {
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// First renew each login that is about to expire, and exit with 1 if one cannot be used
    #[arg(long)]
    check: bool,
}

/// Lists keys and logins.
pub(crate) fn list(
    environment: &Environment,
    options: &ListOptions,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    with_home(environment, async |home| {
        let (logins, redactor) = (home.keys().logins(), home.keys().redactor());
        let mut works = if options.check { check(logins).await } else { true };
        let statuses = logins.statuses().await?;
        let keys = kept_keys(home);
        if statuses.is_empty() && !options.json {
            writeln!(
                out,
                "No login is configured. [auth.NAME] in parlor.toml describes one; see docs/auth.md.{}",
                if keys.is_empty() { " parlor login NAME --key keeps a key." } else { "" }
            )?;
        }
        for Kept { name, place, trouble } in keys {
            works &= trouble.is_none() || !options.check;
            match (options.json, trouble) {
                (true, reason) => {
                    let state = if reason.is_some() { "unreadable" } else { "key" };
                    let line = json!({"provider": name, "state": state, "reason": reason, "place": place});
                    writeln!(out, "{line}")?;
                }
                (false, None) => writeln!(out, "{name}: a key is kept\n  in {place}")?,
                (false, Some(why)) => {
                    writeln!(out, "{name}: a key is kept, and not used: {why}\n  in {place}")?
                }
            }
        }
        for status in statuses {
            let text = if options.json { for_programs(&status) } else { for_people(&status) };
            writeln!(out, "{}", redactor.redact(&text))?;
        }
        Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// A key that is kept.
struct Kept {
    name: String,
    place: String,
    /// Why it cannot be used.
    trouble: Option<String>,
}

/// The keys that are kept.
fn kept_keys(home: &Home) -> Vec<Kept> {
    let store = home.keys().store();
    let known = key::known(home.config()).into_iter().filter_map(|name| {
        let secret = SecretName::key(name)?;
        let trouble = match store.read(&secret) {
            Ok(key) => key.map(|_| None)?,
            // One that cannot be read is there, too.
            Err(error) => Some(error.to_string()),
        };
        Some(Kept { name: name.to_owned(), place: store.place(&secret), trouble })
    });
    known.collect()
}

/// Whether each login that is there can be used; says why not.
async fn check(logins: &LoginManager) -> bool {
    let names: Vec<String> = logins.providers().map(|provider| provider.name().to_owned()).collect();
    let mut works = true;
    for name in names {
        if let Err(error) = logins.access(&name).await
            && !matches!(error, parlor_auth::AccessError::LoggedOut { .. })
        {
            eprintln!("{error}");
            works = false;
        }
    }
    works
}

fn for_people(status: &LoginStatus) -> String {
    let name = &status.provider;
    let whose = status.account.as_ref().and_then(|account| account.label());
    let whose = whose.map_or_else(String::new, |label| format!(" as {}", text::cut(label, LABEL_COLUMNS)));
    let until = match (status.expires_at, status.renewable) {
        (Some(at), true) => format!("; renewed before {}", time::minute(at)),
        (Some(at), false) => format!("; until {}", time::minute(at)),
        (None, _) => String::new(),
    };
    let state = match &status.state {
        LoginState::LoggedOut => return format!("{name}: not logged in; run: parlor login {name}"),
        LoginState::LoggedIn => format!("logged in{whose}{until}"),
        LoginState::Expired => format!("expired{whose}; run: parlor login {name}"),
        LoginState::Ended(reason) => format!("ended{whose}: {reason}; run: parlor login {name}"),
        LoginState::Unreadable(reason) => reason.clone(),
    };
    let known = if status.configured { "" } else { " (not in parlor.toml)" };
    format!("{name}{known}: {state}\n  kept in {}", status.place)
}

fn for_programs(status: &LoginStatus) -> String {
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
        "place": status.place,
    })
    .to_string()
}
