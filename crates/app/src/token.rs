//! `parlor token`: the token of the supr door.

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::Context;
use clap::Args;
use parlor_web::{TokenConfig, TokenStore, system_chance};

use crate::environment::Environment;
use crate::home::Home;
use crate::settings::Config;
use crate::settings::supr::SuprConfig;

/// The file in the state folder.
pub(crate) const FILE: &str = "supr.json";

/// What to do with the token.
#[derive(Args)]
pub(crate) struct Options {
    /// Make another one. The old one lets nobody in any more; connections that are open stay
    #[arg(long)]
    rotate: bool,
}

/// Prints the token that holds.
pub(crate) fn token(environment: &Environment, options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    let home = Home::open(environment)?;
    let store = store(home.path(), &home.config().supr.with(&environment.supr)?)?;
    let kept = if options.rotate { store.rotate()? } else { store.now() };
    writeln!(out, "{}", kept.token.reveal())?;
    Ok(())
}

/// The token of the state folder, which is made if it is missing.
pub(crate) fn store(home: &Path, config: &SuprConfig) -> anyhow::Result<TokenStore> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(home)
        .with_context(|| format!("cannot keep state in {}", home.display()))?;
    let configured = TokenConfig { token: config.token.clone(), allow_origins: config.allow_origins.clone() };
    Ok(TokenStore::open(home.join(FILE), configured, system_chance())?)
}

/// The token of the state folder for a client of this user, if there is one. Makes none.
pub(crate) fn of_home(home: &Path, environment: &Environment) -> anyhow::Result<Option<String>> {
    let config = Config::load(home)?.supr.with(&environment.supr)?;
    if config.token.is_none() && !home.join(FILE).exists() {
        return Ok(None);
    }
    Ok(Some(store(home, &config)?.now().token.reveal().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_folder_gets_one_token_and_another_on_demand() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("state");
        let store = || super::store(&home, &SuprConfig::default()).unwrap();
        let first = store().now().token.clone();
        assert_eq!(store().now().token, first);
        store().rotate().unwrap();
        assert_ne!(store().now().token, first);
        assert!(first.is_strong() && home.join(FILE).exists());
    }
}
