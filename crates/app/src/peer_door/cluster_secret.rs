//! The secret of the cluster: from the file that the settings name, or for nodes on one machine from their database.

use std::os::unix::fs::MetadataExt;

use anyhow::{Context, bail};
use parlor_log::{PostgresLog, random_u128};
use parlor_transport::ClusterKey;

use crate::secret_file;
use crate::settings::cluster::ClusterConfig;

/// The shortest secret, in bytes. Strangers can see the public key that is derived from it, and try secrets.
const MIN_SECRET_BYTES: usize = 32;

/// The largest file with a secret, in bytes.
const MAX_SECRET_BYTES: u64 = 4096;

const SETTING: &str = "[cluster] secret_file";

/// The name of the secret in the database.
const SHARED_NAME: &str = "peer_door_secret";

/// The key of the peer door. Without a file, nodes use a random secret in their database: whoever can read it there could
/// write sessions too. That is enough on one machine; beyond it, a copy of the database must not open the nodes.
pub(super) async fn key(config: &ClusterConfig, log: &PostgresLog) -> anyhow::Result<ClusterKey> {
    let secret = match configured_secret(config)? {
        Some(secret) => secret.into_bytes(),
        None if config.listen().ip().is_loopback() => {
            let new = [random_u128().to_be_bytes(), random_u128().to_be_bytes()].concat();
            let secret = log.create_shared_value(SHARED_NAME, &new).await;
            secret.context("cannot read the secret of the peer door in the database")?
        }
        None => bail!(
            "{} can be reached from other machines, and whoever connects can run code here: write a secret of at least \
             {MIN_SECRET_BYTES} random characters to a file on each node, and name it in {SETTING}",
            config.listen()
        ),
    };
    ClusterKey::derive(&secret).context("the secret of the peer door cannot be used")
}

/// The secret in the file that the settings name.
pub(crate) fn configured_secret(config: &ClusterConfig) -> anyhow::Result<Option<String>> {
    let Some(file) = &config.secret_file else { return Ok(None) };
    let secret = secret_file::read(file, MAX_SECRET_BYTES, "the secret of the cluster", SETTING)?;
    let shown = file.display();
    if secret.len() < MIN_SECRET_BYTES {
        bail!(
            "the secret in {shown} can be guessed: write at least {MIN_SECRET_BYTES} random characters ({SETTING}), such \
             as those of: openssl rand -hex 32"
        );
    }
    let metadata = std::fs::metadata(file).with_context(|| format!("cannot look at {shown} ({SETTING})"))?;
    if metadata.mode() & 0o007 != 0 {
        bail!("all users of this machine can use {shown} ({SETTING}); run: chmod 600 {shown}");
    }
    Ok(Some(secret))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_long_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.key");
        let config = ClusterConfig { secret_file: Some(file.clone()), ..ClusterConfig::default() };
        let read = |text: String, mode: u32| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            configured_secret(&config).map_err(|error| error.to_string())
        };
        assert!(configured_secret(&config).is_err(), "there is no file");
        let secret = "x".repeat(MIN_SECRET_BYTES);
        assert_eq!(read(format!("{secret}\n"), 0o640), Ok(Some(secret.clone())));
        assert!(read(secret.clone(), 0o644).unwrap_err().contains("chmod 600"));
        assert!(read("x".repeat(MIN_SECRET_BYTES - 1), 0o600).unwrap_err().contains("openssl rand"));
        assert!(read("x".repeat(MAX_SECRET_BYTES as usize + 1), 0o600).is_err());
        assert_eq!(configured_secret(&ClusterConfig::default()).unwrap(), None);
    }
}
