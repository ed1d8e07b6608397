//! The lists of models that the providers offer, cached in a file for a day.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use parlor_log::SystemClock;
use parlor_model::provider::redacted_url;
use parlor_vocab::Clock;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::Builder;
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
pub(super) struct Catalogue {
    lists: Vec<(&'static str, Vec<String>)>,
    /// One message for each provider that could not be asked.
    errors: Vec<String>,
}

/// The cache file: a list for each provider address, because several models share an address.
#[derive(Default, Deserialize, Serialize)]
struct Cache(BTreeMap<String, List>);

#[derive(Clone, Deserialize, Serialize)]
struct List {
    fetched_ms: i64,
    models: Vec<String>,
}

impl Catalogue {
    /// Reads the cache, and asks the providers whose lists are old or missing; with `refresh`, all providers. Skips
    /// providers without a key.
    pub(super) async fn read(home: &Home, builder: &Builder<'_>, refresh: bool) -> anyhow::Result<Self> {
        let file = home.path().join(FILE);
        let (mut cache, now) = (read(&file), SystemClock.now().0);
        let mut catalogue = Self::default();
        let mut asked: BTreeMap<String, ()> = BTreeMap::new();
        let mut changed = false;
        for model in home.config().models.values() {
            let address = cache_key(home, model);
            if home.keys().credential(model).await.is_err() || asked.insert(address.clone(), ()).is_some() {
                continue;
            }
            let fresh = cache.0.get(&address).filter(|list| !refresh && is_fresh(list, now)).cloned();
            let list = match fresh {
                Some(list) => list,
                None => match timeout(ANSWER_WAIT, builder.connection(model).model_ids()).await {
                    Ok(Ok(models)) => {
                        let list = List { fetched_ms: now, models };
                        cache.0.insert(address, list.clone());
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
            catalogue.lists.push((model.provider.name(), list.models));
        }
        if changed {
            write(home.path(), &file, &cache)?;
        }
        Ok(catalogue)
    }

    /// The models of each provider, under the names that the provider uses.
    pub(super) fn names(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        self.lists.iter().map(|(provider, names)| (*provider, names.as_slice()))
    }

    /// One message for each provider that could not be asked.
    pub(super) fn errors(&self) -> &[String] {
        &self.errors
    }
}

fn cache_key(home: &Home, model: &ModelConfig) -> String {
    let url = home.keys().base_url(model).unwrap_or(model.provider.base_url());
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
