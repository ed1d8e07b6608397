//! The environment, read once. Nothing else in this crate looks at it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::bail;
use parlor_model::provider::is_public_address;

use crate::command_variables;

/// The variables that hold the keys of model providers.
pub(crate) const MODEL_KEYS: [&str; 4] =
    ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"];

/// The variable that moves models of OpenAI elsewhere.
const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";

/// A variable is taken for a secret if one of these stands in its name.
const SECRET_NAMES: [&str; 10] =
    ["KEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "COOKIE", "WEBHOOK", "DSN"];

/// Variables that mean something to parlor, and what commands and other programs are given.
pub(crate) struct Environment {
    /// `PARLOR_HOME`.
    home: Option<OsString>,
    /// `HOME`.
    pub(crate) user_home: Option<OsString>,
    /// `PATH`.
    path: Option<OsString>,
    /// `PARLOR_RUBY`.
    pub(crate) ruby: Option<OsString>,
    /// `SYNAPS_BASE_DIR`.
    pub(crate) synaps_base: Option<OsString>,
    /// `SYNAPS_PROFILE`.
    pub(crate) synaps_profile: Option<String>,
    /// The variables of Supex.
    pub(crate) supex: SupexVariables,
    /// The variables of SuprClaw.
    pub(crate) supr: SuprVariables,
    /// `PARLOR_LOG`.
    pub(crate) log: Option<String>,
    /// Whether `PARLOR_DUMPABLE` is `1`: debuggers and core dumps may see what this process has in memory.
    pub(crate) is_open: bool,
    /// Whether `NO_COLOR` asks for no colours.
    pub(crate) no_color: bool,
    /// Whether `TERM` says that the terminal can only print.
    pub(crate) dumb: bool,
    /// Whether the locale can print more than ASCII.
    pub(crate) unicode: bool,
    /// Those of [`MODEL_KEYS`] that are set to more than white space. Never their values.
    pub(crate) model_keys: Vec<&'static str>,
    /// `OPENAI_BASE_URL`.
    pub(crate) openai_base_url: Option<String>,
    /// Whether the user has a session bus to ask for a keyring, or why not.
    pub(crate) session_bus: Result<(), String>,
    /// All that can be told as text.
    all: Vec<(String, String)>,
}

impl Environment {
    /// Reads it.
    pub(crate) fn read() -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable).unwrap_or_default();
        let locale = locale.to_string_lossy().to_ascii_uppercase();
        Self {
            home: variable("PARLOR_HOME"),
            user_home: variable("HOME"),
            path: variable("PATH"),
            ruby: variable("PARLOR_RUBY"),
            synaps_base: variable("SYNAPS_BASE_DIR"),
            synaps_profile: variable("SYNAPS_PROFILE").and_then(|profile| profile.into_string().ok()),
            supex: SupexVariables::read(),
            supr: SuprVariables::read(),
            log: variable("PARLOR_LOG").map(|level| level.to_string_lossy().into_owned()),
            is_open: variable("PARLOR_DUMPABLE").is_some_and(|value| value == "1"),
            no_color: variable("NO_COLOR").is_some(),
            dumb: variable("TERM").is_none_or(|term| term == "dumb"),
            unicode: locale.contains("UTF-8") || locale.contains("UTF8"),
            model_keys: MODEL_KEYS.into_iter().filter(|name| Self::secret(name).is_some()).collect(),
            openai_base_url: variable(OPENAI_BASE_URL).map(|url| url.to_string_lossy().into_owned()),
            session_bus: session_bus(variable("DBUS_SESSION_BUS_ADDRESS"), variable("XDG_RUNTIME_DIR")),
            all: all(),
        }
    }

    /// The state folder: `$PARLOR_HOME`, or `.parlor` in the user's home folder.
    pub(crate) fn state_folder(&self) -> anyhow::Result<PathBuf> {
        let path = match (&self.home, &self.user_home) {
            (Some(path), _) => PathBuf::from(path),
            (None, Some(home)) => Path::new(home).join(".parlor"),
            (None, None) => {
                bail!("neither PARLOR_HOME nor HOME is set: say where to keep state with PARLOR_HOME=FOLDER")
            }
        };
        Ok(std::path::absolute(&path)?)
    }

    /// Whether it is said where to keep state.
    pub(crate) fn has_state_folder(&self) -> bool {
        self.home.is_some()
    }

    /// What a variable is set to that holds a secret, without white space around it: a file that it was read from has
    /// the end of a line.
    pub(crate) fn secret(name: &str) -> Option<String> {
        let value = variable(name)?.to_string_lossy().trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    /// What commands of agents get: those on the list, and those that `named` says.
    pub(crate) fn for_commands(&self, named: &[String]) -> Vec<(String, String)> {
        command_variables::for_commands(&self.all, named)
    }

    /// What a program of the user's desktop gets, such as a browser: all without what looks like a secret.
    pub(crate) fn for_desktop(&self) -> Vec<(String, String)> {
        let is_given =
            |(name, value): &&(String, String)| !looks_like_a_secret(name) && !is_secret_address(name, value);
        self.all.iter().filter(is_given).cloned().collect()
    }

    /// Where a program is that parlor itself needs.
    pub(crate) fn find_program(&self, name: &Path) -> Option<PathBuf> {
        parlor_process::find_program(name, self.path.as_deref()?)
    }

    /// The folders in which programs are looked for.
    pub(crate) fn program_folders(&self) -> Vec<PathBuf> {
        self.path.iter().flat_map(std::env::split_paths).collect()
    }
}

