//! What the providers have, kept in a file for a day.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use parlor_log::SystemClock;
use parlor_model::provider::shown_address;
use parlor_vocab::Clock;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::Builder;
use crate::home::Home;
use crate::settings::models::ModelConfig;

/// The file's name in the state folder.
const FILE: &str = "models.json";

/// A larger file is not read.
const FILE_BYTES: u64 = 8 << 20;

/// How long what a provider said is good.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a provider may take to say what it has.
const ANSWER_WAIT: Duration = Duration::from_secs(15);

/// What the providers have.
#[derive(Default)]
pub(super) struct Catalogue {
    lists: Vec<(&'static str, Vec<String>)>,
    troubles: Vec<String>,
}

/// The file: by address, because several models share one.
#[derive(Default, Deserialize, Serialize)]
struct Kept(BTreeMap<String, List>);

#[derive(Clone, Deserialize, Serialize)]
struct List {
    fetched_ms: i64,
    models: Vec<String>,
}

impl Catalogue {
    /// Reads what is kept, and asks the providers whose lists are old or missing; all of them if
    /// `refresh`. Providers without a key are left out.
    pub(super) async fn read(home: &Home, builder: &Builder<'_>, refresh: bool) -> anyhow::Result<Self> {
        let file = home.path().join(FILE);
        let (mut kept, now) = (read(&file), SystemClock.now().0);
        let mut catalogue = Self::default();
        let mut asked: BTreeMap<String, ()> = BTreeMap::new();
        let mut changed = false;
        for model in home.config().models.values() {
            let place = place(home, model);
            if home.keys().pass(model).await.is_err() || asked.insert(place.clone(), ()).is_some() {
                continue;
            }
            let fresh = kept.0.get(&place).filter(|list| !refresh && is_fresh(list, now)).cloned();
            let list = match fresh {
                Some(list) => list,
                None => match timeout(ANSWER_WAIT, builder.connection(model).catalogue()).await {
                    Ok(Ok(models)) => {
                        let list = List { fetched_ms: now, models };
                        kept.0.insert(place, list.clone());
                        changed = true;
                        list
                    }
                    Ok(Err(error)) => {
                        catalogue.troubles.push(format!("{}: {error}", model.provider.name()));
                        continue;
                    }
                    Err(_) => {
                        let name = model.provider.name();
                        catalogue.troubles.push(format!("{name}: no list came within {ANSWER_WAIT:?}"));
                        continue;
                    }
                },
            };
            catalogue.lists.push((model.provider.name(), list.models));
        }
        if changed {
            write(home.path(), &file, &kept)?;
        }
        Ok(catalogue)
    }

    /// The models of each provider, as it calls them.
    pub(super) fn names(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        self.lists.iter().map(|(provider, names)| (*provider, names.as_slice()))
    }

    /// What went wrong.
    pub(super) fn troubles(&self) -> &[String] {
        &self.troubles
    }
}

fn place(home: &Home, model: &ModelConfig) -> String {
    let url = home.keys().base_url(model).unwrap_or(model.provider.base_url());
    format!("{} {}", model.provider.name(), shown_address(url))
}

fn is_fresh(list: &List, now: i64) -> bool {
    let age = now.checked_sub(list.fetched_ms).and_then(|age| u64::try_from(age).ok());
    age.is_some_and(|age| Duration::from_millis(age) < KEPT_FOR)
}

/// What is kept; nothing if that cannot be read, since it can be asked for again.
fn read(file: &Path) -> Kept {
    let is_small = std::fs::metadata(file).is_ok_and(|about| about.is_file() && about.len() <= FILE_BYTES);
    let text = is_small.then(|| std::fs::read_to_string(file).ok()).flatten().unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Another process may read it at any moment, so it appears as a whole.
fn write(home: &Path, file: &Path, kept: &Kept) -> anyhow::Result<()> {
    std::fs::create_dir_all(home)?;
    let draft = home.join(format!("{FILE}.{}", std::process::id()));
    let mut out = std::fs::File::create(&draft)?;
    out.write_all(serde_json::to_string(kept)?.as_bytes())?;
    drop(out);
    Ok(std::fs::rename(&draft, file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_good_for_a_day() {
        let day = i64::try_from(KEPT_FOR.as_millis()).unwrap();
        let list = List { fetched_ms: 1000, models: Vec::new() };
        assert!(is_fresh(&list, 1000) && is_fresh(&list, 999 + day));
        assert!(!is_fresh(&list, 1000 + day));
        assert!(!is_fresh(&list, 0), "a clock that was set back");
    }

    #[test]
    fn what_cannot_be_read_is_asked_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        assert!(read(&file).0.is_empty());
        std::fs::write(&file, "{").unwrap();
        assert!(read(&file).0.is_empty());
        let list = List { fetched_ms: 1, models: vec!["m".to_owned()] };
        write(folder.path(), &file, &Kept(BTreeMap::from([("p".to_owned(), list)]))).unwrap();
        assert_eq!(read(&file).0["p"].models, ["m"]);
    }
}
