//! Reads the settings of a running server again. What a run reads when it starts changes at once; the rest is named in
//! the log and takes effect after a restart.

use std::sync::Arc;

use parlor_engine::Sessions;
use parlor_process::set_child_limits;
use parlor_transport::{ServerSignal, ServerSignals};
use parlor_web::CurrentCatalog;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::catalog::model_catalog;
use super::supervisor::Supervisor;
use crate::environment::Environment;
use crate::home::{Home, agents};
use crate::settings::show::changed_settings;
use crate::settings::{Config, RetentionConfig};

/// The beginnings of the names of settings that change without a restart.
const RELOADED: [&str; 8] = [
    "agents.",
    "auth.",
    "default_agent",
    "default_models.",
    "models.",
    "retention.",
    "spending.",
    "tools.max_",
];

/// What a reload replaces.
pub(super) struct Reloader {
    pub(super) sessions: Arc<Sessions>,
    pub(super) catalog: Arc<CurrentCatalog>,
}

impl Reloader {
    /// Reads the settings of `home` again, and returns the state folder with the new ones. If they are not valid, the old
    /// ones stay in force. `log_url` is the flag that overrides `[log] url`.
    fn reload(
        reloader: Option<&Self>,
        home: &Home,
        environment: &Environment,
        log_url: Option<&str>,
    ) -> Option<Home> {
        let reloaded = home.reload(environment).and_then(|new| new.with_log_url(log_url));
        let built = reloaded.and_then(|new| Ok((agents(&new, environment)?, new)));
        let (agents, new) = match built {
            Ok(built) => built,
            Err(error) => {
                tracing::error!(
                    "the settings were not read again, and the old ones stay in force: {error:#}"
                );
                return None;
            }
        };
        set_child_limits(new.config().tools.limits);
        if let Some(Self { sessions, catalog }) = reloader {
            sessions.replace_agents(&agents);
            catalog.replace(model_catalog(&new, environment));
        }
        report(home.config(), new.config());
        Some(new)
    }
}

/// Reloads the settings when a signal asks for it.
pub(super) struct Reloads {
    pub(super) reloader: Option<Arc<Reloader>>,
    pub(super) environment: Arc<Environment>,
    pub(super) log_url: Option<String>,
    pub(super) retention: watch::Sender<RetentionConfig>,
}

impl Reloads {
    /// Reloads the settings of `home` at each signal that asks for it, until one asks the server to end. A reload reads
    /// files, which can hang, so the end does not wait for one.
    pub(super) async fn until_end(
        &self,
        mut home: Arc<Home>,
        signals: &mut ServerSignals,
        supervisor: &Supervisor,
    ) {
        while signals.next().await == ServerSignal::Reload {
            supervisor.reloading();
            loop {
                let mut is_wanted_again = false;
                let mut reload = self.start(&home);
                let new = loop {
                    tokio::select! {
                        biased;
                        new = &mut reload => break new,
                        signal = signals.next() => match signal {
                            ServerSignal::End => return,
                            ServerSignal::Reload => is_wanted_again = true,
                        },
                    }
                };
                match new {
                    Ok(Some(new)) => {
                        let limits = new.config().retention;
                        self.retention.send_if_modified(|old| std::mem::replace(old, limits) != limits);
                        home = Arc::new(new);
                    }
                    Ok(None) => {}
                    Err(error) => tracing::error!("the settings were not read again: {error}"),
                }
                if !is_wanted_again {
                    break;
                }
            }
            supervisor.ready();
        }
    }

    fn start(&self, home: &Arc<Home>) -> JoinHandle<Option<Home>> {
        let (reloader, home) = (self.reloader.clone(), Arc::clone(home));
        let (environment, log_url) = (Arc::clone(&self.environment), self.log_url.clone());
        tokio::task::spawn_blocking(move || {
            Reloader::reload(reloader.as_deref(), &home, &environment, log_url.as_deref())
        })
    }
}

fn report(old: &Config, new: &Config) {
    for unknown in &new.unknown_settings {
        tracing::warn!("a part of parlor.toml is ignored: {unknown}");
    }
    let (now, later): (Vec<String>, Vec<String>) = changed_settings(old, new)
        .into_iter()
        .partition(|name| RELOADED.iter().any(|start| name.starts_with(start)));
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    tracing::info!("the settings were read again; changed: {}", list(&now));
    if !later.is_empty() {
        tracing::warn!("these settings have changed and take effect after a restart: {}", list(&later));
    }
}
