//! `parlor token`: prints or replaces the token of the supr door.

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use parlor_web::{TokenConfig, TokenStore, system_random};
use tokio::runtime::{Builder, Runtime};

use crate::database_token;
use crate::environment::Environment;
use crate::event_log::OpenLog;
use crate::home::Home;
use crate::settings::Config;
use crate::settings::supr::SuprConfig;

/// The file in the state folder that holds the token.
pub(crate) const FILE: &str = "supr.json";

/// The flags of `parlor token`.
#[derive(Args)]
pub(crate) struct Options {
    /// Replace the token. The old one no longer lets clients in; open connections stay open
    #[arg(long)]
    rotate: bool,
    /// With --rotate: also close the connections that were opened with the old token
    #[arg(long, requires = "rotate")]
    evict: bool,
    /// Sign out all browsers: their cookies become invalid. The token stays valid, and open connections stay open
    #[arg(long, conflicts_with = "rotate")]
    sign_out: bool,
}

/// Prints the valid token, after replacing it if asked to.
pub(crate) fn token(environment: &Environment, options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    let home = Home::open(environment)?;
    let store = open_store(home.path(), &home.config().supr.with(&environment.supr)?)?;
    let is_changed = options.rotate || options.sign_out;
    // The token of nodes is in their database. The last one that this node has seen is better than none.
    let shared = match home.config().log.url.as_ref().map(|_| share(&home, &store)) {
        Some(Ok(shared)) => Some(shared),
        Some(Err(error)) if is_changed => return Err(error),
        Some(Err(error)) => {
            eprintln!("parlor: this may not be the token of the other nodes: {error:#}");
            None
        }
        None => None,
    };
    let done = print(&store, options, out);
    if let Some((runtime, log)) = shared {
        runtime.block_on(log.as_log().close());
    }
    done
}

/// Changes the token if asked to, and prints it.
fn print(store: &TokenStore, options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    if options.sign_out {
        store.sign_out()?;
        writeln!(out, "all browsers are signed out; the token is still valid")?;
        return Ok(());
    }
    let current = match (options.rotate, options.evict) {
        (true, true) => store.rotate_and_evict()?,
        (true, false) => store.rotate()?,
        (false, _) => store.now(),
    };
    writeln!(out, "{}", current.token.reveal())?;
    Ok(())
}

/// Uses the token that nodes share. The store needs the returned runtime and log for that.
fn share(home: &Home, store: &TokenStore) -> anyhow::Result<(Runtime, OpenLog)> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let log = runtime.block_on(async {
        let log = OpenLog::open(home.config(), home.path(), Duration::ZERO).await?;
        if let OpenLog::Postgres(log) = &log {
            database_token::share(log, store).await?;
        }
        Ok::<_, anyhow::Error>(log)
    })?;
    Ok((runtime, log))
}

/// Opens the token store of the state folder. Creates the folder and a token if they are missing.
pub(crate) fn open_store(home: &Path, config: &SuprConfig) -> anyhow::Result<TokenStore> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(home)
        .with_context(|| format!("cannot create the state folder {}", home.display()))?;
    let configured = TokenConfig { token: config.token.clone(), allow_origins: config.allow_origins.clone() };
    Ok(TokenStore::open(home.join(FILE), configured, system_random())?)
}

/// The token of the state folder, for a client of the same user. `None` if there is no token yet; creates none.
pub(crate) fn existing(home: &Path, environment: &Environment) -> anyhow::Result<Option<String>> {
    let config = Config::load(home)?.supr.with(&environment.supr)?;
    if config.token.is_none() && !home.join(FILE).exists() {
        return Ok(None);
    }
    Ok(Some(open_store(home, &config)?.now().token.reveal().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_folder_gets_one_token_and_a_new_one_on_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("state");
        let store = || super::open_store(&home, &SuprConfig::default()).unwrap();
        let first = store().now().token.clone();
        assert_eq!(store().now().token, first);
        store().rotate().unwrap();
        assert_ne!(store().now().token, first);
        assert!(first.is_strong() && home.join(FILE).exists());
    }
}
