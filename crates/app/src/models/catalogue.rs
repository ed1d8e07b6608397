//! The lists of models that the providers offer, cached in a file for a day.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parlor_log::SystemClock;
use parlor_model::provider::{ProviderKind, redacted_url};
use parlor_vocab::Clock;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::Keys;
use super::build::connection;
use crate::home::Home;
use crate::settings::models::ModelConfig;

/// The file's name in the state folder.
const FILE: &str = "models.json";

/// A larger cache file is ignored.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// How long a list stays in the cache.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// How long to wait for the list of a provider.
const ANSWER_WAIT: Duration = Duration::from_secs(15);

/// The models of all providers that could be asked.
#[derive(Default)]
pub(crate) struct Catalogue {
    /// One list for each server.
    pub(crate) lists: Vec<ServerList>,
    /// One message for each provider that could not be asked.
    pub(crate) errors: Vec<String>,
    /// Whether each server has a list, however old.
    pub(crate) is_complete: bool,
    /// Whether each server has a list that is not old.
    pub(crate) is_fresh: bool,
}

/// The models of one server, by the names that the provider uses.
pub(crate) struct ServerList {
    /// The name of a configured model at this server.
    pub(crate) model: String,
    pub(crate) provider: ProviderKind,
    /// See [`server_key`].
    pub(crate) server: String,
    pub(crate) ids: Vec<String>,
}

/// Where the lists come from.
#[derive(Clone)]
pub(crate) struct CatalogueSource {
    pub(crate) state_folder: PathBuf,
    pub(crate) models: BTreeMap<String, ModelConfig>,
    pub(crate) keys: Keys,
}

/// The cache file: a list for each provider address, because several models share an address.
#[derive(Default, Deserialize, Serialize)]
struct Cache(BTreeMap<String, List>);

#[derive(Clone, Deserialize, Serialize)]
struct List {
    fetched_ms: i64,
    models: Vec<String>,
}

impl CatalogueSource {
    pub(crate) fn new(home: &Home) -> Self {
        let (models, keys) = (home.config().models.clone(), home.keys().clone());
        Self { state_folder: home.path().to_owned(), models, keys }
    }

    /// The lists in the cache, however old. Asks no provider.
    pub(crate) async fn cached(&self) -> Catalogue {
        let (file, now) = (self.state_folder.join(FILE), SystemClock.now().0);
        let cache = tokio::task::spawn_blocking(move || read(&file)).await.unwrap_or_default();
        let mut catalogue = Catalogue { is_complete: true, is_fresh: true, ..Catalogue::default() };
        for (name, model, server) in self.servers().await {
            let list = cache.0.get(&server);
            catalogue.is_complete &= list.is_some();
            catalogue.is_fresh &= list.is_some_and(|list| is_fresh(list, now));
            catalogue.lists.extend(list.map(|list| server_list(name, model, server, list.models.clone())));
        }
        catalogue
    }

    /// Reads the cache, and asks the providers whose lists are old or missing; with `refresh`, all providers. Skips
    /// providers without a key.
    pub(crate) async fn read(&self, refresh: bool) -> anyhow::Result<Catalogue> {
        let file = self.state_folder.join(FILE);
        let (mut cache, now) = (read(&file), SystemClock.now().0);
        let mut catalogue = Catalogue::default();
        let mut changed = false;
        for (name, model, server) in self.servers().await {
            let fresh = cache.0.get(&server).filter(|list| !refresh && is_fresh(list, now)).cloned();
            let list = match fresh {
                Some(list) => list,
                None => match timeout(ANSWER_WAIT, connection(&self.keys, model).model_ids()).await {
                    Ok(Ok(models)) => {
                        let list = List { fetched_ms: now, models };
                        cache.0.insert(server.clone(), list.clone());
                        changed = true;
                        list
                    }
                    Ok(Err(error)) => {
                        catalogue.errors.push(format!("{}: {error}", model.provider.name()));
                        continue;
                    }
                    Err(_) => {
                        let name = model.provider.name();
                        catalogue
                            .errors
                            .push(format!("{name} sent no list of models within {ANSWER_WAIT:?}"));
                        continue;
                    }
                },
            };
            catalogue.lists.push(server_list(name, model, server, list.models));
        }
        if changed {
            write(&self.state_folder, &file, &cache)?;
        }
        catalogue.is_complete = catalogue.errors.is_empty();
        catalogue.is_fresh = catalogue.is_complete;
        Ok(catalogue)
    }

    /// The servers for which parlor has a key, or that need none, each with the name of its first model.
    async fn servers(&self) -> Vec<(&str, &ModelConfig, String)> {
        let mut servers: Vec<(&str, &ModelConfig, String)> = Vec::new();
        for (name, model) in &self.models {
            let server = server_key(&self.keys, model);
            let is_known = servers.iter().any(|(_, _, known)| *known == server);
            if !is_known && self.keys.credential(model).await.is_ok() {
                servers.push((name, model, server));
            }
        }
        servers
    }
}

fn server_list(name: &str, model: &ModelConfig, server: String, ids: Vec<String>) -> ServerList {
    ServerList { model: name.to_owned(), provider: model.provider, server, ids }
}

/// The provider and the address of a model's server, without a password.
pub(crate) fn server_key(keys: &Keys, model: &ModelConfig) -> String {
    let url = keys.base_url(model).unwrap_or(model.provider.base_url());
    format!("{} {}", model.provider.name(), redacted_url(url))
}

fn is_fresh(list: &List, now: i64) -> bool {
    let age = now.checked_sub(list.fetched_ms).and_then(|age| u64::try_from(age).ok());
    age.is_some_and(|age| Duration::from_millis(age) < MAX_AGE)
}

/// Reads the cache. A file that cannot be read counts as empty: the providers can be asked again.
fn read(file: &Path) -> Cache {
    let is_small =
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() <= MAX_FILE_BYTES);
    let text = is_small.then(|| std::fs::read_to_string(file).ok()).flatten().unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Writes the cache atomically, because another process may read it at any moment.
fn write(home: &Path, file: &Path, cache: &Cache) -> anyhow::Result<()> {
    std::fs::create_dir_all(home)?;
    let temporary = home.join(format!("{FILE}.{}", std::process::id()));
    let mut out = std::fs::File::create(&temporary)?;
    out.write_all(serde_json::to_string(cache)?.as_bytes())?;
    drop(out);
    Ok(std::fs::rename(&temporary, file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_expires_after_a_day() {
        let day = i64::try_from(MAX_AGE.as_millis()).unwrap();
        let list = List { fetched_ms: 1000, models: Vec::new() };
        assert!(is_fresh(&list, 1000) && is_fresh(&list, 999 + day));
        assert!(!is_fresh(&list, 1000 + day));
        assert!(!is_fresh(&list, 0), "a clock that was set back");
    }

    #[test]
    fn an_unreadable_cache_counts_as_empty() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        assert!(read(&file).0.is_empty());
        std::fs::write(&file, "{").unwrap();
        assert!(read(&file).0.is_empty());
        let list = List { fetched_ms: 1, models: vec!["m".to_owned()] };
        write(folder.path(), &file, &Cache(BTreeMap::from([("p".to_owned(), list)]))).unwrap();
        assert_eq!(read(&file).0["p"].models, ["m"]);
    }
}
