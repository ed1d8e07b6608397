//! The token of the supr door in the database that nodes share, so that one token is valid at all of them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parlor_log::{LogError, PostgresLog};
use parlor_web::{SharedToken, TokenStore};
use tokio::runtime::Handle;

/// How often a node looks for a new token. For so long, one that was replaced elsewhere is still valid here.
pub(crate) const TOKEN_INTERVAL: Duration = Duration::from_secs(1);

/// The name of the token in the database.
const SHARED_NAME: &str = "supr_token";

/// The token in the database, for callers that block.
struct DatabaseToken {
    log: Arc<PostgresLog>,
    runtime: Handle,
}

impl SharedToken for DatabaseToken {
    fn load(&self) -> Result<Vec<u8>, String> {
        let content = self.runtime.block_on(self.log.shared_value(SHARED_NAME));
        content.map_err(|error| error.to_string())?.ok_or_else(|| "it is gone".to_owned())
    }

    fn replace(&self, expected: &[u8], new: &[u8]) -> Result<bool, String> {
        let replaced = self.runtime.block_on(self.log.replace_shared_value(SHARED_NAME, expected, new));
        replaced.map_err(|error| error.to_string())
    }
}

/// Uses the token in the database from now on; the first node puts its own there. Returns what is there, or `None` if the
/// settings have a token, which then is that of this node alone. Call it on a runtime that lasts as long as `tokens`.
pub(crate) async fn share(log: &Arc<PostgresLog>, tokens: &TokenStore) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(own) = tokens.content_to_share()? else { return Ok(None) };
    let content = log.create_shared_value(SHARED_NAME, &own).await;
    let content = content.context("cannot read the token in the database")?;
    if content != own {
        tokens.accept_shared(&content)?;
    }
    tokens.share(Arc::new(DatabaseToken { log: Arc::clone(log), runtime: Handle::current() }));
    Ok(Some(content))
}

/// Takes over the token in the database if it is not `seen`. While the database is away, the last token stays valid.
pub(crate) async fn refresh(
    log: &PostgresLog,
    tokens: &Arc<TokenStore>,
    seen: &mut Vec<u8>,
) -> Result<(), LogError> {
    let Some(content) = log.shared_value(SHARED_NAME).await? else { return Ok(()) };
    if content == *seen {
        return Ok(());
    }
    let (accepting, new) = (Arc::clone(tokens), content.clone());
    let accepted = tokio::task::spawn_blocking(move || accepting.accept_shared(&new)).await;
    match accepted {
        Ok(Ok(())) => *seen = content,
        Ok(Err(error)) => tracing::warn!(%error, "the token in the database cannot be used"),
        Err(error) => tracing::warn!(%error, "the token in the database cannot be used"),
    }
    Ok(())
}