/// The `SUPEX_…` variables. An empty one is as good as none.
#[derive(Default)]
pub(crate) struct SupexVariables {
    /// `SUPEX_HOST`.
    pub(crate) host: Option<String>,
    /// `SUPEX_PORT`.
    pub(crate) port: Option<String>,
    /// `SUPEX_REPL_HOST`.
    pub(crate) repl_host: Option<String>,
    /// `SUPEX_REPL_PORT`.
    pub(crate) repl_port: Option<String>,
    /// `SUPEX_AUTH_TOKEN`. Never shown.
    pub(crate) token: Option<String>,
    /// `SUPEX_TIMEOUT`.
    pub(crate) timeout: Option<String>,
    /// `SUPEX_RETRIES`.
    pub(crate) retries: Option<String>,
    /// `SUPEX_IDLE_TIMEOUT`.
    pub(crate) idle_timeout: Option<String>,
    /// `SUPEX_MAX_RESPONSE`.
    pub(crate) max_response: Option<String>,
    /// `SUPEX_AGENT`.
    pub(crate) agent: Option<String>,
    /// `SUPEX_ALLOWED_ROOTS`.
    pub(crate) allowed_roots: Option<String>,
    /// `SUPEX_PROJECT_ROOT`.
    pub(crate) project_root: Option<String>,
    /// `SUPEX_RESPONSE_DELAY`.
    pub(crate) response_delay: Option<String>,
    /// Whether `SUPEX_ALLOW_REMOTE` is `1`.
    pub(crate) allow_remote: bool,
    /// Whether `SUPEX_VERBOSE` is `1`.
    pub(crate) verbose: bool,
    /// Whether `SUPEX_NO_AUTOSTART` is `1`.
    pub(crate) no_autostart: bool,
    /// Whether `SUPEX_REPL_DISABLED` is `1`.
    pub(crate) repl_disabled: bool,
}

impl SupexVariables {
    fn read() -> Self {
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        let flag = |name: &str| variable(name).is_some_and(|value| value == "1");
        Self {
            host: text("SUPEX_HOST"),
            port: text("SUPEX_PORT"),
            repl_host: text("SUPEX_REPL_HOST"),
            repl_port: text("SUPEX_REPL_PORT"),
            token: text("SUPEX_AUTH_TOKEN"),
            timeout: text("SUPEX_TIMEOUT"),
            retries: text("SUPEX_RETRIES"),
            idle_timeout: text("SUPEX_IDLE_TIMEOUT"),
            max_response: text("SUPEX_MAX_RESPONSE"),
            agent: text("SUPEX_AGENT"),
            allowed_roots: text("SUPEX_ALLOWED_ROOTS"),
            project_root: text("SUPEX_PROJECT_ROOT"),
            response_delay: text("SUPEX_RESPONSE_DELAY"),
            allow_remote: flag("SUPEX_ALLOW_REMOTE"),
            verbose: flag("SUPEX_VERBOSE"),
            no_autostart: flag("SUPEX_NO_AUTOSTART"),
            repl_disabled: flag("SUPEX_REPL_DISABLED"),
        }
    }
}

/// The `SUPRCLAW_…` variables. An empty one is as good as none.
#[derive(Default)]
pub(crate) struct SuprVariables {
    /// `SUPRCLAW_CHANNELS_SUPR_ENABLED`.
    pub(crate) enabled: Option<String>,
    /// `SUPRCLAW_CHANNELS_SUPR_TOKEN`. Never shown.
    pub(crate) token: Option<String>,
    /// `SUPRCLAW_CHANNELS_SUPR_ALLOW_FROM`.
    pub(crate) allow_from: Option<String>,
    /// `SUPRCLAW_GATEWAY_HOST`.
    pub(crate) host: Option<String>,
    /// `SUPRCLAW_GATEWAY_PORT`.
    pub(crate) port: Option<String>,
}

impl SuprVariables {
    fn read() -> Self {
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            enabled: text("SUPRCLAW_CHANNELS_SUPR_ENABLED"),
            token: text("SUPRCLAW_CHANNELS_SUPR_TOKEN"),
            allow_from: text("SUPRCLAW_CHANNELS_SUPR_ALLOW_FROM"),
            host: text("SUPRCLAW_GATEWAY_HOST"),
            port: text("SUPRCLAW_GATEWAY_PORT"),
        }
    }
}

/// Whether there is a session bus. One that would have to be started first is none.
fn session_bus(address: Option<OsString>, runtime_folder: Option<OsString>) -> Result<(), String> {
    let is_started = |address: &OsString| !address.to_string_lossy().starts_with("autolaunch:");
    let is_there = match (&address, runtime_folder) {
        (Some(address), _) => is_started(address),
        (None, Some(folder)) => Path::new(&folder).join("bus").exists(),
        (None, None) => false,
    };
    if is_there { Ok(()) } else { Err("there is no session bus here".to_owned()) }
}

/// A variable that is set to something.
#[expect(clippy::disallowed_methods, reason = "the environment is read here and passed on")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn all() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Whether the name of a variable says that it holds a secret.
pub(crate) fn looks_like_a_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

/// Whether a variable may hold a password: in its address, or in the place of one.
fn is_secret_address(name: &str, value: &str) -> bool {
    name == OPENAI_BASE_URL && !is_public_address(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_is_used_if_it_runs_and_never_started() {
        let bus = |address: Option<&str>, folder: Option<&Path>| {
            session_bus(address.map(OsString::from), folder.map(OsString::from)).is_ok()
        };
        let folder = tempfile::tempdir().unwrap();
        assert!(!bus(None, None) && !bus(None, Some(folder.path())));
        assert!(bus(Some("unix:path=/run/user/1/bus"), None));
        assert!(!bus(Some("autolaunch:"), Some(folder.path())));
        std::fs::write(folder.path().join("bus"), "").unwrap();
        assert!(bus(None, Some(folder.path())));
    }

    #[test]
    fn an_address_is_given_away_if_all_of_it_may_be_told() {
        let hidden = |value| is_secret_address(OPENAI_BASE_URL, value);
        assert!(!hidden("http://127.0.0.1:8080/v1"));
        assert!(hidden("http://user:s3cret@127.0.0.1:8080/v1") && hidden("sk-s3cret"));
        assert!(!is_secret_address("EDITOR", "vi"));
    }

    #[test]
    fn keys_of_models_look_like_secrets() {
        assert!(MODEL_KEYS.into_iter().all(looks_like_a_secret));
        assert!(looks_like_a_secret("my_password"));
        assert!(!looks_like_a_secret("PATH"));
    }
}
